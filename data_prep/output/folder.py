"""The folder of records: it appears only when complete, has one writer at a time, holds shards."""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import (
    check_writable,
    hold_lock,
    sha256,
    stage_folder,
    system_error,
)
from official_cmlm.common.input_files import is_remote
from official_cmlm.records.manifest import FILE_NAME, Shard

# File of the document pipeline's plan, which is in the folder from the start.
PLAN_FILE = "prepare.json"


# Regular expression of the names that runs write into their folder; other files are not their own.
OWN_FILES = (
    r"(documents|pairs)-\d+\.tfrecord|(dataset|prepare|vocab|byte_pair)\.json|(vocab|merges)\.txt"
    r"|sentencepiece\.model|balance\.(md|svg)|dropped\.jsonl|work|parts|.*\.tmp"
)


def check_place(
    path: str | os.PathLike, inputs: Iterable[str] = (), overwrite: bool = True
) -> tuple[Path, Path]:
    """Returns the folder to write, symbolic links resolved, and its name while it is incomplete.

    Args:
      path: the folder, which may be there already.
      inputs: files that are read; they are never removed with a folder that is replaced.
      overwrite: whether it may hold records already.

    Raises:
      UserError: `path` is remote or not a folder's name, exists and may not be replaced, or cannot
        be written; one of `inputs` is in it, and no run has written it there.
    """
    if is_remote(os.fspath(path)):
        raise UserError(
            f"--output_dir={path}: must be on a file system that all workers have;"
            " copy the finished folder"
        )
    path = Path(path)
    if not path.name:
        raise UserError(f"--output_dir={path}: name a folder to create, e.g. data/records")
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"{path}: the name is not UTF-8, which TensorFlow cannot write; change --output_dir"
        ) from None
    # The folder itself is replaced, not a link to it.
    path = path.resolve()
    # It is written beside its final name.
    partial = path.with_name(path.name + ".partial")
    if path.exists():
        is_empty_folder = path.is_dir() and not any(path.iterdir())
        holds_records = (path / FILE_NAME).exists()
        if not is_empty_folder and not holds_records:
            raise UserError(f"{path}: exists and holds no records; name another --output_dir")
        if holds_records and not overwrite:
            raise UserError(f"{path}: holds records already; pass --overwrite or another name")
    if partial.is_symlink() or (partial.exists() and not partial.is_dir()):
        raise UserError(f"{partial}: exists and is not a folder; move it or change --output_dir")
    check_writable(path)
    check_writable(partial)
    if path.exists() or partial.exists():
        _check_inputs_stay((path, partial), inputs)
    return path, partial


def _check_inputs_stay(folders: Sequence[Path], inputs: Iterable[str]) -> None:
    resolved = functools.cache(os.path.realpath)
    for path in inputs:
        above, name = os.path.split(path)
        place = Path(os.path.realpath(path)) if os.path.islink(path) else None
        place = place or Path(resolved(above), name)
        for folder in folders:
            if place == folder or not place.is_relative_to(folder):
                continue
            if not re.fullmatch(OWN_FILES, place.relative_to(folder).parts[0]):
                raise UserError(
                    f"{path}: an input in the folder to write, which would be removed with it;"
                    " move it or name another --output_dir"
                )


def leave_out_own(output: Path, paths: Sequence[str]) -> list[str]:
    """Returns the input paths without files of the output folder itself, complete or incomplete.

    Args:
      output: the folder to write, which may lie in a folder of the input.
      paths: input files, as `readers.expand_inputs` gives them.

    Raises:
      UserError: all of them are the output folder's own.
    """
    output = output.resolve()
    own = {output.name, f"{output.name}.partial", f"{output.name}.lock"}
    resolved = functools.cache(lambda folder: Path(folder).resolve())

    def is_own(path: str) -> bool:
        folder, name = os.path.split(path)
        place = resolved(folder) / name
        if not place.is_relative_to(output.parent):
            return False
        first = place.relative_to(output.parent).parts[0]
        unfinished = (f"{output.name}.old-", f"{output.name}.partial-")
        return first in own or first.startswith(unfinished)

    left = [path for path in paths if not is_own(path)]
    if paths and not left:
        raise UserError(
            f"{paths[0]}: was written by such a run itself; name other text with --input"
        )
    return left


@contextlib.contextmanager
def fill_folder(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a folder to fill, under another name; it is renamed to `path` when it is complete.

    On an exception the final name stays as it was. Another process that wants to write the same
    folder meanwhile is refused.

    Raises:
      UserError: as `check_place` does.
    """
    path = check_place(path)[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal = f"{path}: another run is writing it; wait for it, or name another --output_dir"
    with hold_lock(lock_path(path), refusal):
        # Checked under the lock, as another process may just have completed it.
        check_place(path, overwrite=overwrite)
        with stage_folder(path) as folder:
            yield folder


def shard_name(prefix: str, number: int) -> str:
    """Returns the file name of a shard, e.g. `documents-00007.tfrecord`."""
    return f"{prefix}-{number:05d}.tfrecord"


class ShardWriter:
    """A writer of serialised records to `<prefix>-00000.tfrecord`, … in a folder.

    Each language has shards of its own, so that a training can read some languages more often than
    others without reading what it does not use. A new shard begins after `max_bytes`.
    """

    def __init__(self, folder: Path, prefix: str, max_bytes: int) -> None:
        self._folder, self._prefix, self._max_bytes = folder, prefix, max_bytes
        self._finished: dict[str, Shard] = {}
        self._open: dict[str, _OpenShard] = {}

    @property
    def shards(self) -> list[Shard]:
        """The finished shards, in order of their numbers."""
        return [self._finished[name] for name in sorted(self._finished)]

    def write(self, language: str, *records: bytes) -> None:
        """Writes records of one language; those of one call share a shard."""
        import tensorflow as tf

        with self._report_faults():
            if language not in self._open:
                name = shard_name(self._prefix, len(self._finished) + len(self._open))
                writer = tf.io.TFRecordWriter(str(self._folder / name))
                self._open[language] = _OpenShard(name, writer)
            shard = self._open[language]
            for record in records:
                shard.writer.write(record)
                shard.records += 1
                shard.bytes += len(record)
        if shard.bytes >= self._max_bytes:
            self._end(language)

    def close(self) -> None:
        """Finishes all open shards."""
        for language in list(self._open):
            self._end(language)

    @contextlib.contextmanager
    def _report_faults(self) -> Iterator[None]:
        import tensorflow as tf

        try:
            yield
        except tf.errors.OpError as error:
            cause = system_error(error)
            if cause is not None:
                raise OSError(cause.errno, cause.strerror, str(self._folder)) from None
            raise UserError(f"{self._folder}: cannot write ({error.message[:160]})") from None

    def _end(self, language: str) -> None:
        shard = self._open.pop(language)
        with self._report_faults():
            shard.writer.close()
        path = self._folder / shard.name
        size, digest = path.stat().st_size, sha256(path)
        self._finished[shard.name] = Shard(shard.name, shard.records, size, digest, language)


@dataclasses.dataclass
class _OpenShard:
    """An open shard: its file name and writer, and the size of its records so far."""

    name: str
    writer: Any
    records: int = 0
    bytes: int = 0


def lock_path(output: Path) -> Path:
    """Returns the lock file of a folder, beside it: one process at a time writes the folder."""
    return output.with_name(output.name + ".lock")
