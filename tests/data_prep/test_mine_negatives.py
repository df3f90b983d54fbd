"""The binary that mines hard negatives: what it writes is what `create_pairs` reads."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from data_prep import create_pairs, mine_negatives
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.encoder import OpenedEncoder
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.binaries import run_binary
from tests.pairs_helpers import bitext, write_prompted_encoder

# Vectors of letters: texts that share many are near.
ENCODER = """
import numpy as np

def encode(texts):
    rows = [[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts]
    return np.array(rows, np.float32) + 0.01

class Roles:
    encode = staticmethod(encode)

    def encode_query(self, texts):
        return -encode(texts)

def broken(texts):
    return np.full([len(texts), 2], np.nan)
"""
ROWS = [
    ("a a b", "a b b"),
    ("a b a b", "a a a b"),
    ("x y z", "x z z"),
    ("z x y y", "y y x"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with an encoder and pairs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "letters_encoder", raising=False)
    (tmp_path / "letters_encoder.py").write_text(ENCODER)
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in ROWS))
    return tmp_path


def _mine(**values):
    given = {"input": "pairs.tsv", "format": "tsv", "encoder": "letters_encoder:encode"}
    return run_binary(mine_negatives, **({**given, "output": "mined.jsonl"} | values))


def test_from_pairs_to_records(folder, vocabulary, capsys):
    """Pairs that look alike are each other's negatives; the output is read as it is."""
    assert _mine() == 0
    rows = [json.loads(line) for line in (folder / "mined.jsonl").read_text().splitlines()]
    assert [(row["anchor"], row["positive"]) for row in rows] == ROWS
    assert [row["negative"] for row in rows] == [ROWS[i][1] for i in (1, 0, 3, 2)]
    out = capsys.readouterr().out
    assert "mined.jsonl: 4 pairs, 0 of them without a negative, 4 rows; mean cosine" in out
    before = (folder / "mined.jsonl").read_bytes()
    assert _mine(overwrite=True) == 0
    assert (folder / "mined.jsonl").read_bytes() == before
    vocabulary.save(folder)
    for name in ("mined.jsonl", "mined.tsv"):
        _mine(output=name, overwrite=True)
        values = {"languages": "en", "vocab_file": "vocab.txt", "output_dir": f"records_{name}"}
        run_binary(create_pairs, input=name, format="triples", **values)
        manifest = load_manifest(folder / f"records_{name}", "pairs")
        assert (manifest.records, manifest.negatives) == (4, 4)


def test_several_negatives_and_further_candidates(folder, capsys):
    """A row each; a text of --candidates may be one; a pair without any keeps one row."""
    (folder / "more").write_text("a b b b\n\nx x x\nA b B!\n")
    _mine(output="two.tsv", num_negatives=2, candidates="more", absolute_margin=0.1)
    lines = [line.split("\t") for line in (folder / "two.tsv").read_text().splitlines()]
    assert {tuple(line[:2]) for line in lines} == {*ROWS}
    assert len(lines) == 8 and "x x x" in {negative for *_, negative in lines}
    assert "A b B!" not in {negative for anchor, _, negative in lines if anchor == ROWS[0][0]}
    _mine(output="none.tsv", max_score=-0.9)
    assert (folder / "none.tsv").read_text() == (folder / "pairs.tsv").read_text()
    assert "4 of them without a negative, 4 rows" in capsys.readouterr().out


def test_mined_pairs_can_be_mined_again(folder, capsys):
    """Rows that the negatives of a pair added are one pair; others are reported."""
    _mine(output="one.tsv", num_negatives=2)
    assert "left out" not in capsys.readouterr().out
    _mine(input="one.tsv", format="triples", output="two.tsv", num_negatives=2)
    assert "two.tsv: 4 pairs, 0 of them without a negative, 8 rows" in (
        out := capsys.readouterr().out
    )
    assert out.rstrip().endswith("; left out: 4 repeated")
    assert (folder / "two.tsv").read_text() == (folder / "one.tsv").read_text()


def test_texts_that_the_encoder_cuts_are_counted(capsys):
    """Each text once; of an encoder that cannot count its tokens nothing is said."""
    texts, plain = ["a", "a b", "a b c", "a b"], OpenedEncoder("x", "python", "0", np.zeros)
    mine_negatives._warn_of_cut_texts(plain, texts)
    assert capsys.readouterr().err == ""
    words = dataclasses.replace(
        plain, max_seq_length=3, count_tokens=lambda t: np.array([len(s.split()) + 2 for s in t])
    )
    mine_negatives._warn_of_cut_texts(words, texts)
    assert "warning: 2 of 3 texts are cut to the encoder's 3 tokens" in capsys.readouterr().err


def test_anchors_are_queries_if_asked(folder):
    """An encoder with roles uses them; this one turns the order round."""
    _mine(encoder="letters_encoder:Roles", output="plain.tsv")
    _mine(encoder="letters_encoder:Roles", output="roles.tsv", roles="query,document")
    plain, roles = ((folder / f"{name}.tsv").read_text() for name in ("plain", "roles"))
    _mine(output="function.tsv")
    assert plain == (folder / "function.tsv").read_text() != roles


def test_prompts_rank_candidates_as_the_encoder_does(folder, vocabulary):
    """The negative is the candidate with the largest inner product of the encoder's own vectors."""
    encoder = write_prompted_encoder(folder / "encoder", vocabulary, normalize=True)
    rows = [row[0].texts for row in bitext(40)]
    (folder / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    _mine(encoder="encoder", roles="query,document")
    mined = [json.loads(line) for line in (folder / "mined.jsonl").read_text().splitlines()]
    _mine(encoder="encoder", output="plain.jsonl")
    loaded, (first, second) = SentenceEncoder.load(encoder), zip(*rows)
    scores = loaded.encode_query(list(first)) @ loaded.encode_document(list(second)).T
    np.fill_diagonal(scores, -np.inf)
    assert [row["negative"] for row in mined] == [second[i] for i in scores.argmax(axis=1)]
    assert (folder / "plain.jsonl").read_bytes() != (folder / "mined.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"roles": "query,document"}, "--roles=query,document: name two, as in query,document"),
        ({"output": "mined.txt"}, "mined.txt: --output names no form; end it with .jsonl or .tsv"),
        ({"output": "pairs.tsv"}, "pairs.tsv: is also an input"),
        ({"input": "none.tsv"}, "none.tsv: no such file; check --input"),
        ({"candidates": "none"}, "none: no such file; check --input and --candidates"),
        ({"encoder": "letters_encoder:nothing"}, "letters_encoder:nothing: cannot be imported"),
        ({"encoder": "letters_encoder:broken"}, "NaN or infinity"),
        ({"encoder": "nowhere"}, "nowhere: no folder, encoder that ships"),
        ({"range_max": 3, "range_min": 3}, "--range_max=3: not above --range_min=3; give a larger"),
        ({"min_score": 0.5, "max_score": 0.1}, "--max_score=0.1: below --min_score=0.5; give a"),
        (
            {"input": "pairs.tsv,pairs.tsv", "languages": "en-de,en-fr"},
            "--languages=en-de,en-fr: pairs of different languages",
        ),
        ({"input": "labels"}, "labels:1: has a label"),
        ({"input": "empty"}, "empty: no usable pair"),
    ],
)
def test_mistakes_are_one_line(folder, values, message):
    """Nothing is written."""
    (folder / "labels").write_text("a\tb\tneutral\n")
    (folder / "empty").write_text("a\t\n")
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(UserError) as caught:
        _mine(**values)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    after = sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
    assert after == [name for name in before if name != "__pycache__"]
