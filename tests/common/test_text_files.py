"""`text_files`: every format gives the same rows; faults are one line that says what is there."""

import csv
import gzip
import io
import json
import tracemalloc

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from official_cmlm.common import text_files
from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import Reading, read_rows

RECORDS = [
    {"id": "a1", "body": 'a "quoted", cell\nof two lines', "stars": 3},
    {"id": "b,2", "body": "Zweite Zeile mit Ümläuten 🐈", "stars": 5},
    {"id": "c", "body": " ", "stars": 0},
]


def contents(form):
    """Returns the records as bytes of a format, by libraries that write it."""
    if form in ("csv", "tsv"):
        file = io.StringIO(newline="")
        writer = csv.DictWriter(file, list(RECORDS[0]), delimiter="\t" if form == "tsv" else ",")
        writer.writeheader()
        writer.writerows(RECORDS)
        return b"\xef\xbb\xbf" + file.getvalue().encode()
    if form == "jsonl":
        return "\n\n".join(map(json.dumps, RECORDS)).encode()
    if form == "json":
        return json.dumps(RECORDS, ensure_ascii=False, indent=1).encode()
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), file, row_group_size=2)
    return file.getvalue()


def rows_of(path, **reading):
    return list(read_rows(str(path), Reading(**reading)))


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_all_formats_give_the_same_rows(tmp_path, form, packed):
    path, data = tmp_path / f"a.{form}{packed}", contents(form)
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[packed]
    path.write_bytes(pack(data))
    rows = rows_of(path, column="body", id_column="id", keep=True, on_missing="empty")
    assert [row.missing for row in rows] == [False, False, True]
    assert [(row.id, row.text) for row in rows] == [(r["id"], r["body"]) for r in RECORDS]
    others = [row.others for row in rows]
    tables = form in ("csv", "tsv")
    assert others == [{"stars": str(r["stars"]) if tables else r["stars"]} for r in RECORDS]
    first = {"csv": [2, 4, 5], "tsv": [2, 4, 5], "jsonl": [1, 3, 5]}.get(form, [1, 2, 3])
    assert [row.number for row in rows] == first and {row.path for row in rows} == {str(path)}
    if packed and form != "parquet":
        path.write_bytes(pack(data)[:-5])
        with pytest.raises(UserError, match="stream ends early after row"):
            rows_of(path, column="body", on_missing="skip")


def test_addresses(tmp_path):
    """A file system of fsspec, with a file that is compressed."""
    with fsspec.open("memory://rows/a.csv.gz", "wb") as file:
        file.write(gzip.compress(contents("csv")))
    with fsspec.open("memory://rows/b.txt", "wb") as file:
        file.write(b"one\r\n\ntwo")
    (tmp_path / "c.txt").write_text("three")
    paths = ["memory://rows/a.csv.gz", "memory://rows/b.txt", str(tmp_path / "c.txt")]
    reading = {"column": "body", "id_column": "id", "on_missing": "empty"}
    ids = [row.id for row in rows_of(paths[0], **reading)]
    assert ids == ["a1", "b,2", "c"]
    rows = [(row.text, row.number) for row in rows_of(paths[1])]
    assert rows == [("one", 1), ("", 2), ("two", 3)]
    sizes = [text_files.file_state(path)[0] for path in paths]
    assert sizes == [len(gzip.compress(contents("csv"))), 9, 5]


def test_the_text_is_found_without_a_name(tmp_path):
    for name, content, texts in (
        ("a.csv", "text,label\na,1\n", ["a"]),
        ("b.csv", 'sentence\na\n\n"b,c"\n', ["a", "b,c"]),
        ("c.json", '["x", "y"]', ["x", "y"]),
        ("d.jsonl", '"x"\n{"text": "y\\ud800"}\n', ["x", "y\ufffd"]),
    ):
        (tmp_path / name).write_text(content)
        assert [row.text for row in rows_of(tmp_path / name)] == texts
    assert [row.mended for row in rows_of(tmp_path / "d.jsonl")] == [False, True]


