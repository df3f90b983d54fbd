"""Moses pairs, NLI as published, triples and tables: their texts, and their faults."""

import csv
import gzip
import io
import json

import pyarrow.parquet
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import Counts, ReadOptions
from data_prep.readers.pairs import PairInput, inputs_of
from official_cmlm.common.errors import UserError

_FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def _read(paths, form, languages="en-de", columns=None, **options):
    """Returns the pairs and the counts of one input; commas divide its files and its languages."""
    (source,) = inputs_of(str(paths).split(","), languages.split(","), form, columns)
    report = Counts()
    return list(source.read(report, False, ReadOptions(**options))), report


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["{x}\tb\tc", "d\te"], [("{x}", "b"), ("d", "e")]),
        ([' {"anchor": "a\\tb", "positive": "c"}'], [("a b", "c")]),
    ],
)
def test_tables_of_triples_may_begin_with_a_brace(tmp_path, lines, texts):
    """JSON lines begin with one too, but have no tab."""
    (tmp_path / "t").write_text("\n".join(lines))
    pairs_read, _ = _read(tmp_path / "t", "triples", "en")
    assert [pair.texts for pair in pairs_read] == texts


def test_moses_pairs(tmp_path):
    """The beginning of two names, with or without an ending of compression."""
    (tmp_path / "corpus.en").write_text("one\ntwo\n")
    (tmp_path / "corpus.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    pairs_read, _ = _read(tmp_path / "corpus", "moses")
    assert [pair.texts for pair in pairs_read] == [("one", "eins"), ("two", "zwei")]
    assert inputs_of([f"{tmp_path}/corpus"], ["en-de"], "moses") == [
        PairInput((f"{tmp_path}/corpus.en", f"{tmp_path}/corpus.de.gz"), ("en", "de"))
    ]
    with pytest.raises(UserError, match=r"corpus.fr: no such file, nor with .gz or .zst"):
        inputs_of([f"{tmp_path}/corpus"], ["en-fr"], "moses")


_ROWS = [
    ("A  man sleeps.", "A man is awake.", "contradiction"),
    ('"Quoted" text', "It's quoted.", "entailment"),
    ("No agreement.", "None.", "-"),
]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("form", ["table", "lines"])
def test_inference(tmp_path, form, compress):
    """Columns by name among others, or keys; quotes are text."""
    if form == "table":
        lines = ["gold_label\tsentence1_parse\tsentence1\tsentence2\tpairID"]
        lines += [f"{label}\t( x )\t{a}\t{b}\t1" for a, b, label in _ROWS]
    else:
        keys = ("sentence1", "sentence2", "gold_label")
        lines = [json.dumps(dict(zip(keys, row)) | {"pairID": 1, "labels": ["x"]}) for row in _ROWS]
    path = tmp_path / "nli"
    path.write_bytes(compress("\r\n".join([*lines, ""]).encode()))
    pairs_read, _ = _read(path, "nli", "en")
    assert [(*pair.texts, pair.label) for pair in pairs_read] == [
        (" ".join(a.split()), b, label) for a, b, label in _ROWS
    ]
    assert {pair.languages for pair in pairs_read} == {("en", "en")}
    assert pairs_read[0].where == f"{path}:{2 if form == 'table' else 1}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tneutral\n", "nli:1: no 'sentence1'; --format=nli needs sentence1, sentence2, gold"),
        ("sentence1\tsentence2\tgold_label\na\tb\n", "nli:2: 2 columns, but the first line names"),
        ('{"sentence1": "a", "sentence2": "b"}', "nli:1: no 'gold_label'"),
        ('{"sentence1": "a", "sentence2": 1, "gold_label": "-"}', 'nli:1: "sentence2" is not of'),
        ('{"sentence1": ', "nli:1: not valid JSON"),
    ],
)
def test_bad_inference(tmp_path, text, message):
    (tmp_path / "nli").write_text(text)
    with pytest.raises(UserError, match=message):
        _read(tmp_path / "nli", "nli", "en")


