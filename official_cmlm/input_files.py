"""Input files: which ones a path, a directory or a pattern names, on the local disk or elsewhere.

A remote path has a scheme, such as gs://. It is looked up with TensorFlow's `tf.io.gfile`, and
TensorFlow is not imported for anything else.
"""

import glob
import os
import re
from collections.abc import Callable, Iterator

from official_cmlm.errors import UserError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# As `os.walk` yields them: a directory, the names of directories in it, the names of files.
_Walk = Iterator[tuple[str, list[str], list[str]]]


def is_remote(path: str) -> bool:
    """Whether a path names a file system of its own, as gs://bucket/name does."""
    return _SCHEME.match(path) is not None


def located(path: str, directory: str) -> str:
    """The path, relative ones joined to `directory`; "": the current directory."""
    return path if is_remote(path) else os.path.join(directory, path)


def expand_inputs(patterns: list[str], suffix: str = "") -> list[str]:
    """The files that the patterns stand for: in the patterns' order, sorted within each.

    A pattern is a file, a directory (all files below it but hidden ones) or a glob, in which
    `**` stands for any number of directories (on the local disk only); a glob stands for the
    files it matches. A file is listed once, however many patterns name it.

    Args:
      patterns: local, or with a scheme such as gs://.
      suffix: of a directory, only the files whose names end so.

    Raises:
      UserError: no patterns, or one that matches no file; a directory that cannot be read.
    """
    if not patterns:
        raise UserError("no input is given; name files, directories or patterns with --input")
    files: dict[str, str] = {}
    for pattern in patterns:
        for path in _expand(pattern, suffix):
            files.setdefault(path if is_remote(path) else os.path.abspath(path), path)
    return list(files.values())


def is_file(path: str) -> bool:
    """Whether there is something at a local or a remote path that is not a directory."""
    if not is_remote(path):
        return os.path.exists(path) and not os.path.isdir(path)
    import tensorflow as tf

    return tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path)


def _expand(pattern: str, suffix: str) -> list[str]:
    if not pattern:
        raise UserError("an input pattern is empty; take out the superfluous comma of --input")
    if is_remote(pattern):
        is_dir, matches, walk = _look_up(pattern)
    else:
        # Before globbing, as a file's own name may hold brackets.
        is_dir, walk = os.path.isdir, _walk
        exists = os.path.exists(pattern)
        matches = [pattern] if exists else glob.glob(pattern, recursive=True)
    if is_dir(pattern):
        found = sorted(path for path in _files_below(walk(pattern)) if path.endswith(suffix))
        if not found:
            what = f"no {suffix} files" if suffix else "no files"
            raise UserError(f"{pattern}: {what} in this directory; check --input")
        return found
    found = sorted(match for match in matches if not is_dir(match))
    if matches and not found:
        raise UserError(f"{pattern}: matches only directories; add /* to name the files in them")
    if not found:
        raise UserError(f"{pattern}: no such file, and nothing matches; check --input")
    return found


def _look_up(
    pattern: str,
) -> tuple[Callable[[str], bool], list[str], Callable[[str], _Walk]]:
    """What `_expand` needs to know of a remote pattern: is_dir, matches, walk."""
    import tensorflow as tf

    try:
        exists = tf.io.gfile.exists(pattern)
        matches = [pattern] if exists else tf.io.gfile.glob(pattern)
    except tf.errors.OpError as error:
        raise UserError(f"{pattern}: cannot be looked up ({error.message[:160]})") from None
    return tf.io.gfile.isdir, matches, tf.io.gfile.walk


def _walk(directory: str) -> _Walk:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be listed ({error.strerror})") from None

    return os.walk(directory, onerror=refuse)


def _files_below(walk: _Walk) -> Iterator[str]:
    for parent, directories, names in walk:
        # In place: the walk goes on with what is left.
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield os.path.join(parent, name)
