"""Input files: which ones a path, a directory or a pattern names, on the local disk or elsewhere.

A remote path has a scheme, such as gs://; fsspec reads it, with the package of that file system.
"""

import contextlib
import glob
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.files import name_special_kind, refuse_special

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_remote(path: str) -> bool:
    """Returns whether a path names a file system of its own, as gs://bucket/name does."""
    return _SCHEME.match(path) is not None


def join_directory(path: str, directory: str) -> str:
    """Returns the path, joined to `directory` if it is relative; "": the current directory."""
    return path if is_remote(path) else os.path.join(directory, path)


def expand_inputs(patterns: list[str], suffix: str = "") -> list[str]:
    """Returns the files that the patterns name: in the patterns' order, sorted within each.

    A pattern is a file, a directory (all files below it but hidden ones) or a glob, in which `**`
    matches any number of directories. A file is listed once, however many patterns name it.

    If an entry of a directory or a match of a glob is not a file but e.g. a pipe, it is left out
    with a line on standard error; and so is a link to a directory that a directory or `**` leads
    to. Other parts of a glob follow such links.

    Args:
      patterns: local, or with a scheme such as gs://.
      suffix: ending of the names of files that are taken from a directory.

    Raises:
      UserError: no patterns, or one that matches no file; a directory that cannot be read; a pipe,
        a socket, a device or a link to nothing that a pattern names itself.
    """
    if not patterns:
        raise UserError("no input is given; name files, directories or patterns with --input")
    files: dict[str, str] = {}
    for pattern in patterns:
        if not pattern:
            raise UserError("an input pattern is empty; take out the superfluous comma of --input")
        expand = _expand_remote if is_remote(pattern) else _expand_local
        paths = sorted(expand(pattern, suffix))
        if not paths:
            raise UserError(f"{pattern}: no such file, and nothing matches; check --input")
        for path in paths:
            files.setdefault(path if is_remote(path) else os.path.abspath(path), path)
    return list(files.values())


def is_file(path: str) -> bool:
    """Returns whether a local or a remote path exists and is not a directory.

    Raises:
      UserError: it is a pipe, a socket or a device; or its file system cannot be asked.
    """
    if not is_remote(path):
        refuse_special(path)
        return os.path.exists(path) and not os.path.isdir(path)
    with remote_system(path) as (system, name):
        return system.isfile(name)


def size_of(path: str) -> int:
    """Returns the size of a file as it is stored, in bytes; 0 if it is unknown."""
    try:
        if not is_remote(path):
            return os.path.getsize(path)
        with remote_system(path) as (system, name):
            return int(system.size(name) or 0)
    except (OSError, UserError):
        # Opening it will fail too, with a better message.
        return 0


def open_stored(place: str, path: str) -> tuple[BinaryIO, bytes]:
    """Opens the local or remote file at `place`; returns it and its first four bytes.

    Messages call it `path`. The four bytes have been read from the file.

    Raises:
      UserError: it cannot be opened, or is a pipe, a socket or a device, which might never end.
    """
    refuse_special(place)
    try:
        if is_remote(place):
            with remote_system(place) as (system, name):
                file = system.open(name, "rb")
                return file, file.read(4)
        file = open(place, "rb")
        return file, file.read(4)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check --input") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a directory; name the files in it") from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be opened ({error.strerror or error}); check its permissions"
        ) from None


@contextlib.contextmanager
def remote_system(path: str) -> Iterator[tuple[Any, str]]:
    """Yields a file system of fsspec, and the path's name in it; raises `UserError` for its faults.

    All exceptions count as its faults, as each file system has error classes of its own.
    """
    from fsspec.core import url_to_fs

    try:
        yield url_to_fs(path)
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check --input") from None
    except Exception as error:
        raise UserError(f"{path}: cannot be opened ({error or type(error).__name__})") from None


def _expand_remote(pattern: str, suffix: str) -> list[str]:
    with remote_system(pattern) as (system, name):
        if system.isdir(name):
            # Hidden files, and those in hidden directories, are left out.
            start = len(name.rstrip("/"))
            paths = [
                path
                for path in system.find(name)
                if path.endswith(suffix) and "/." not in path[start:]
            ]
        else:
            paths = [path for path in system.glob(name) if system.isfile(path)]
        return [system.unstrip_protocol(path) for path in paths]


def _expand_local(pattern: str, suffix: str) -> list[str]:
    refuse_special(pattern)
    if os.path.isdir(pattern):
        paths = [path for path in walk_files(pattern) if path.endswith(suffix)]
        if not paths:
            what = f"no {suffix} files" if suffix else "no files"
            raise UserError(f"{pattern}: {what} in this directory; check --input")
        return paths
    # This comes before globbing, as a file's own name may hold brackets.
    if os.path.lexists(pattern):
        if not os.path.exists(pattern):
            raise UserError(f"{pattern}: a link that leads to no file; check --input")
        return [pattern]
    matches = [path for path in _glob(pattern) if _is_regular(path)]
    paths = [path for path in matches if not os.path.isdir(path)]
    if matches and not paths:
        raise UserError(f"{pattern}: matches only directories; add /* to name the files in them")
    return paths


def _glob(pattern: str) -> list[str]:
    """Globs as `glob.glob` does, but `**` neither follows links nor passes over closed folders."""
    parts = pattern.split(os.sep)
    if "**" not in parts:
        return glob.glob(pattern)
    from fsspec.utils import glob_translate

    head = os.sep.join([*parts[: parts.index("**")], ""])
    matches = re.compile(glob_translate(pattern)).match
    return [
        path
        for root in (glob.glob(head) if head else [""])
        for path in walk_files(root)
        if matches(path)
    ]


def walk_files(directory: str) -> Iterator[str]:
    """Yields the files below a directory ("": the current one) that are not hidden.

    They may be links to nothing; pipes and the like are left out with a line on standard error.

    Raises:
      UserError: a directory below cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be listed ({error.strerror})") from None

    for parent, directories, names in os.walk(directory or os.curdir, onerror=refuse):
        # Names are relative to the pattern: `**/a` gives `b/a`, not `./b/a`.
        shown = parent if directory else parent.removeprefix(os.curdir).lstrip(os.sep)
        # Changed in place, as the walk goes on with the directories in the list.
        directories[:] = [name for name in directories if not name.startswith(".")]
        for path in (os.path.join(shown, name) for name in directories):
            if os.path.islink(path):
                _skip(path, "a link to a folder; name it with --input to read it too")
        paths = (os.path.join(shown, name) for name in names if not name.startswith("."))
        yield from filter(_is_regular, paths)


def _is_regular(path: str) -> bool:
    """Returns whether a path may be read; prints a line for pipes, sockets and devices.

    A link to nothing may, so that opening it reports the missing text.
    """
    if kind := name_special_kind(path):
        _skip(path, f"{kind}, not a file")
    return not kind


def _skip(path: str, reason: str) -> None:
    print(f"skipped: {one_line(path)}: {reason}", file=sys.stderr, flush=True)