_TABLE = [
    {"premise": 'A "cat",\n sits.', "id": 1, "claim": "It sits.", "label": "entailment", "no": "x"},
    {"premise": "漢字", "id": 2, "claim": "B.", "label": "neutral", "no": None},
]


@pytest.mark.parametrize("form", ["csv", "tsv.gz", "jsonl.zst", "json", "parquet"])
def test_tables_with_names(tmp_path, form):
    """Each format that `cmlm embed` reads, with its columns in any order and among others."""
    path, text = tmp_path / f"a.{form}", io.StringIO()
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(_TABLE), path)
    elif form.startswith("json"):
        text.write(json.dumps(_TABLE) if form == "json" else "\n".join(map(json.dumps, _TABLE)))
    else:
        table = csv.DictWriter(text, list(_TABLE[0]), delimiter="\t" if "tsv" in form else ",")
        table.writeheader()
        table.writerows(_TABLE)
    if form != "parquet":
        compress = {"gz": gzip.compress, "zst": zstandard.compress}.get(form.split(".")[-1], bytes)
        path.write_bytes(compress(text.getvalue().encode()))
    columns = {"first": "claim", "second": "premise", "label": "label", "negative": "no"}
    (first, second), report = _read(path, "table", "en-de", columns)
    assert first.texts == ("It sits.", 'A "cat", sits.') and first.languages == ("en", "de")
    assert (first.label, first.negative) == ("entailment", "x")
    assert (second.texts, second.label, second.negative) == (("B.", "漢字"), "neutral", None)
    assert report.files == 1 and (report.bytes or form == "parquet")
    for wrong, message in ((("claim", "x"), "no column 'x', it has prem"), (("id", "no"), '"id" ')):
        if wrong[0] == "id" and form.startswith(("csv", "tsv")):
            continue
        with pytest.raises(UserError, match=message):
            _read(path, "table", "en", dict(zip(columns, wrong)))
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UserError, match="a.txt:1: a text, which has no columns"):
        _read(tmp_path / "a.txt", "table", "en", columns)


# Separators that Python, but no file of lines, would end a line at.
_LINE = st.text("ab \u00a0\u2028\u0085\x0b漢😀", max_size=8)


@_FEW
@given(pairs=st.lists(st.tuples(_LINE, _LINE), min_size=1, max_size=8), crlf=st.booleans())
def test_aligned_lines(tmp_path, pairs, crlf):
    """Line i of one file goes with line i of the other, with any white space in them."""
    for side, name in enumerate(("a", "b")):
        end = "\r\n" if crlf else "\n"
        data = "".join(pair[side] + end for pair in pairs)
        (tmp_path / name).write_bytes(data.encode())
    result, report = _read(f"{tmp_path}/a,{tmp_path}/b", "lines", "en,zh-Hans")
    assert [pair.texts for pair in result] == [
        tuple(" ".join(text.split()) for text in pair) for pair in pairs
    ]
    assert {pair.languages for pair in result} == {("en", "zh-Hans")}
    assert [pair.where for pair in result] == [f"{tmp_path}/a:{i + 1}" for i in range(len(pairs))]
    assert all(pair.label is None for pair in result)
    assert report.files == 2 and report.lines == 2 * len(pairs)


def test_table(tmp_path):
    """Two texts and a label in each line, or no label; white space is made one space."""
    (tmp_path / "t").write_text("A  cat\tan\u00a0animal \t neutral \nx\ty\tentailment\n")
    (first, second), _ = _read(tmp_path / "t", "tsv", "de")
    assert first.texts == ("A cat", "an animal") and first.label == "neutral"
    assert first.languages == ("de", "de") and first.where == f"{tmp_path}/t:1"
    assert (second.texts, second.label) == (("x", "y"), "entailment")
    (tmp_path / "t").write_text("x\t y\n")
    ((plain,), _) = _read(tmp_path / "t", "tsv")
    assert plain.texts == ("x", "y") and plain.label is None
    assert plain.languages == ("en", "de")
