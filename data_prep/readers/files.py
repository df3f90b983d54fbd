"""Input files: their languages, and their bytes, decompressed, in bounded memory.

A remote path has a scheme, such as gs://, and is read through TensorFlow's `tf.io.gfile`, which is
not imported for anything else.
"""

import errno
import gzip
import io
import os
import re
import zlib
from types import TracebackType
from typing import Any, NamedTuple

from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.input_files import expand_inputs, is_remote, located, refuse_special
from official_cmlm.languages import check_language_tag

from .document import DEFAULT_MAX_EXPANDED_BYTES
from .report import ReadReport

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_BUFFER_BYTES = 1 << 17
# Running text shrinks to a quarter, the worst of logs to a fiftieth; gzip can reach 1:1032.
_BOMB_RATIO = 100
# `de:path`, but not the scheme of an address such as gs://.
_LANGUAGE_PREFIX = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*):(?!//)(.*)")


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
    """Size of a file as it is stored, in bytes; 0 where that cannot be told."""
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
    """Reading failed; turned into a `UserError` where it is known how far the file was read."""

    def __init__(self, what: str, remedy: str, detail: str = "") -> None:
        super().__init__(what)
        self._what, self._remedy, self._detail = what, remedy, detail

    def at(self, path: str, place: str) -> UserError:
        """The message for a person; `place` is how far it was read, such as "after line 3"."""
        detail = f" ({self._detail})" if self._detail else ""
        return UserError(f"{path}: {self._what} {place}{detail}; {self._remedy}")


class ExpandedFile:
    """The bytes of one file, decompressed if its first bytes are those of gzip or Zstandard.

    >>> with ExpandedFile("a.txt.gz", ReadReport()) as file:   # doctest: +SKIP
    ...     file.read(100)
    """

    def __init__(
        self,
        path: str,
        report: ReadReport,
        max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES,
        *,
        directory: str = "",
        start: int = 0,
    ) -> None:
        """Opens the file.

        Args:
          path: local, or with a scheme.
          report: counts the file and its bytes.
          max_expanded_bytes: a compressed file that gives more than this, and a hundred times
            its own size, is refused as a zip bomb.
          directory: what a relative path is relative to; "": the current directory.
          start: of a part of a file that `is_plain`, which is read from the byte before; the file
            is counted with the part at 0.

        Raises:
          UserError: it cannot be opened, or is a pipe or a device, which might never end.
        """
        refuse_special(located(path, directory))
        self._report, self._max_bytes, self._position = report, max_expanded_bytes, 0
        report.files += not start
        try:
            self._stored = _Stored(located(path, directory), max(0, start - 1))
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

    def __enter__(self) -> "ExpandedFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._raw.close()

    def tell(self) -> int:
        """How many bytes were read, after decompression."""
        return self._position

    def read(self, size: int) -> bytes:
        """At most `size` bytes, and at least one unless the file ends.

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
        self._report.bytes += len(data)
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
    """The bytes as they are stored, counted.

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


class TextFile(NamedTuple):
    """A file of text, or a data set.

    Attributes:
      path: as a reader takes it.
      language: of the documents that do not name their own; empty: `ReadOptions.language`.
    """

    path: str
    language: str = ""


def expand_text_files(patterns: list[str], suffix: str = "") -> list[TextFile]:
    """As `expand_inputs`, of patterns with or without a language, as in `de:books/*.txt`.

    A file that several patterns name has the language of the first one. A path that exists is
    never taken for a pattern with a language.

    Raises:
      UserError: as `expand_inputs` does; or what looks like a language is none.
    """
    files: dict[str, TextFile] = {}
    for pattern in patterns or expand_inputs([]):
        match = None if os.path.exists(pattern) else _LANGUAGE_PREFIX.fullmatch(pattern)
        where, language = pattern, ""
        if match:
            language, pattern = match.groups()
            check_language_tag(language, where)
        for path in expand_inputs([pattern], suffix):
            name = path if is_remote(path) else os.path.abspath(path)
            files.setdefault(name, TextFile(path, language))
    return list(files.values())