@pytest.mark.parametrize(
    "name, content, reading, says",
    [
        ("a.csv", b"id,body\n1,a\n", {}, "no column 'text', it has id, body; name one by --colu"),
        ("a.csv", b"id,body\n1,a\n", {"column": "x"}, r"no column 'x', it has id, body"),
        ("a.csv", b"text\na\n", {"id_column": "i"}, r"no column 'i', it has text; .*--id_column"),
        ("a.csv", b"text,text\na,b\n", {}, r"two columns 'text'"),
        ("a.csv", b"id;text\n1;a\n", {}, r"header 'id;text' is one cell"),
        ("a.csv", b"id,text\n1,a\n2,b,c\n", {}, r"a.csv:3: 3 cells, but the header has 2"),
        ("a.csv", b'text\na\n"b\n', {}, r"a.csv:3: not CSV \(unexpected end of data\)"),
        ("a.csv", b'text,x\n"a"b,c\n', {}, r"a.csv:2: not CSV"),
        (
            "a.csv",
            b'text\n"' + (b"a" * 999 + b"\n") * 17000,
            {},
            r"a.csv:2: not CSV \(a row of more",
        ),
        ("a.csv", b"text\nM\xfcller\n", {}, r"a.csv:2: not UTF-8 at byte 1 .*WINDOWS-1252"),
        ("a.csv", "text\na\n".encode("utf-16"), {}, "UTF-16; convert it"),
        ("a.csv", b"", {}, "empty; a table begins with the names"),
        ("a.txt", b"a\nb\xff\n", {}, "a.txt:2: not UTF-8"),
        ("a.txt", b"a" * ((1 << 24) + 1), {}, "a.txt:1: a line of more than 16 MiB"),
        ("a.txt", b"a", {"column": "text"}, "leave out --column"),
        ("a.txt", b"a", {"id_column": "id"}, "leave out --id_column"),
        ("a.txt", b"a", {"keep": True}, "leave out --keep_columns"),
        ("a.pdf", b"a", {}, r"does not tell a format; known are .txt, .csv"),
        ("a.txt.gz", b"a", {}, "not compressed as its name says"),
        ("a.jsonl", b'{"text": "a"}\n{"text"', {}, "a.jsonl:2: not valid JSON"),
        ("a.jsonl", b"[1]", {}, "a.jsonl:1: not a JSON object"),
        ("a.jsonl", b'{"body": "a"}', {}, "no column 'text', it has body"),
        ("a.jsonl", b'{"text": ["a"]}', {}, r"'text' is not a string but \['a'\]"),
        ("a.jsonl", b'{"text": null}', {}, "a.jsonl:1: no text in 'text'; .*--on_missing=skip"),
        ("a.csv", b"id,text\n1,a\n2,\n", {}, "a.csv:3: no text in 'text'; .*--on_missing=empty"),
        ("a.json", b'["a", ""]', {}, "a.json: item 2: no text; leave such rows out"),
        ("a.jsonl", b'{"text": "a"}\n{"b": "a"}', {}, "a.jsonl:2: no column.*--on_missing=skip"),
        ("a.jsonl", b'{"b": "a"}\n', {"on_missing": "skip"}, "a.jsonl: no object has 'text'"),
        ("a.csv", b"b,c\n1,a\n", {"on_missing": "skip"}, "no column 'text', it has b, c"),
        ("a.jsonl", b'{"text": "a", "id": true}', {"id_column": "id"}, "'id' must be a string"),
        ("a.jsonl", b'"a"', {"column": "text"}, "a string, which has no columns"),
        ("a.json", b'{"rows": []}', {}, "holds an object of rows; write a list"),
        ("a.json", b'{"text": "a"}\n{"text": "b"}', {}, "of lines, --format=jsonl"),
        ("a.parquet", b"PAR1", {}, "damaged"),
    ],
)
def test_a_fault_is_one_line(tmp_path, name, content, reading, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=says):
        rows_of(tmp_path / name, **reading)


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "parquet"])
def test_a_missing_text_is_the_same_in_all_formats(tmp_path, form):
    """A null or blank one; JSON objects may also lack it. A word such as NA is a text."""
    texts, path = ["NA", None, " ", "", "b"], tmp_path / f"a.{form}"
    if form == "csv":
        path.write_text("id,text\n" + "".join(f"{i},{t or ''}\n" for i, t in enumerate(texts)))
    elif form == "parquet":
        pq.write_table(pa.table({"id": range(5), "text": texts}), path)
    else:
        rows = [{"id": i, "text": text} for i, text in enumerate(texts)]
        del rows[1]["text"]
        lines = map(json.dumps, rows)
        path.write_text("\n".join(lines) if form == "jsonl" else f"[{','.join(lines)}]")
    rows = rows_of(path, id_column="id", on_missing="empty")
    assert [row.text.strip() for row in rows] == ["NA", "", "", "", "b"]
    assert [row.missing for row in rows] == [False, True, True, True, False]
    reading = Reading(on_missing="skip")
    assert [reading.leaves_out(row) for row in rows] == [row.missing for row in rows]
    with pytest.raises(UserError, match="on_missing=skip"):
        rows_of(path, id_column="id")


