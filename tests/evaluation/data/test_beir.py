"""BEIR's and NanoBEIR's files, as they are downloaded and as somebody damaged them."""

import json
import resource
import sys

import pyarrow
import pytest
from pyarrow import parquet

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData
from tests.evaluation import toy

DOCUMENTS = [
    {"_id": "4983", "title": "Cats", "text": "They sleep.", "metadata": {}},
    {"_id": "MED-10", "title": "", "text": "Dogs bark.", "metadata": {"url": "x"}},
    {"_id": "a b", "text": "No title."},
]
QUERIES = [{"_id": "1", "text": "Who sleeps?", "metadata": {}}, {"_id": "3", "text": "Who barks?"}]
JUDGEMENTS = ["query-id\tcorpus-id\tscore", "1\t4983\t1", "3\tMED-10\t2", "3\ta b\t0"]


def _lines(path, rows):
    toy.write(path, [row if isinstance(row, str) else json.dumps(row) for row in rows])


@pytest.fixture
def folder(tmp_path):
    """The data set that the tests change."""
    _lines(tmp_path / "corpus.jsonl", DOCUMENTS)
    _lines(tmp_path / "queries.jsonl", QUERIES)
    toy.write(tmp_path / "qrels/test.tsv", JUDGEMENTS)
    return tmp_path


def _read(folder, split="test"):
    return beir.read(DataFolder(folder), folder, split)


def _nano(folder, scores=False):
    """Writes NanoBEIR's files: one parquet file a part, split `train`."""
    name = "train-00000-of-00001.parquet"
    tables = {
        "corpus": {"_id": ["d1", "d2"], "text": ["Cats sleep.", "Dogs bark."]},
        "queries": {"_id": ["q1"], "text": ["Who sleeps?"]},
        "qrels": {"query-id": ["q1", "q1"], "corpus-id": ["d1", "d2"]},
    }
    if scores:
        tables["qrels"]["score"] = [0, 3]
    for part, columns in tables.items():
        (folder / part).mkdir(parents=True)
        parquet.write_table(pyarrow.table(columns), folder / part / name)
    return folder


def test_beir(folder):
    """Title and text joined by a space, judged queries only, scores as they are, checksums kept."""
    _lines(folder / "queries.jsonl", [*QUERIES, {"_id": "9", "text": "Nobody judged this."}])
    data = DataFolder(folder)
    collection = beir.read(data, folder, "test")
    assert collection.documents == {
        "4983": "Cats They sleep.",
        "MED-10": "Dogs bark.",
        "a b": "No title.",
    }
    assert collection.queries == {"1": "Who sleeps?", "3": "Who barks?"}
    assert collection.judgements == {"1": {"4983": 1}, "3": {"MED-10": 2, "a b": 0}}
    assert collection.notes == []
    assert set(data.files) == {"corpus.jsonl", "queries.jsonl", "qrels/test.tsv"}


def test_nano_beir(tmp_path):
    """Parquet files without scores: all judged documents are relevant; `train` is the test set."""
    collection = _read(_nano(tmp_path / "NanoX"))
    assert collection.documents == {"d1": "Cats sleep.", "d2": "Dogs bark."}
    assert collection.queries == {"q1": "Who sleeps?"}
    assert collection.judgements == {"q1": {"d1": 1, "d2": 1}}
    assert collection.notes == ["judgements are those of train, the only ones, as in NanoBEIR"]
    assert _read(_nano(tmp_path / "scored", True)).judgements == {"q1": {"d1": 0, "d2": 3}}
    with pytest.raises(MissingData, match="judgements of train"):
        _read(tmp_path / "NanoX", "dev")


def test_judgements_of_mteb(folder):
    """JSON lines, numbers as ids, `validation` for development data."""
    (folder / "qrels/test.tsv").unlink()
    _lines(folder / "qrels/validation.jsonl", [{"query-id": 1, "corpus-id": 4983, "score": 2.0}])
    assert _read(folder, "dev").judgements == {"1": {"4983": 2}}


def test_line_ends_and_byte_order_marks(folder):
    """Data of other systems."""
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    collection = _read(folder)
    assert len(collection.documents) == 3 and collection.judgements["3"] == {"MED-10": 2, "a b": 0}
    assert collection.notes == []


def test_malformed_lines_are_counted(folder):
    """No JSON, no object, no id, no text, bad bytes; the others are read."""
    bad = ["{", "[1]", '"text"', "[" * 5000, '{"text": "x"}', '{"_id": "x"}', '{"_id": null}']
    bad += ['{"_id": true, "text": "x"}', '{"_id": "x", "text": 3}']
    bad += ['{"_id": "x", "text": "y", "title": ["z"]}']
    _lines(folder / "corpus.jsonl", [DOCUMENTS[0], *bad, "", *DOCUMENTS[1:]])
    with (folder / "corpus.jsonl").open("ab") as file:
        file.write(b'{"_id": "x", "text": "\xff"}\n')
    toy.write(folder / "qrels/test.tsv", [*JUDGEMENTS, "1", "1\t4983\tgood", "1\t4983\t0.5", '"'])
    collection = _read(folder)
    assert len(collection.documents) == 3 and collection.judgements["1"] == {"4983": 1}
    assert collection.notes == [
        "4 of 7 judgements are malformed; left out",
        f"{len(bad) + 1} of {len(bad) + 4} entries of corpus are malformed; left out",
    ]


