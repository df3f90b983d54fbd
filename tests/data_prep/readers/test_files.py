"""Files as streams: compressed, remote, broken, exploding, and the message for each."""

import errno
import gzip
import io
import subprocess
import sys

import fsspec
import pytest
import zstandard

from data_prep.readers import Counts, ReadOptions, expand_inputs, read_documents, size_of
from data_prep.readers.lines import iter_lines
from official_cmlm.errors import UserError
from tests.data_prep.readers.crawl_pages import record


def _lines(path, report=None, **options):
    return iter_lines(str(path), report or Counts(), ReadOptions(**options))


def test_truncated_zstd(tmp_path):
    """Every cut is found; whole blocks before it are read."""
    path = tmp_path / "x.txt"
    lines = [f"{number:05d}" for number in range(60_000)]
    data = zstandard.compress("\n".join(lines).encode())
    for cut in (1, 3, len(data) // 2, len(data) - 8):
        path.write_bytes(data[:-cut])
        read = []
        with pytest.raises(UserError, match=r"zstd stream ends early after line \d+; fetch") as e:
            read.extend(text for _, text in _lines(path))
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
            list(_lines(path))


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_bomb(tmp_path, compress):
    """A file that expands a hundredfold is stopped at the limit; ordinary text has none."""
    path = tmp_path / "x.txt"
    path.write_bytes(compress(b"a\n" * 1_000_000))
    report = Counts()
    with pytest.raises(UserError, match=r"expands to more than 50000 bytes .*--max_expanded_mb"):
        list(_lines(path, report, max_expanded_bytes=50_000))
    # The ratio is that to what was read of the file, and reads are of 128 KiB.
    assert report.bytes < max(50_000, 100 * path.stat().st_size) + (1 << 17)
    assert len(list(_lines(path))) == 1_000_000
    path.write_bytes(compress(b"".join(b"%d\n" % (i * i) for i in range(100_000))))
    assert len(list(_lines(path, max_expanded_bytes=50_000))) == 100_000


# Named, as gzip notes the time, which two processes do not agree on.
@pytest.mark.parametrize(
    "head",
    [b"", gzip.compress(b"a\n"), zstandard.compress(b"a\n")],
    ids=["plain", "gzip", "zstd"],
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

    monkeypatch.setattr("official_cmlm.text_files.open_stored", fail)
    with pytest.raises(
        UserError, match=r"cannot be read after line \d \(Input/output error\); check"
    ):
        list(_lines(tmp_path / "x.txt"))


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
        list(_lines(f"{root}/none"))


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