def test_parquet_of_other_types(tmp_path):
    """Dates become text, binary and nested columns are left out, bytes must be UTF-8."""
    path = tmp_path / "a.parquet"
    table = pa.table(
        {
            "text": pa.array(["a", "b"]).dictionary_encode(),
            "day": pa.array([0, None], pa.date32()),
            "tags": [["x"], []],
            "image": [b"1", b"2"],
            "score": pa.array([0.5, None], pa.float32()),
        }
    )
    pq.write_table(table, path)
    rows = rows_of(path, keep=True)
    assert [row.text for row in rows] == ["a", "b"]
    assert rows[0].others == {"day": "1970-01-01", "score": 0.5}
    assert rows[1].others == {"day": None, "score": None}
    with pytest.raises(UserError, match="'score' is not a string but 0.5; it has"):
        rows_of(path, column="score")
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")]
    )
    pq.write_table(pa.table({"text": broken}), path)
    with pytest.raises(UserError, match="not UTF-8 after row 0"):
        rows_of(path)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_parquet_of_other_encodings(tmp_path, encoding, kind):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": pa.array(["a", "b", None, "b"], kind), "id": [1, 2, 3, 4]})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"text": encoding})
    rows = read_rows(str(path), Reading(id_column="id"))
    assert [(next(rows).text, next(rows).id)] == [("a", "2")]
    with pytest.raises(UserError, match="row 3: no text in 'text'"):
        next(rows)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"text": pa.array([b"a"])}, "its column 'text' has the type binary, which is not text"),
        ({"text": pa.array([b"a"], pa.binary(1))}, "type fixed_size_binary"),
        ({"text": pa.array([b"a"], pa.binary_view())}, "type binary_view"),
        ({"text": pa.array([["a"]])}, "type list"),
        ({"text": pa.array(["a"]), "text.more": pa.array([b"a"])}, "'text.more' has the type"),
        ({"text": pa.array([1]), "a": pa.array(["a"]), "a ": pa.array(["a"])}, "two columns 'a'"),
    ],
)
def test_parquet_columns_are_refused_before_they_are_read(tmp_path, columns, says):
    """The data of these files are gone."""
    path = tmp_path / "a.parquet"
    table = pa.table(columns)
    pq.write_table(table.rename_columns([name.strip() for name in columns]), path)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    path.write_bytes(b"PAR1" + bytes(start - 4) + content[start:])
    with pytest.raises(UserError, match=says):
        rows_of(path, keep="a" in columns)


def test_parquet_that_repeats_the_value_before(tmp_path, monkeypatch):
    """As many rows are read at once as can be held, whatever they expand to."""
    monkeypatch.setattr(text_files, "_BATCH_BYTES", 1 << 22)
    path = tmp_path / "a.parquet"
    options = {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}}
    pq.write_table(pa.table({"text": ["x" * (1 << 20)] * 32}), path, **options)
    before, peak, number = pa.total_allocated_bytes(), 0, 0
    for row in read_rows(str(path), Reading()):
        number, peak = row.number, max(peak, pa.total_allocated_bytes() - before)
    assert number == 32 and peak < 1 << 24


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()])
def test_small_files_that_expand_are_bounded(tmp_path, monkeypatch, kind):
    """A value that stands for thousands is held once; what expands a hundred times is not read."""
    path = tmp_path / "a.parquet"
    if kind == pa.string_view():
        view = np.array([1 << 20, int.from_bytes(b"xxxx"), 0, 0], np.int32)
        views, text = pa.py_buffer(np.tile(view, 200)), pa.py_buffer(b"x" * (1 << 20))
        once = pa.Array.from_buffers(kind, 200, [None, views, text])
    else:
        once = pa.DictionaryArray.from_arrays(np.zeros(200, int), ["x" * (1 << 20)])
    options = {"compression": "zstd", "write_statistics": False}
    options |= {"dictionary_pagesize_limit": 1 << 30}
    pq.write_table(pa.table({"text": once}), path, store_schema=kind != pa.string(), **options)
    assert path.stat().st_size < 1000
    before, peak, number = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for row in read_rows(str(path), Reading()):
        number = row.number
        peak = max(peak, pa.total_allocated_bytes() - before + len(row.text))
    assert number == 200 and peak + tracemalloc.get_traced_memory()[1] < 1 << 25
    tracemalloc.stop()
    monkeypatch.setattr(text_files, "BOMB_BYTES", 1 << 20)
    table = pa.table({"text": ["x" * (1 << 20)] * 3})
    pq.write_table(table, path, use_dictionary=False, **options)
    with pytest.raises(UserError, match="its column text expands to 3 MiB"):
        rows_of(path)
    for suffix, pack in ((".gz", gzip.compress), (".zst", zstandard.ZstdCompressor().compress)):
        bomb = tmp_path / f"b.txt{suffix}"
        bomb.write_bytes(pack(b"\n".rjust(1024) * (3 << 10)))
        with pytest.raises(UserError, match="expands to more than .* bytes and 100 times its size"):
            rows_of(bomb)
