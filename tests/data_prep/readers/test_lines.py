"""Lines of text files: their ends, encodings and compression, and what each bad file is told."""

import gzip
import re

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import Counts, ReadOptions
from data_prep.readers.lines import iter_lines
from official_cmlm.errors import UserError


def _lines(path, max_line_bytes=1 << 20, **arguments):
    report, options = Counts(), ReadOptions(max_line_bytes=max_line_bytes)
    return list(iter_lines(str(path), report, options, **arguments)), report


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
    path.write_bytes(b"\xff")
    assert _lines(path)[1].warnings()[0].endswith("1 byte sequence was not UTF-8 and was replaced")


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_file_is_not_an_error(tmp_path, data):
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    lines, report = _lines(path)
    assert lines == []
    assert report.warnings() == [f"{path}: the file is empty"]


_THREE = gzip.compress(b"a line\n" * 3)
_NUL = r"UTF-16 file \(NUL byte at byte 8\); convert it"
BAD = {
    "missing": (None, "no such file; check --input"),
    # Several deflate blocks, so that what is before the cut can be decompressed.
    "truncated": (_THREE[:-4], "ends early after line 3; fetch the file again"),
    "corrupt": (
        _THREE[:-6] + bytes([_THREE[-6] ^ 0xFF]) + _THREE[-5:],
        "is corrupt after line 3 .*; fetch the file again",
    ),
    "nonsense": (b"\x1f\x8bnonsense", "is corrupt after line 0"),
    "nul": (b"fine\nbad\0", _NUL),
    "nul compressed": (gzip.compress(b"fine\nbad\0"), _NUL),
    # The byte order mark shows it where no NUL byte does.
    "utf-16 le": ("\ufeff漢字".encode("utf-16-le"), "UTF-16 .*; convert it to UTF-8 text"),
    "utf-16 be": ("\ufeff漢字".encode("utf-16-be"), "UTF-16 .*; convert it to UTF-8 text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path, name):
    """The message names the last line that was read, or the byte."""
    data, message = BAD[name]
    if data is not None:
        (tmp_path / "x.txt").write_bytes(data)
    with pytest.raises(UserError, match=f"x.txt: .*{message}"):
        _lines(tmp_path / "x.txt", chunk_bytes=3)
    with pytest.raises(UserError, match="is a directory; name the files in it"):
        _lines(tmp_path)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 5, 100])
def test_long_line(tmp_path, chunk_bytes):
    path = tmp_path / "x.txt"
    path.write_bytes(b"12345\r\n12345\n")
    assert len(_lines(path, max_line_bytes=5, chunk_bytes=chunk_bytes)[0]) == 2
    path.write_bytes(b"1\n12345\n123456")
    message = "x.txt:3: the line is longer than 5 bytes; .* raise --max_line_mb"
    with pytest.raises(UserError, match=message):
        _lines(path, max_line_bytes=5, chunk_bytes=chunk_bytes)
