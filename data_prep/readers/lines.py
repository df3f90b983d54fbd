"""The lines of files of text: UTF-8, plain or compressed, local or remote, in bounded memory.

A remote path has a scheme, such as gs://, and is read through TensorFlow's `tf.io.gfile`, which is
not imported for anything else.
"""

import contextlib
import dataclasses
import errno
import functools
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.input_files import is_remote, located, refuse_special

from ..counts import Counts
from .document import Part, ReadOptions

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_BUFFER_BYTES = 1 << 17
# Running text shrinks to a quarter, the worst of logs to a fiftieth; gzip can reach 1:1032.
_BOMB_RATIO = 100
CHUNK_BYTES = 1 << 20
_BOM = "\ufeff"
_REPLACEMENT = "\ufffd"
_REPLACEMENT_BYTES = _REPLACEMENT.encode()
_LINE_END = re.compile(rb"\r\n|\r|\n")


def is_plain(path: str) -> bool:
    """Whether a file is local and not compressed, so that it can be read from its middle.

    False for a file that cannot be opened.
    """
    if is_remote(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(len(ZSTD_MAGIC))
    except OSError:
        return False
    return not head.startswith((GZIP_MAGIC, ZSTD_MAGIC, *UTF16_BOMS))


def size_of(path: str) -> int:
    """Returns the size of a file as it is stored, in bytes; 0 if it is unknown."""
    if is_remote(path):
        import tensorflow as tf

        try:
            return tf.io.gfile.stat(path).length
        except tf.errors.OpError:
            return 0
    try:
        return os.path.getsize(path)
    except OSError:
        # Opening it will fail too, with a better message.
        return 0


class BrokenStreamError(Exception):
    """A failure of reading, made a `UserError` by the caller who knows how far it has read."""

    def __init__(self, what: str, remedy: str, detail: str = "") -> None:
        super().__init__(what)
        self._what, self._remedy, self._detail = what, remedy, detail

    def at(self, path: str, place: str) -> UserError:
        """Returns the error for the user; `place` is how far it was read: "after line 3"."""
        detail = f" ({self._detail})" if self._detail else ""
        return UserError(f"{path}: {self._what} {place}{detail}; {self._remedy}")


class ExpandedFile(contextlib.AbstractContextManager):
    """The bytes of one file, decompressed if its first bytes are those of gzip or Zstandard.

    >>> with ExpandedFile("a.txt.gz", Counts(), ReadOptions()) as file:   # doctest: +SKIP
    ...     file.read(100)
    """

    def __init__(self, path: str, counts: Counts, options: ReadOptions, start: int = 0) -> None:
        """Opens the file.

        Args:
          path: local, or with a scheme.
          counts: counts the file and its bytes.
          options: `directory` and `max_expanded_bytes`.
          start: first byte of a part of a file that `is_plain`; it is read from the byte before,
            and the file is counted with the part at 0.

        Raises:
          UserError: it cannot be opened, or is a pipe or a device, which might never end.
        """
        place = located(path, options.directory)
        refuse_special(place)
        self._counts, self._max_bytes, self._position = counts, options.max_expanded_bytes, 0
        counts.files += not start
        try:
            self._stored = _Stored(place, max(0, start - 1))
            self._raw = io.BufferedReader(self._stored, _BUFFER_BYTES)
            head = self._raw.peek(len(ZSTD_MAGIC))
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; check --input") from None
        except IsADirectoryError:
            raise UserError(f"{path}: is a directory; name the files in it") from None
        except OSError as error:
            raise UserError(
                f"{path}: cannot be opened ({error.strerror or error}); check its permissions"
            ) from None
        self._read, self._format = self._raw.read1, ""
        if start:
            return
        if head.startswith(GZIP_MAGIC):
            # `read1` hands over what was decompressed before a stream breaks off, so that the
            # place named in the message is the right one.
            self._read, self._format = gzip.GzipFile(fileobj=self._raw).read1, "gzip"
        elif head.startswith(ZSTD_MAGIC):
            check_extra("data", "fastwarc")
            from fastwarc.stream_io import ZstdReader

            # Unlike the reader of `zstandard`, this one detects a file that was cut short.
            self._read, self._format = ZstdReader(self._raw, fsspec_args=False).read, "zstd"

    def __exit__(self, *error: object) -> None:
        self._raw.close()

    def tell(self) -> int:
        """Returns the number of bytes read, after decompression."""
        return self._position

    def read(self, size: int) -> bytes:
        """Returns at most `size` bytes, and at least one unless the file ends.

        Raises:
          BrokenStreamError: the stream is corrupt, ends early, expands too much, or the file
            cannot be read.
        """
        again = "fetch the file again"
        try:
            data = self._read(min(size, _BUFFER_BYTES))
        except EOFError:
            raise BrokenStreamError("the gzip stream ends early", again) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise BrokenStreamError("the gzip stream is corrupt", again, str(error)) from None
        except OSError as error:
            if error.errno is not None or not self._format:
                raise BrokenStreamError(
                    "cannot be read", "check the disk or the connection", error.strerror
                ) from None
            if "incomplete" in str(error):
                raise BrokenStreamError("the zstd stream ends early", again) from None
            raise BrokenStreamError("the zstd stream is corrupt", again, str(error)) from None
        self._position += len(data)
        self._counts.bytes += len(data)
        if (
            self._format
            and self._position > self._max_bytes
            and self._position > _BOMB_RATIO * self._stored.position
        ):
            raise BrokenStreamError(
                f"the {self._format} stream expands to more than {self._max_bytes} bytes and"
                f" {_BOMB_RATIO} times its size",
                "leave it out, or raise --max_expanded_mb if it is to be trusted",
            )
        return data


class _Stored(io.RawIOBase):
    """A file's bytes as they are stored, counted.

    Attributes:
      position: bytes read so far.
    """

    def __init__(self, path: str, start: int) -> None:
        self.position = 0
        self._file: Any = _GFile(path) if is_remote(path) else open(path, "rb", buffering=0)
        if start:
            self._file.seek(start)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self.position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _GFile:
    """A remote file that raises the errors of local ones."""

    def __init__(self, path: str) -> None:
        import tensorflow as tf

        self._path, self._errors = path, tf.errors
        self._file = tf.io.gfile.GFile(path, "rb")

    def readinto(self, buffer: memoryview) -> int:
        try:
            data = self._file.read(len(buffer))
        except self._errors.NotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such file", self._path) from None
        except self._errors.OpError as error:
            raise OSError(errno.EIO, error.message[:160], self._path) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()


@dataclasses.dataclass(frozen=True)
class Block:
    """Lines of a file that were read together.

    Attributes:
      number: number of the first line, from 1; in a part of a file it counts from the part.
      lines: the lines without their ends.
      offset: where the first line begins in the file, decompressed, in bytes.
      data: the lines as they are in the file.
    """

    number: int
    lines: list[str]
    offset: int
    data: bytes

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """The byte of the file at which each line begins, and at the end the one after them."""
        data = np.frombuffer(self.data, np.uint8)
        ends = data == ord("\n")
        if b"\r" in self.data:
            returns = data == ord("\r")
            # The last byte of \r\n is the line's end.
            returns[:-1] &= ~ends[1:]
            ends |= returns
        return self.offset + np.append(0, np.flatnonzero(ends) + 1)


def iter_lines(
    path: str, counts: Counts, options: ReadOptions, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[tuple[int, str]]:
    """Yields (line number from 1, line) of all lines of a file; see `iter_blocks`."""
    for block in iter_blocks(path, counts, options, chunk_bytes=chunk_bytes):
        yield from enumerate(block.lines, block.number)


def iter_blocks(
    path: str,
    counts: Counts,
    options: ReadOptions,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    part: Part | None = None,
    is_border: Callable[[bytes], bool] = bool,
) -> Iterator[Block]:
    r"""Yields the lines of a file, many at a time.

    Gzip and Zstandard are recognised by their first bytes, not by the file's name. Lines end with
    \n, \r\n or a lone \r; a byte order mark is dropped; bytes that are not UTF-8 become U+FFFD and
    are counted.

    Args:
      path: the file.
      counts: counts the file, its lines and bytes.
      options: the limits; no more than `max_line_bytes` and one chunk is in memory.
      chunk_bytes: bytes read at a time.
      part: bytes (start, stop) of a file that is plain. The part begins with the first border line
        at `start` or after it (or with the file, for 0) and ends before the first border line at
        `stop` or after it; so parts that tile the file's bytes tile its lines.
      is_border: whether a line, given with its end, is a border line; default: every line.

    Raises:
      UserError: no such file, a directory, a broken or exploding compressed stream, a NUL byte,
        UTF-16, a line too long.
    """
    start = part[0] if part else 0
    number = 0
    # Only the line that began in an earlier chunk can be longer than a chunk, so with chunks no
    # longer than the limit that is the only line to measure.
    chunk_bytes = min(chunk_bytes, options.max_line_bytes)

    def line(number: int) -> str:
        return f"{number} behind byte {start}" if start else str(number)

    try:
        with ExpandedFile(path, counts, options, start) as file:
            chunks = iter(lambda: file.read(chunk_bytes), b"")
            # The byte before tells whether a line begins at `start`.
            first, skip_before = (start - 1, part[1]) if part and start else (0, 0)
            runs = _whole_lines(path, chunks, options.max_line_bytes, first, skip_before)
            for offset, data in _lines_of_part(runs, part, is_border) if part else runs:
                text = _decode(path, data, counts)
                if offset == 0:
                    text = text.removeprefix(_BOM)
                if not text:
                    continue
                if "\r" in text:
                    text = text.replace("\r\n", "\n").replace("\r", "\n")
                lines = text.split("\n")
                if not lines[-1]:
                    lines.pop()
                yield Block(number + 1, lines, offset, data)
                number += len(lines)
                counts.lines += len(lines)
    except _LineTooLongError:
        raise UserError(
            f"{path}:{line(number + 1)}: the line is longer than {options.max_line_bytes} bytes;"
            " break it into lines, or raise --max_line_mb"
        ) from None
    except BrokenStreamError as error:
        raise error.at(path, f"after line {line(number)}") from None
    if number == 0 and not start:
        counts.empty_files.append(path)


class _LineTooLongError(Exception):
    """An error that `iter_blocks`, which knows the line's number, makes a `UserError`."""


def _whole_lines(
    path: str, chunks: Iterator[bytes], max_line_bytes: int, offset: int, skip_before: int
) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, run of whole lines).

    Args:
      path: path of the file, for messages.
      chunks: its bytes.
      max_line_bytes: the longest line allowed.
      offset: where the first chunk begins in the file.
      skip_before: if not 0, all up to the end of the first line is left out, and all if that end is
        not before this byte.
    """
    pending: list[bytes] = []
    pending_bytes = 0
    begin = 0
    skip_newline = False
    for chunk in chunks:
        zero = chunk.find(b"\0")
        # UTF-16 of, e.g., Chinese has no NUL byte and is recognised by its first bytes.
        if offset == 0 and chunk.startswith(UTF16_BOMS):
            raise UserError(f"{path}: is UTF-16 text, by its first bytes; convert it to UTF-8 text")
        if zero >= 0:
            raise UserError(
                f"{path}: looks like a binary or UTF-16 file (NUL byte at byte {offset + zero});"
                " convert it to UTF-8 text"
            )
        here, offset = offset, offset + len(chunk)
        # A \r that ended the last chunk has ended its line already.
        if skip_newline and chunk.startswith(b"\n"):
            chunk, here = chunk[1:], here + 1
        skip_newline = chunk.endswith(b"\r")
        if skip_before:
            ended = _LINE_END.search(chunk)
            if not ended and offset < skip_before:
                continue
            if not ended:
                return
            skip_before = 0
            chunk, here = chunk[ended.end() :], here + ended.end()
        first = min((at for at in map(chunk.find, (b"\n", b"\r")) if at >= 0), default=len(chunk))
        if pending_bytes + first > max_line_bytes:
            raise _LineTooLongError
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        if not pending:
            begin = here
        if end:
            yield begin, b"".join([*pending, chunk[:end]])
            pending, pending_bytes = [], 0
            begin = here + end
        if end < len(chunk):
            pending.append(chunk[end:])
            pending_bytes += len(chunk) - end
    if pending:
        yield begin, b"".join(pending)


def _lines_of_part(
    runs: Iterator[tuple[int, bytes]], part: Part, is_border: Callable[[bytes], bool]
) -> Iterator[tuple[int, bytes]]:
    """Yields the runs of lines that belong to a part.

    Args:
      runs: as `_whole_lines` yields them, from the part's start on.
      part: see `iter_blocks`.
      is_border: see there.
    """

    def border(data: bytes, begin: int) -> int | None:
        """Returns where the first border line at `begin` or after it begins in `data`."""
        at = 0
        for line in data.splitlines(keepends=True):
            if at >= begin and is_border(line):
                return at
            at += len(line)
        return None

    start, stop = part
    inside = start == 0
    for offset, data in runs:
        if not inside:
            if offset >= stop:
                return
            at = border(data, 0)
            if at is None:
                continue
            inside, offset, data = True, offset + at, data[at:]
        if offset + len(data) > stop:
            at = border(data, stop - offset)
            if at is not None:
                if at > 0:
                    yield offset, data[:at]
                return
        yield offset, data


def _decode(path: str, block: bytes, counts: Counts) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError:
        text = block.decode(errors="replace")
    # The file may hold U+FFFD of its own, which is good UTF-8.
    counts.add_not_utf8(path, text.count(_REPLACEMENT) - block.count(_REPLACEMENT_BYTES))
    return text
