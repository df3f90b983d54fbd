"""The readers: line ends, encodings, documents, and what each bad input is told."""

import gzip
import re
from dataclasses import replace

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import (
    Document,
    ReadOptions,
    ReadReport,
    expand_inputs,
    read_documents,
    reader_for,
)
from data_prep.readers.decoding import iter_lines
from official_cmlm.errors import UserError


def _lines(path, **arguments):
    report = ReadReport()
    return list(iter_lines(path, report, **arguments)), report


def _documents(path, **options):
    report = ReadReport()
    documents = list(read_documents([str(path)], ReadOptions(**options), report))
    assert report.documents == len(documents)
    return documents, report


def _reference(text: str) -> list[tuple[int, str]]:
    lines = re.split("\r\n|\r|\n", text.removeprefix("\ufeff"))
    if not lines[-1]:
        lines.pop()
    return list(enumerate(lines, 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    text=st.text(st.sampled_from("ab é語😀\u2028\x0c\x85\ufffd\ufeff\r\n\r\n")),
    chunk_bytes=st.integers(1, 40),
    compress=st.sampled_from([bytes, gzip.compress, zstandard.compress]),
    cut=st.integers(0, 20),
)
def test_lines_of_any_text(tmp_path, text, chunk_bytes, compress, cut):
    path = tmp_path / "any.txt"
    data = text.encode()
    # In two members or frames, as tools that compress in parallel write them.
    path.write_bytes(compress(data[:cut]) + compress(data[cut:]))
    lines, report = _lines(path, chunk_bytes=chunk_bytes)
    assert lines == _reference(text)
    assert (report.lines, report.bytes) == (len(lines), len(data))
    assert report.not_utf8 == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.lists(st.sampled_from(list(b"a\r\n\xe9\xc3\xa9\xe8\xaa\x9e\xff\xef\xbf\xbd"))).map(
        bytes
    ),
    chunk_bytes=st.integers(1, 9),
)
def test_lines_of_any_bytes(tmp_path, data, chunk_bytes):
    path = tmp_path / "any.txt"
    path.write_bytes(data)
    lines, report = _lines(path, chunk_bytes=chunk_bytes)
    text = data.decode(errors="replace")
    assert lines == _reference(text)
    own = data.count(b"\xef\xbf\xbd")
    assert sum(report.not_utf8.values()) == text.count("\ufffd") - own


def test_bad_utf8_is_counted_by_file(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"caf\xe9 \xff\nbien \xe8\xaa\n")
    lines, report = _lines(path)
    assert lines == [(1, "caf\ufffd \ufffd"), (2, "bien \ufffd")]
    assert report.warnings() == [f"{path}: 3 byte sequences were not UTF-8 and were replaced"]


def test_one_bad_sequence_is_singular(tmp_path):
    (tmp_path / "x.txt").write_bytes(b"\xff")
    _, report = _lines(tmp_path / "x.txt")
    assert report.warnings()[0].endswith("1 byte sequence was not UTF-8 and was replaced")


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_file_is_no_error(tmp_path, data):
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    lines, report = _lines(path)
    assert lines == []
    assert report.warnings() == [f"{path}: the file is empty"]


def test_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"none.txt: no such file; check --input"):
        _lines(tmp_path / "none.txt")


def test_directory(tmp_path):
    with pytest.raises(UserError, match="is a directory; name the files in it"):
        _lines(tmp_path)


def test_truncated_gzip_names_the_last_line(tmp_path):
    path = tmp_path / "x.gz"
    # Several deflate blocks, so that what is before the cut can be decompressed.
    path.write_bytes(gzip.compress(b"a line\n" * 3)[:-4])
    with pytest.raises(UserError, match="ends early after line 3; fetch the file again"):
        _lines(path)


def test_corrupt_gzip(tmp_path):
    path = tmp_path / "x.gz"
    data = bytearray(gzip.compress(b"a line\n" * 3))
    data[-6] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(UserError, match="is corrupt after line 3 .*; fetch the file again"):
        _lines(path)
    path.write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(UserError, match="is corrupt after line 0"):
        _lines(path)


@pytest.mark.parametrize("compressed", [False, True])
def test_nul_byte(tmp_path, compressed):
    path = tmp_path / "x.txt"
    data = b"fine\nbad\0"
    path.write_bytes(gzip.compress(data) if compressed else data)
    with pytest.raises(UserError, match=r"UTF-16 file \(NUL byte at byte 8\); convert it"):
        _lines(path, chunk_bytes=3)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 5, 100])
