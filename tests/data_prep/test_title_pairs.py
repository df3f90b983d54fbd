"""Pairs of titles and bodies: headings and first sentences, and what follows them."""

import json
from collections import Counter

import pytest

from data_prep import title_pairs
from official_cmlm.common.errors import UserError
from tests.data_prep.binaries import run_binary

BODY = "The rest of it has many more words."


@pytest.mark.parametrize(
    ("paragraphs", "expected"),
    [
        ([f"The first sentence here. {BODY} And more."], [(0, f"{BODY} And more.")]),
        (["A heading of words", f"The text begins. {BODY}"], [(0, f"The text begins. {BODY}")]),
        # A heading belongs to the next paragraph alone, and is none of a paragraph's own title.
        (["A heading of words", BODY, f"A second paragraph here. {BODY}"], [(0, BODY), (2, BODY)]),
        (["A heading of words", "Another heading of words", BODY], [(1, BODY)]),
        (["Two words", BODY], []),
        ([f"See also. {BODY}", "One sentence with quite a few words."], []),
        (["The first sentence here. Too short a rest."], []),
    ],
)
def test_pairs(paragraphs, expected):
    pairs = list(title_pairs.title_pairs(paragraphs, "en", Counter()))
    titles = [paragraphs[at].split(". ")[0].rstrip(".") for at, _ in expected]
    assert [title.rstrip(".") for title, _ in pairs] == titles
    assert [body for _, body in pairs] == [body for _, body in expected]


def test_the_binary_writes_what_create_pairs_reads(tmp_path):
    (tmp_path / "in.txt").write_text(f"A heading of words\n\n{BODY}\n")
    output = tmp_path / "new" / "pairs.jsonl"
    values = {"input": tmp_path / "in.txt", "documents_by": "file", "output": output}
    assert run_binary(title_pairs, **values) == 0
    (line,) = output.read_text().splitlines()
    pair = json.loads(line)
    assert (pair["title"], pair["body"]) == ("A heading of words", BODY) and pair["id"]
    with pytest.raises(UserError, match="exists"):
        run_binary(title_pairs, **values)


def test_text_without_pairs_is_refused(tmp_path):
    (tmp_path / "in.txt").write_text("Word.\n")
    with pytest.raises(UserError, match="no heading; check that blank lines"):
        run_binary(title_pairs, input=tmp_path / "in.txt", output=tmp_path / "pairs.jsonl")
    assert not (tmp_path / "pairs.jsonl").exists()
