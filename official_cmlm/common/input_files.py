"""Input files: which ones a path, a directory or a pattern names, on the local disk or elsewhere.

A remote path has a scheme, such as gs://; fsspec reads it, with the package of that file system.
"""

import contextlib
import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.extras import check_extra
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

    A pattern is a file, a directory (all files below it but hidden ones) or a glob, in which
    `**` matches any number of directories (on the local disk only). A file is listed once, however
    many patterns name it.

    If an entry of a directory or a match of a glob is not a file but e.g. a pipe, it is left out
    with a line on standard error. Globs follow links to directories, each directory once; in a
    directory such links are left out, with a line too.

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
        for path in _expand(pattern, suffix):
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
    check_extra("data", "fsspec")
    from fsspec.core import url_to_fs

    try:
        yield url_to_fs(path)
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check --input") from None
    except Exception as error:
        raise UserError(f"{path}: cannot be opened ({error or type(error).__name__})") from None


def _expand(pattern: str, suffix: str) -> list[str]:
    if not pattern:
        raise UserError("an input pattern is empty; take out the superfluous comma of --input")
    refuse_special(pattern)
    if is_remote(pattern):
        found = _remote_files(pattern, suffix)
    elif os.path.isdir(pattern):
        found = _regular(
            os.path.join(folder, name)
            for folder, _, names in _walk(pattern)
            for name in names
            if name.endswith(suffix)
        )
        if not found:
            what = f"no {suffix} files" if suffix else "no files"
            raise UserError(f"{pattern}: {what} in this directory; check --input")
    # This comes before globbing, as a file's own name may hold brackets.
    elif os.path.lexists(pattern):
        if not os.path.exists(pattern):
            raise UserError(f"{pattern}: a link that leads to no file; check --input")
        found = [pattern]
    else:
        matches = _regular(_glob(pattern))
        found = [match for match in matches if not os.path.isdir(match)]
        if matches and not found:
            raise UserError(
                f"{pattern}: matches only directories; add /* to name the files in them"
            )
    if not found:
        raise UserError(f"{pattern}: no such file, and nothing matches; check --input")
    return sorted(found)


def _remote_files(pattern: str, suffix: str) -> list[str]:
    with remote_system(pattern) as (system, name):
        if system.isdir(name):
            # Hidden files, and those in hidden directories, are left out.
            found = [
                path
                for path in system.find(name)
                if path.endswith(suffix) and "/." not in path[len(name.rstrip("/")) :]
            ]
        elif system.isfile(name):
            found = [name]
        else:
            matches = system.glob(name, detail=True).items()
            found = [path for path, info in matches if info["type"] != "directory"]
        return [system.unstrip_protocol(path) for path in found]


def _skip(path: str, what: str) -> None:
    print(f"skipped: {one_line(path)}: {what}", file=sys.stderr, flush=True)


def _regular(paths: Iterable[str]) -> list[str]:
    """Returns the paths without pipes, sockets and devices; prints a line for each of these.

    A link to nothing stays, so that opening it reports the missing text.
    """
    kept = []
    for path in paths:
        if kind := name_special_kind(path):
            _skip(path, f"{kind}, not a file")
        else:
            kept.append(path)
    return kept


def _glob(pattern: str) -> list[str]:
    """Globs as `glob.glob` does with `**`, but enters a directory once, even if links lead to it.

    Two links that lead back to their own directory would give 2^40 paths otherwise.
    """
    parts = pattern.split(os.sep)
    if "**" not in parts:
        return glob.glob(pattern)
    at = parts.index("**")
    head, tail = os.sep.join(parts[:at]), parts[at + 1 :]
    if at == 1 and not head:
        head = os.sep
    roots = [head] if os.path.isdir(head) else glob.glob(head) if head else [""]
    found: dict[str, None] = {}
    for root in roots:
        for folder in _folders_below(root):
            # `a/**` names all files below a; `a/**/b` any b below it.
            rest = os.path.join(glob.escape(folder), *(tail or ["*"]))
            found.update(dict.fromkeys(_glob(rest)))
    return list(found)


def _folders_below(root: str) -> Iterator[str]:
    """Yields a directory and all directories below it that are not hidden; links are followed."""
    seen: set[tuple[int, int]] = set()
    for parent, directories, _ in _walk(root, follow=True):
        status = os.stat(parent or os.curdir)
        if (status.st_dev, status.st_ino) in seen:
            directories.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        yield parent


def _walk(directory: str, follow: bool = False) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walks as `os.walk` does, without hidden entries; prints a line for links not followed."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be listed ({error.strerror})") from None

    for parent, directories, names in os.walk(
        directory or os.curdir, onerror=refuse, followlinks=follow
    ):
        # Names are relative to the pattern: `**/a` gives `b/a`, not `./b/a`.
        shown = parent if directory else os.path.relpath(parent) if parent != os.curdir else ""
        # Changed in place, as the walk goes on with the directories in the list.
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for path in () if follow else (os.path.join(shown, name) for name in directories):
            if os.path.islink(path):
                _skip(path, "a link to a folder; name it with --input to read it too")
        yield shown, directories, [name for name in names if not name.startswith(".")]
