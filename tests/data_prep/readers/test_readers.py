"""The readers: documents of text and of JSON lines, and what each bad input is told."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.readers import (
    Counts,
    Document,
    ReadOptions,
    expand_inputs,
    get_stored_size,
    read_documents,
    reader_for,
)
from official_cmlm.common.errors import UserError


def _documents(path, **options):
    report = Counts()
    documents = list(read_documents([str(path)], ReadOptions(**options), report))
    assert report.documents_read == len(documents)
    return documents, report


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
    pieces = list(read_documents([str(path)], options, Counts()))
    assert [piece.continues for piece in pieces] == [i > 0 for i in range(len(pieces))]
    paragraphs_read = [paragraph for piece in pieces for paragraph in piece.paragraphs]
    if most == 1 << 20:
        assert paragraphs_read == expected and len(pieces) <= 1
    # A cut may fall into a paragraph.
    assert " ".join(paragraphs_read) == " ".join(expected)
    for piece in pieces:
        held = sum(len(p.replace(" ", "").encode()) for p in piece.paragraphs)
        assert held <= max(most, 12)


@pytest.mark.parametrize(
    "documents_by, lines, expected",
    [
        ("blank_line", "wrapped", [["One two three."], ["Four."], ["Five."]]),
        ("file", "wrapped", [["One two three.", "Four.", "Five."]]),
        ("blank_line", "paragraphs", [["One two", "three."], ["Four."], ["Five."]]),
        ("file", "sentences", [["One two", "three.", "Four.", "Five."]]),
        ("line", "sentences", [["One two"], ["three."], ["Four."], ["Five."]]),
        ("line", "wrapped", [["One two"], ["three."], ["Four."], ["Five."]]),
    ],
)
def test_plain_text(tmp_path, documents_by, lines, expected):
    path = tmp_path / "x.txt"
    path.write_text(TEXT)
    documents, _ = _documents(path, documents_by=documents_by, lines=lines, language="fr")
    # Named by the byte at which they begin.
    starts = (0, 9, 18, 29) if documents_by == "line" else (0, 18, 29)
    assert [dataclasses.replace(document, line="") for document in documents] == [
        Document(f"{path}#{start}", "fr", paragraphs) for start, paragraphs in zip(starts, expected)
    ]
    # Lines keep their own white space, for exact duplicates.
    written = ["".join(document.line.split()) for document in documents]
    texts = ["".join("".join(paragraphs).split()) for paragraphs in expected]
    assert written == (texts if documents_by == "line" else [""] * len(texts))


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
        b'{"text": "One\\ntwo.\\n\\nThree.", "lang": "de", "id": "a\\udc00"}\n\n'
        b'{"text": ["Four\\n five.", " "], "id": 7, "lang": null, "other": 1}\n'
        b'{"text": " \\n"}\n' + LAST
    )
    documents, report = _documents(path)
    assert documents == [
        Document("a\ufffd", "de", ["One two.", "Three."]),
        Document("7", "en", ["Four five."]),
        Document(f"{path}#{path.read_bytes().index(LAST)}", "en", ["caf\ufffd \ufffd."]),
    ]
    assert report.counters["read/without_text"] == 1
    assert report.not_utf8 == {str(path): 3}
    by_sentence, _ = _documents(path, lines="sentences")
    assert by_sentence[0].paragraphs == ["One", "two.", "Three."]


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "not valid JSON .*; write one JSON object a line"),
        ("[" * 200_000, ".*nested too deeply"),
        ('{"text": "a", "id": ' + "1" * 5000 + "}", ".*value has 5000 digits"),
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
    """A name chooses the reader, or the extension below that of the compression."""
    assert {reader_for(path) for path in paths} == {reader_for("x", name)}


def test_tables_are_not_read_as_running_text():
    for path in ("a.csv", "A.TSV.gz", "a.parquet"):
        with pytest.raises(UserError, match="a table, not running text"):
            reader_for(path)
        assert reader_for(path, "text") == reader_for("a.txt")


def test_docstrings_of_a_file(tmp_path):
    """The reader of source files: the same prose as the corpus, a file at a time."""
    prose = "This is the first sentence of it. And this is the second one, which is a bit longer."
    (tmp_path / "a.py").write_text(
        f'"""{prose}"""\nclass A:\n    def f(self):\n        """{prose}"""\n'
    )
    documents, _ = _documents(tmp_path / "a.py", language="fr")
    path = f"{tmp_path}/a.py"
    assert documents == [Document(path, "en", [prose]), Document(f"{path}:A.f", "en", [prose])]
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


def test_documents_are_named_by_the_bytes_at_which_they_begin(tmp_path):
    """There the file reads on as the document, whatever the ends of lines and the encoding."""
    rng = random.Random(1)
    path = tmp_path / "a.txt"
    for _ in range(50):
        pieces = rng.choices([b"a", b"bc", b" ", b"\n", b"\r\n", b"\r", b"\n\n", b"\xff"], k=60)
        data = b"".join(pieces) + b"\xff"
        path.write_bytes(data)
        for document in _documents(path, max_line_bytes=rng.choice([60, 101, 1040]))[0]:
            start = int(document.id.rpartition("#")[2])
            text = data[start:].decode(errors="replace").split()
            words = " ".join(document.paragraphs).split()
            assert text[: len(words)] == words


def test_stored_size_of_files(tmp_path):
    """Relative paths start from the directory of the options; a missing file has no bytes."""
    (tmp_path / "a.txt").write_bytes(b"A line.\n")
    assert get_stored_size("a.txt", ReadOptions(directory=str(tmp_path))) == 8
    assert get_stored_size(str(tmp_path / "none.txt"), ReadOptions()) == 0