def test_unknown_ids_are_counted(folder):
    """A judged document that is not there counts, as in BEIR; a query that is not, does not."""
    toy.write(folder / "qrels/test.tsv", [*JUDGEMENTS, "1\tlost\t1", "8\t4983\t1"])
    collection = _read(folder)
    assert collection.judgements == {"1": {"4983": 1, "lost": 1}, "3": {"MED-10": 2, "a b": 0}}
    assert collection.notes == [
        "1 of 3 judged queries are not in queries; left out",
        "1 of 4 judged documents are not in the corpus; they count as not found",
    ]


def test_empty_and_repeated_documents(folder):
    """Empty ones stay candidates; of equal ids the last counts."""
    again = {"_id": "4983", "title": "Lions", "text": "They roar."}
    _lines(folder / "corpus.jsonl", [*DOCUMENTS, {"_id": "e", "title": " ", "text": ""}, again])
    collection = _read(folder)
    assert collection.documents["e"] == "" and collection.documents["4983"] == "Lions They roar."
    assert collection.notes == [
        "1 of 5 entries of corpus repeat an id; the last one counts",
        "1 of 4 documents are empty; they stay in",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "corpus.jsonl",
            '{"id": "1", "contents": "x"}\n',
            "of corpus with _id and text .*contents",
        ),
        ("corpus.jsonl", "", "corpus is empty"),
        ("queries.jsonl", "1\tWho?\n", "no entry of queries with _id and text"),
        ("queries.jsonl", '{"_id": "7", "text": "x"}\n', "none of the 2 judged queries"),
        ("qrels/test.tsv", "1 0 4983 1\n", "'1 0 4983 1'; known is a header query-id, corpus-id"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\t4983\n", "no judgement of test"),
        ("qrels/test.tsv", "", "known is a header"),
        *((name, None, f"{name}: missing; ") for name in ("corpus.jsonl", "queries.jsonl")),
        ("qrels/test.tsv", None, "qrels/test.tsv: missing; "),
    ],
)
def test_unknown_forms_and_missing_files(folder, name, content, message):
    """One line: what was found, which form is known; a missing file is told apart."""
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(UserError if content is not None else MissingData, match=message) as caught:
        _read(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"_id": ["d1"], "text": [b"Cats."]}, "corpus.*column 'text' has the type binary"),
        ({"name": ["d1"]}, "corpus.*no column of _id, id, title, text.*, it has name"),
    ],
)
def test_other_parquet_files(tmp_path, table, message):
    (path,) = (_nano(tmp_path) / "corpus").glob("*.parquet")
    parquet.write_table(pyarrow.table(table), path)
    with pytest.raises(UserError, match=message):
        _read(tmp_path)


def test_parquet_files_that_expand(tmp_path):
    """A text that stands for thousands, which all would be held."""
    (path,) = (_nano(tmp_path) / "corpus").glob("*.parquet")
    texts = pyarrow.DictionaryArray.from_arrays([0] * 4096, ["x" * (1 << 20)])
    table = pyarrow.table({"_id": list(map(str, range(4096))), "text": texts})
    parquet.write_table(table, path, compression="zstd", write_statistics=False)
    assert path.stat().st_size < 20_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="row 256: texts of 256 Mi characters and 100 times"):
        _read(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 19


def test_collections_of_a_folder(tmp_path):
    """Data sets with parts, other folders, and a data folder that is one data set."""
    assert beir.collections_in(tmp_path) == {}
    for name in ("beir/scifact", "beir/cqadupstack/android", "beir/scifact/copy"):
        _lines(tmp_path / name / "corpus.jsonl", DOCUMENTS)
    _nano(tmp_path / "nanobeir/NanoX")
    toy.write(tmp_path / "beir/README/notes", ["x"])
    root = tmp_path / "beir"
    folders = {"cqadupstack/android": root / "cqadupstack/android", "scifact": root / "scifact"}
    assert beir.collections_in(tmp_path) == folders | {"NanoX": tmp_path / "nanobeir/NanoX"}
    assert beir.collections_in(root) == folders
    assert beir.collections_in(root / "scifact") == {"scifact": root / "scifact"}


def test_without_pyarrow(tmp_path, monkeypatch):
    """Only parquet files need it; the line says what to install."""
    folder = _nano(tmp_path / "NanoX")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pyarrow is not installed.*\[parquet\]"):
        _read(folder)
