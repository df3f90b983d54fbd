"""Lines of files: ends, encodings, compression, other file systems; what a bad file is told."""

import errno
import gzip
import io
import re
import subprocess
import sys

import fsspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import Counts, ReadOptions, expand_inputs, read_documents, size_of
from data_prep.readers.plain_text import iter_lines
from official_cmlm.common import text_files
from official_cmlm.common.errors import UserError
from tests.data_prep.readers.crawl_pages import record


def _stream(path, report=None, **options):
    lines = iter_lines(str(path), report or Counts(), ReadOptions(**options))
    return ((number, line) for number, _, line in lines)


def _lines(path, max_line_bytes=1 << 20):
    report = Counts()
    return list(_stream(path, report, max_line_bytes=max_line_bytes)), report


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "BUFFER_BYTES", chunk_bytes)
        lines, report = _lines(path)
    assert lines == _reference(text)
    assert (report.lines, report.bytes) == (len(lines), len(data))
    assert report.not_utf8 == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.lists(st.sampled_from(list(b"a\r\n\xe9\xc3\xa9\xe8\xaa\x9e\xff\xef\xbf\xbd"))).map(
        bytes
    ),
)
def test_lines_of_any_bytes(tmp_path, data):
    path = tmp_path / "any.txt"
    path.write_bytes(data)
    lines, report = _lines(path)
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
        _lines(tmp_path / "x.txt")
    with pytest.raises(UserError, match="is a directory; name the files in it"):
        _lines(tmp_path)


def test_long_line(tmp_path):
    path = tmp_path / "x.txt"
    for end in (b"\n", b"\r\n", b"\r"):
        path.write_bytes((b"12345" + end) * 3)
        assert len(_lines(path, max_line_bytes=5)[0]) == 3
    path.write_bytes(b"1\n12345\n123456")
    message = "x.txt:3: the line is longer than 5 bytes; .* raise --max_line_mb"
    with pytest.raises(UserError, match=message):
        _lines(path, max_line_bytes=5)


def test_truncated_zstd(tmp_path):
    """Every cut is found; whole blocks before it are read."""
    path = tmp_path / "x.txt"
    lines = [f"{number:05d}" for number in range(60_000)]
    data = zstandard.compress("\n".join(lines).encode())
    for cut in (1, 3, len(data) // 2, len(data) - 8):
        path.write_bytes(data[:-cut])
        read = []
        with pytest.raises(UserError, match=r"zstd stream ends early after line \d+; fetch") as e:
            read.extend(text for _, text in _stream(path))
        assert f"after line {len(read)};" in str(e.value)
        assert read == lines[: len(read)]


def test_corrupt_zstd(tmp_path):
    """The checksum, the content and bytes after the end show it."""
    good = zstandard.ZstdCompressor(write_checksum=True).compress(b"a line\n" * 3)
    path = tmp_path / "x.zst"
    for data in (good[:-1] + b"x", good[:4] + b"nonsense", good + b"nonsense"):
        path.write_bytes(data)
        with pytest.raises(
            UserError, match=r"the zstd stream is corrupt after line \d \(.*; fetch"
        ):
            list(_stream(path))


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_bomb(tmp_path, compress):
    """A file that expands a hundredfold is stopped at the limit; ordinary text has none."""
    path = tmp_path / "x.txt"
    path.write_bytes(compress(b"a\n" * 300_000))
    report = Counts()
    with pytest.raises(UserError, match=r"expands to more than 50000 bytes .*--max_expanded_mb"):
        list(_stream(path, report, max_expanded_bytes=50_000))
    # The ratio is that to what was read of the file, and reads are of 128 KiB.
    assert report.bytes < max(50_000, 100 * path.stat().st_size) + (1 << 17)
    assert len(list(_stream(path))) == 300_000
    path.write_bytes(compress(b"".join(b"%d\n" % (i * i) for i in range(100_000))))
    assert len(list(_stream(path, max_expanded_bytes=50_000))) == 100_000


# Named, as gzip notes the time, which two processes do not agree on.
@pytest.mark.parametrize(
    "head", [b"", gzip.compress(b"a\n"), zstandard.compress(b"a\n")], ids=["plain", "gzip", "zstd"]
)
def test_a_disk_that_fails(tmp_path, monkeypatch, head):
    """The lines before the failure are read."""

    def fail(place, name):
        file = io.BytesIO(head or b"a\n")
        read = file.read

        def read_once(size):
            data = read(size)
            if not data:
                raise OSError(errno.EIO, "Input/output error")
            return data

        file.read = read_once
        return file, read(4)

    monkeypatch.setattr("official_cmlm.common.text_files.open_stored", fail)
    with pytest.raises(
        UserError, match=r"cannot be read after line \d \(Input/output error\); check"
    ):
        list(_stream(tmp_path / "x.txt"))


def test_remote_files():
    """Every path with a scheme is fsspec's to read: here its file system in memory."""
    for name, data in {
        "b.txt": b"B one.\n",
        "a.txt.gz": gzip.compress(b"A one.\nA two.\n"),
        "deep/er/c.jsonl.zst": zstandard.compress(b'{"text": "C."}\n'),
        "deep/.hidden": b"x",
    }.items():
        with fsspec.open(f"memory://readers/{name}", "wb") as file:
            file.write(data)
    root = "memory:///readers"
    paths = expand_inputs([root])
    assert paths == [f"{root}/{name}" for name in ("a.txt.gz", "b.txt", "deep/er/c.jsonl.zst")]
    assert expand_inputs([f"{root}/*.txt", f"{root}/b.txt"]) == [f"{root}/b.txt"]
    report = Counts()
    documents = list(read_documents(paths, ReadOptions(lines="paragraphs"), report))
    assert [d.paragraphs for d in documents] == [["A one.", "A two."], ["B one."], ["C."]]
    assert size_of(f"{root}/b.txt") == 7 and size_of(f"{root}/none") == 0
    for pattern, message in (
        (f"{root}/none", "no such file, and nothing matches"),
        ("foo://x", "foo://.*: cannot be opened"),
        ("foo://x/*", "foo://.*: cannot be opened"),
    ):
        with pytest.raises(UserError, match=message):
            expand_inputs([pattern])
    with pytest.raises(UserError, match="none: no such file"):
        list(_stream(f"{root}/none"))


def test_local_files_are_read_without_tensorflow(tmp_path):
    """Crawl files are too."""
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a\n"))
    (tmp_path / "b.wet").write_bytes(record("conversion", b"b"))
    code = (
        "import sys; from data_prep.readers import *\n"
        "documents = read_documents(expand_inputs(sys.argv[1:]), ReadOptions(), Counts())\n"
        "assert [d.paragraphs for d in documents] == [['a'], ['b']]\n"
        "assert not {'tensorflow', 'tensorflow_datasets'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
