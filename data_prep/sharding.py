"""Writes records into shards of bounded size inside a folder that appears only when complete."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.files import replace_folder
from official_cmlm.records.manifest import FILE_NAME, Shard


class OutputFolder:
    """A folder that is filled under another name and renamed when everything is in it.

    >>> with OutputFolder(Path("records"), overwrite=False) as folder:   # doctest: +SKIP
    ...     (folder / "dataset.json").write_text("{}")

    On an exception the partial folder is removed and the final name stays as it was.
    """

    def __init__(self, path: Path, overwrite: bool) -> None:
        """Checks the name.

        Raises:
          UserError: if `path` exists and is not a folder of records, or if it is one and
            `overwrite` is false.
        """
        if not path.name:
            raise UserError(f"--output_dir={path}: name a folder to create, e.g. data/records")
        # The folder itself is replaced, not a link to it.
        self._path = path = path.resolve()
        self._partial = path.with_name(path.name + ".partial")
        if path.exists():
            if any(path.iterdir()) if path.is_dir() else True:
                if not (path / FILE_NAME).exists():
                    raise UserError(
                        f"{path}: exists and holds no records; name another --output_dir"
                    )
                if not overwrite:
                    raise UserError(
                        f"{path}: holds records already; pass --overwrite or another name"
                    )

    def __enter__(self) -> Path:
        if self._partial.exists():
            shutil.rmtree(self._partial)
        self._partial.mkdir(parents=True)
        return self._partial

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            shutil.rmtree(self._partial, ignore_errors=True)
            return
        replace_folder(self._partial, self._path)


class ShardWriter:
    """Writes serialised records to `<prefix>-00000.tfrecord`, … in a folder.

    Attributes:
      shards: the finished shards, in order.
    """

    def __init__(self, folder: Path, prefix: str, max_bytes: int) -> None:
        """Args: `max_bytes`, the size after which a new shard begins."""
        self._folder, self._prefix, self._max_bytes = folder, prefix, max_bytes
        self.shards: list[Shard] = []
        self._writer = None
        self._records = self._bytes = 0

    def write(self, record: bytes) -> None:
        import tensorflow as tf

        try:
            self._write(tf.io.TFRecordWriter, record)
        except tf.errors.OpError as error:
            raise UserError(f"{self._folder}: cannot write ({error.message[:160]})") from None

    def _write(self, open_writer: Callable[[str], Any], record: bytes) -> None:
        if self._writer is None:
            self._name = f"{self._prefix}-{len(self.shards):05d}.tfrecord"
            self._writer = open_writer(str(self._folder / self._name))
            self._records = self._bytes = 0
        self._writer.write(record)
        self._records += 1
        self._bytes += len(record)
        if self._bytes >= self._max_bytes:
            self.close()

    def close(self) -> None:
        """Ends the shard under way, if there is one."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        path = self._folder / self._name
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.shards.append(Shard(self._name, self._records, path.stat().st_size, digest))
