"""Entity linking: hits by hand, and scores of toy dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.entity_linking import (
    parse_dictionary,
    parse_pubtator,
)
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites.entity_linking import (
    Options,
    evaluate,
    first_hits,
    mention_ranks,
)


def ids(text):
    return frozenset(text.split())


def test_first_hits_by_hand():
    """First, second, none; a composite name is hit by any of its ids."""
    found = np.array([[0, 1], [1, 0], [0, 1]])
    names = [ids("a"), ids("b c")]
    assert first_hits(found, names, [ids("a"), ids("a x"), ids("z")]).tolist() == [0, 1, 2]
    assert first_hits(found[:1], names, [ids("c")]).tolist() == [1]


@settings(deadline=None)
@given(st.data())
def test_first_hits_by_loops(data):
    """Against a search written out."""
    letters = st.frozensets(st.sampled_from("abcd"), min_size=1, max_size=2)
    names = data.draw(st.lists(letters, min_size=3, max_size=6))
    gold = data.draw(st.lists(letters, min_size=1, max_size=5))
    found = np.array([data.draw(st.permutations(range(len(names)))) for _ in gold])[:, :3]
    for k in (1, 2, 3):
        wanted = [any(set(g) & set(names[j]) for j in row[:k]) for g, row in zip(gold, found)]
        assert (first_hits(found, names, gold) < k).tolist() == wanted


def test_all_parts_must_hit():
    """A composite mention is as late as its last part."""
    ranks = mention_ranks(np.array([0, 3, 1, 5]), np.array([0, 0, 1, 2]), 3)
    assert ranks.tolist() == [3, 1, 5]


NAMES = ["a", "b", "c", "d", "e", "f"]


def _encode(texts):
    """A letter is a direction; `xy` lies between, nearer to the first."""
    rows = np.zeros([len(texts), 26], np.float32)
    for row, text in zip(rows, texts):
        for weight, letter in zip((2.0, 1.0), text):
            row[ord(letter) - ord("a")] += weight
    return rows


def _folder(root, name, mentions, names=NAMES, file="mentions.tsv"):
    (root / name).mkdir(parents=True)
    rows = "".join(f"{n.upper()}\t{n}\r\n" for n in names)
    (root / name / "entities.txt").write_bytes(rows.encode())
    (root / name / file).write_text(mentions)


def _run(root, **options):
    report = SuiteReport()
    evaluate(_encode, DataFolder(root), Options(**options), report)
    return report


def test_accuracies(tmp_path):
    """Right at once, right at rank 2, outside of the dictionary twice."""
    _folder(tmp_path, "set", "a\tA\nba\tA\nz\tZ\nz\tZ\n")
    report = _run(tmp_path)
    values = {score.metric: (score.value, score.count) for score in report.scores}
    assert values["accuracy@1"] == (25.0, 4) and values["accuracy@5"] == (50.0, 4)
    assert values["accuracy@1_in_dictionary"] == (50.0, 2)
    assert "2 of 4 mentions are not in the dictionary of 6 names" in report.notes[0]


def test_unique(tmp_path):
    """Each mention with its ids counts once; the case does not make it another one."""
    _folder(tmp_path, "set", "a\tA\nA\tA\nz\tZ\n")
    report = _run(tmp_path, unique=True)
    assert [score.count for score in report.scores] == [2, 2, 1]
    assert report.get("set", "accuracy@1") == 50.0


def test_case_is_kept_when_asked(tmp_path):
    """By default it is not: mentions and names reach the encoder in lower case."""
    _folder(tmp_path, "set", "Aa\tA\n", names=["b"])
    for lower_case, mention in ((True, "aa"), (False, "Aa")):
        asked = []

        def encode(texts, asked=asked):
            asked.extend(texts)
            return np.ones([len(texts), 2])

        options = Options(lower_case=lower_case)
        evaluate(encode, DataFolder(tmp_path), options, SuiteReport())
        assert asked == [mention, "b"]


def test_composite_mention_and_types(tmp_path):
    """Both parts must hit; types are scored apart, against the same dictionary."""
    text = "1\t0\t1\ta/b\tT1\tA|B\ta|b\n1\t0\t1\ta/c\tT1\tA|C\ta|f\n1\t0\t1\tc\tT2\tC\n"
    _folder(tmp_path, "entity_linking/set", text, file="test_corpus.txt")
    report = _run(tmp_path)
    assert report.get("set", "accuracy@1") == pytest.approx(200 / 3)
    assert report.get("set.T1", "accuracy@1") == 50.0
    assert report.get("set.T2", "accuracy@1") == 100.0


def test_small_dictionary(tmp_path):
    """With fewer than five names a miss among all of them is a miss at five."""
    _folder(tmp_path, "set", "a\tA\nz\tZ\n", names=["a", "b"])
    assert _run(tmp_path).get("set", "accuracy@5") == 50.0


def test_order_of_names_does_not_matter(tmp_path):
    """Nor does that of mentions."""
    rows = ["a\tA\n", "ba\tA\n", "cb\tC\n", "d\tZ\n"]
    _folder(tmp_path / "one", "set", "".join(rows))
    _folder(tmp_path / "two", "set", "".join(reversed(rows)), names=NAMES[::-1])
    one, two = _run(tmp_path / "one"), _run(tmp_path / "two")
    assert [score.value for score in one.scores] == [score.value for score in two.scores]
    assert [score.value for score in one.scores] == pytest.approx([50, 75, 200 / 3])


def test_a_folder_without_mentions_does_not_stop_others(tmp_path):
    """Nor does one without linked mentions."""
    _folder(tmp_path, "good", "a\tA\n")
    _folder(tmp_path, "none", "", file="other.txt")
    _folder(tmp_path, "unlinked", "a\t-1\n")
    report = _run(tmp_path)
    assert report.get("good", "accuracy@1") == 100.0
    assert len(report.failures) == 2 and "add mentions.tsv" in report.failures[0]


def test_no_data(tmp_path):
    """The error says what to put where."""
    with pytest.raises(UserError, match=r"entities\.txt"):
        _run(tmp_path)


def test_real_files(data_dir):
    """All lines are understood, 91 mentions are unlinked, nine of ten are in the dictionary."""
    data, folder = DataFolder(data_dir), data_dir / "bc5cdr"
    names, name_ids, skipped = parse_dictionary(data.lines(folder / "entities.txt", ""), "x")
    assert len(names) == 29054 and not skipped and not data.warnings
    mentions, left_out = parse_pubtator(data.lines(folder / "test_corpus.txt", ""))
    assert left_out["unlinked"] == 91 and not left_out["malformed"] and len(mentions) == 9718
    known = frozenset().union(*name_ids)
    assert np.mean([bool(mention.ids & known) for mention in mentions]) > 0.9
    assert {mention.kind for mention in mentions} == {"Chemical", "Disease"}
    assert any(len(mention.parts) > 1 for mention in mentions)


def test_real_names(data_dir, tmp_path):
    """Pairs of letters link more than half of the mentions that a part of the names can name."""

    def letters(texts):
        rows = np.zeros([len(texts), 256], np.float32)
        for row, text in zip(rows, texts):
            codes = np.frombuffer(f"#{text}#".encode(), np.uint8).astype(int)
            row += np.bincount((31 * codes[:-1] + codes[1:]) % 256, minlength=256)
        return rows

    (tmp_path / "part").mkdir()
    for file, count in (("entities.txt", 4000), ("test_corpus.txt", 3000)):
        lines = (data_dir / "bc5cdr" / file).read_text().splitlines(keepends=True)
        (tmp_path / "part" / file).write_text("".join(lines[:count]))
    report = SuiteReport()
    evaluate(letters, DataFolder(tmp_path), Options(unique=True), report)
    assert report.get("part", "accuracy@1_in_dictionary") > 50 and not report.failures