def test_long_line(tmp_path, chunk_bytes):
    path = tmp_path / "x.txt"
    path.write_bytes(b"12345\r\n12345\n")
    assert len(_lines(path, max_line_bytes=5, chunk_bytes=chunk_bytes)[0]) == 2
    path.write_bytes(b"1\n12345\n123456")
    message = "x.txt:3: the line is longer than 5 bytes; .* raise --max_line_mb"
    with pytest.raises(UserError, match=message):
        _lines(path, max_line_bytes=5, chunk_bytes=chunk_bytes)


TEXT = "One  two\nthree.\n\n\n Four.\n \t \nFive.\n"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["", " ", "\x0c", "one", " two  three ", "vier\xa0fünf", "六"])),
    st.sampled_from([64, 1 << 20]),
    st.sampled_from([12, 60, 1 << 20]),
)
def test_wrapped_books_by_hand(tmp_path_factory, lines, chunk, most):
    """Runs of lines that are not blank, whatever is read at a time and wherever a book is cut."""
    path = tmp_path_factory.getbasetemp() / "book.txt"
    path.write_text("\n".join(lines))
    expected, run = [], []
    for line in [*lines, ""]:
        run += line.split()
        if not line.strip() and run:
            expected.append(" ".join(run))
            run = []
    options = ReadOptions(documents_by="file", max_line_bytes=chunk, max_document_bytes=most)
    pieces = list(read_documents([str(path)], options, ReadReport()))
    assert [one.continues for one in pieces] == [i > 0 for i in range(len(pieces))]
    found = [paragraph for one in pieces for paragraph in one.paragraphs]
    if most == 1 << 20:
        assert found == expected and len(pieces) <= 1
    # A cut may fall into a paragraph.
    assert " ".join(found) == " ".join(expected)
    for one in pieces:
        held = sum(len(p.replace(" ", "").encode()) for p in one.paragraphs)
        assert held <= max(most, 12)


@pytest.mark.parametrize(
    "documents_by, lines, expected",
    [
        ("blank_line", "wrapped", [["One two three."], ["Four."], ["Five."]]),
        ("file", "wrapped", [["One two three.", "Four.", "Five."]]),
        ("blank_line", "paragraphs", [["One two", "three."], ["Four."], ["Five."]]),
        ("file", "sentences", [["One two", "three.", "Four.", "Five."]]),
    ],
)
def test_plain_text(tmp_path, documents_by, lines, expected):
    path = tmp_path / "x.txt"
    path.write_text(TEXT)
    documents, _ = _documents(path, documents_by=documents_by, lines=lines, language="fr")
    # Named by the byte at which they begin.
    starts = (0, 18, 29)
    assert documents == [
        Document(f"{path}#{start}", "fr", paragraphs) for start, paragraphs in zip(starts, expected)
    ]


@pytest.mark.parametrize("documents_by", ["blank_line", "file"])
@pytest.mark.parametrize("lines", ["wrapped", "paragraphs"])
def test_long_documents_come_in_pieces(tmp_path, documents_by, lines):
    path = tmp_path / "x.txt"
    words = [f"é{number:03d}" for number in range(100)]
    path.write_text("\n".join(words) + "\n\nlast\n")
    options = {"documents_by": documents_by, "lines": lines}
    documents, _ = _documents(path, **options, max_document_bytes=50)
    flat = " ".join(" ".join(document.paragraphs) for document in documents)
    assert flat.split() == [*words, "last"]
    assert len({document.id for document in documents}) == len(documents) > 10
    for document in documents:
        assert sum(len(text.replace(" ", "").encode()) for text in document.paragraphs) <= 50
    starts = [document for document in documents if not document.continues]
    assert len(starts) == (1 if documents_by == "file" else 2)
    assert documents[0] is starts[0]


