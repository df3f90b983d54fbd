"""Files that are read in parts: together they give what the whole file does, wherever it is cut."""

import gzip
import itertools
import json
import random

import pytest

from data_prep.readers import ReadOptions, ReadReport, measure, read_file
from data_prep.readers.decoding import iter_blocks
from official_cmlm.errors import UserError

# Ends of lines of all kinds, blank lines of white space, bytes that are not UTF-8, wide characters.
TEXT = (
    b"\xef\xbb\xbfOne two\nthree.\n\nFour \xff five.\r\n\r\n\r\nSix.\rseven\r\r \xc2\xa0\t\n"
    b"\xe8\xaa\x9e\xe8\xaa\x9e.\n \xe3\x80\x80\r\nEight\nnine\nten\n\n\n\n\xe2\x80\xa8\n\nLast \xfe"
)
LINES = b"\n".join(
    [
        b'{"text": "One."}\r',
        b'{"text": "Two.", "id": "two"}',
        b"",
        b'{"text": "Long, ", "id": "long"}',
        b'{"text": "\xff \xe8\xaa\x9e, ", "id": "long", "continues": true}',
        b'{"text": "end.", "id": "long", "continues": true}',
        b'{"text": " "}',
        b'{"text": "Three.", "continues": false}',
    ]
)


def _read(path, part=None, **options):
    report = ReadReport()
    options = ReadOptions(**options)
    documents = list(read_file(str(path), options, report, part=part))
    counts = (report.documents, report.empty_documents, report.lines, report.files)
    return documents, report.not_utf8, counts


def _check(path, cuts, **options):
    """The parts between the cuts are the whole file: documents, their names, and the counts."""
    documents, not_utf8, counts = _read(path, **options)
    found = [_read(path, part, **options) for part in itertools.pairwise(cuts)]
    assert [document for part in found for document in part[0]] == documents
    assert sum(sum(part[1].values()) for part in found) == sum(not_utf8.values()) > 0
    assert tuple(map(sum, zip(*(part[2] for part in found)))) == counts


@pytest.mark.parametrize("max_line_bytes", [30, 1000])
@pytest.mark.parametrize("max_document_bytes", [8, 1000])
def test_text(tmp_path, max_line_bytes, max_document_bytes):
    """Cut at any one byte, and at all of them; lines are read some 30 bytes at a time, or all."""
    path = tmp_path / "a.txt"
    path.write_bytes(TEXT)
    options = {"max_line_bytes": max_line_bytes, "max_document_bytes": max_document_bytes}
    for cut in range(1, len(TEXT)):
        _check(path, [0, cut, len(TEXT)], **options)
    _check(path, range(len(TEXT) + 1), **options)


@pytest.mark.parametrize("max_line_bytes", [80, 1000])
def test_lines(tmp_path, max_line_bytes):
    """A line that continues the one before stays with it."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    for cut in range(1, len(LINES)):
        _check(path, [0, cut, len(LINES)], max_line_bytes=max_line_bytes)
    _check(path, range(len(LINES) + 1), max_line_bytes=max_line_bytes)
    for cut in range(1, len(LINES)):
        first, second = (_read(path, part)[0] for part in ((0, cut), (cut, len(LINES))))
        assert not (second and second[0].continues) and (not first or not first[0].continues)


def test_random_text(tmp_path):
    """Names are the bytes at which documents begin: there the file reads on as the document."""
    rng = random.Random(1)
    path = tmp_path / "a.txt"
    for _ in range(50):
        pieces = rng.choices([b"a", b"bc", b" ", b"\n", b"\r\n", b"\r", b"\n\n", b"\xff"], k=60)
        data = b"".join(pieces) + b"\xff"
        path.write_bytes(data)
        cuts = sorted({0, len(data), *rng.choices(range(len(data)), k=3)})
        _check(path, cuts, max_line_bytes=rng.choice([20, 61, 1000]) + 40)
        for document in _read(path)[0]:
            start = int(document.id.rpartition("#")[2])
            text = data[start:].decode(errors="replace").split()
            words = " ".join(document.paragraphs).split()
            assert text[: len(words)] == words


def test_faults(tmp_path):
    """Named by a byte where nobody has counted the lines; each in one part alone."""
    path = tmp_path / "a.jsonl"
    line = json.dumps({"text": "A."}).encode() + b"\n"
    path.write_bytes(line * 3 + b"{\n" + line * 2)
    size, middle = path.stat().st_size, len(line)
    with pytest.raises(UserError, match=r"a\.jsonl:4: not valid JSON"):
        _read(path, (0, size))
    with pytest.raises(
        UserError, match=rf"a\.jsonl: the line at byte {3 * middle}: not valid JSON"
    ):
        _read(path, (middle + 1, size))
    assert len(_read(path, (3 * middle + 1, size))[0]) == 2
    with pytest.raises(UserError, match=r"a\.jsonl:1 behind byte 5: the line is longer than 10"):
        list(iter_blocks(path, ReadReport(), 10, part=(5, size)))


def test_what_has_parts(tmp_path):
    """Plain JSON lines, and text whose documents end at blank lines, if they are large enough."""
    large = b"A line.\n" * 20_000

    def extent(name, data, reader="auto", **options):
        (tmp_path / name).write_bytes(data)
        size, extent = measure(str(tmp_path / name), ReadOptions(**options), reader)
        assert size == len(data) and extent in (0, size)
        return extent

    assert extent("a.jsonl", large) and extent("a.txt", large) and extent("a", large, "jsonl")
    assert not extent("b.txt", large[:1000]) and not extent("b.wet", large)
    assert not extent("c.txt", large, documents_by="file")
    noise = random.Random(0).randbytes(200_000)
    assert not extent("d.jsonl.gz", gzip.compress(noise))
    assert not extent("d.jsonl", gzip.compress(noise)) and not extent("d.txt", b"\xff\xfe" + large)
    assert measure(str(tmp_path / "none.txt"), ReadOptions()) == (0, 0)
    assert measure("a.txt", ReadOptions(directory=str(tmp_path))) == (len(large), len(large))