def test_pieces_end_between_paragraphs_where_they_can(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("aaaa\naaaa\n\nbb\nbb\nbb\n")
    documents, _ = _documents(path, documents_by="file", max_document_bytes=12)
    assert [document.paragraphs for document in documents] == [["aaaa aaaa"], ["bb bb bb"]]
    assert [document.continues for document in documents] == [False, True]


def test_a_line_longer_than_a_piece(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a\nlonger\nb\n")
    documents, _ = _documents(path, max_document_bytes=2)
    assert [document.paragraphs for document in documents] == [["a"], ["longer"], ["b"]]


LAST = b'{"text": "caf\xe9 \\ud800."}'


def test_jsonl(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b'{"text": "One\\ntwo.\\n\\nThree.", "lang": "de", "id": "a"}\n\n'
        b'{"text": ["Four\\n five.", " "], "id": 7, "lang": null, "other": 1}\n'
        b'{"text": " \\n"}\n' + LAST
    )
    documents, report = _documents(path)
    assert documents == [
        Document("a", "de", ["One two.", "Three."]),
        Document("7", "en", ["Four five."]),
        Document(f"{path}#{path.read_bytes().index(LAST)}", "en", ["caf\ufffd \ufffd."]),
    ]
    assert report.empty_documents == 1
    assert report.not_utf8 == {str(path): 2}
    by_sentence, _ = _documents(path, lines="sentences")
    assert by_sentence[0].paragraphs == ["One", "two.", "Three."]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "not valid JSON .*; write one JSON object a line"),
        ("[" * 200_000, ".*nested too deeply"),
        ('{"text": "a", "id": ' + "1" * 5000 + "}", ".*a number too long"),
        ('["a"]', "not a JSON object"),
        ("{}", 'no "text"; every object needs one'),
        ('{"text": 1}', '"text" is not of the right type; make it a string or a list'),
        ('{"text": ["a", 1]}', '"text" is not of the right type'),
        ('{"text": null}', '"text" is not of the right type'),
        ('{"text": "a", "lang": 1}', '"lang" is not of the right type; make it a string'),
        ('{"text": "a", "id": true}', '"id" is not of the right type; make it a string or'),
    ],
)
def test_bad_jsonl(tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "Fine."}\n' + line + "\n")
    with pytest.raises(UserError, match=f"x.jsonl:2: {message}") as caught:
        _documents(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("jsonl", ("a.jsonl", "a.JSONL", "a.jsonl.gz", "a.jsonl.zst", "a.json.gz", "a.json.zst")),
        ("text", ("a.txt", "a.json", "a.gz", "jsonl", "gs://b/warc", "a.zst")),
        ("wet", ("CC-MAIN-1.warc.wet.gz", "a.wet", "gs://b/a.WET.zst")),
        ("warc", ("CC-MAIN-1.warc.gz", "a.warc")),
        ("docstrings", ("a.py", "a.py.gz")),
        ("tfds", ("tfds:wikipedia/20230601.en", "tfds:a.jsonl")),
    ],
)
def test_reader_for(name, paths):
    """By name, or by the extension below that of the compression."""
    assert {reader_for(path) for path in paths} == {reader_for("x", name)}


def test_reader_with_no_such_name():
    with pytest.raises(UserError, match="'csv'; choose one of auto, text, jsonl, wet, warc"):
        reader_for("a.csv", "csv")


def test_docstrings_of_a_file(tmp_path):
    """The reader of source files: the same prose as the corpus, a file at a time."""
    prose = "This is the first sentence of it. And this is the second one, which is a bit longer."
    (tmp_path / "a.py").write_text(
        f'"""{prose}"""\nclass A:\n    def f(self):\n        """{prose}"""\n'
    )
    documents, _ = _documents(tmp_path / "a.py", language="fr")
    path = f"{tmp_path}/a.py"
    assert documents == [Document(path, "en", [prose]), Document(f"{path}:A.f", "en", [prose])]
    (tmp_path / "a.py").write_text(f'"""{prose}"""\nclass:\n')
    with pytest.raises(UserError, match="a.py: is not Python source"):
        _documents(tmp_path / "a.py")
    (tmp_path / "a.py").write_text(f'"""{prose}"""\n')
    with pytest.raises(UserError, match="a.py: is larger than 9 bytes; raise --max_line_mb"):
        _documents(tmp_path / "a.py", max_line_bytes=9)


def test_expand_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "[c].txt", "d/e/f.txt", "d/.hidden", ".git/g", "empty/.keep"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert expand_inputs(["b.txt", "*.txt", "./a.txt"]) == ["b.txt", "[c].txt", "a.txt"]
    assert expand_inputs(["[c].txt"]) == ["[c].txt"]
    assert expand_inputs(["d"]) == ["d/e/f.txt"]
    assert expand_inputs(["d", "b.txt"], ".txt") == ["d/e/f.txt", "b.txt"]
    with pytest.raises(UserError, match="d: no .py files in this directory"):
        expand_inputs(["d"], ".py")
    assert expand_inputs(["**/*.txt"]) == ["[c].txt", "a.txt", "b.txt", "d/e/f.txt"]
    assert expand_inputs(["."]) == ["./[c].txt", "./a.txt", "./b.txt", "./d/e/f.txt"]
    for patterns, message in (
        (["none*"], r"none\*: no such file, and nothing matches"),
        (["d*"], "matches only directories"),
        (["empty"], "no files in this directory"),
        ([""], "superfluous comma"),
        ([], "no input is given"),
    ):
        with pytest.raises(UserError, match=message):
            expand_inputs(patterns)


def test_bad_options():
    good = ReadOptions()
    with pytest.raises(UserError, match="lines is 'x'; choose one of wrapped, paragraphs"):
        replace(good, lines="x")
    for name in ("documents_by", "on_error"):
        with pytest.raises(UserError, match=f"{name} is 'x'"):
            replace(good, **{name: "x"})
    with pytest.raises(UserError, match="max_line_bytes is 0; give a positive number"):
        replace(good, max_line_bytes=0)
