"""Readers of text: which there are, which suits a file, and which files a pattern stands for."""

import glob
import os
from collections.abc import Callable, Iterator

from data_prep.readers import jsonl, plain_text
from data_prep.readers.decoding import ReadReport
from data_prep.readers.document import Document, ReadOptions
from official_cmlm.errors import UserError

__all__ = [
    "READER_NAMES",
    "Document",
    "ReadOptions",
    "ReadReport",
    "expand_inputs",
    "read_documents",
    "reader_for",
]

Reader = Callable[[str, ReadOptions, ReadReport], Iterator[Document]]

_READERS: dict[str, Reader] = {"text": plain_text.read, "jsonl": jsonl.read}
READER_NAMES = ("auto", *_READERS)
_JSONL_EXTENSIONS = (".jsonl", ".jsonl.gz", ".json.gz")


def reader_for(path: str, name: str = "auto") -> Reader:
    """The reader called `name`, or with "auto" the one that the path's extension asks for.

    Raises:
      UserError: no reader has that name.
    """
    if name == "auto":
        name = "jsonl" if path.lower().endswith(_JSONL_EXTENSIONS) else "text"
    if name not in _READERS:
        raise UserError(f"no reader is called {name!r}; choose one of {', '.join(READER_NAMES)}")
    return _READERS[name]


def read_documents(
    paths: list[str], options: ReadOptions, report: ReadReport, reader: str = "auto"
) -> Iterator[Document]:
    """Yields the documents of all files, in order; raises what the readers raise."""
    for path in paths:
        yield from reader_for(path, reader)(path, options, report)


def expand_inputs(patterns: list[str]) -> list[str]:
    """The files that the patterns stand for: in the patterns' order, sorted within each.

    A pattern is a file, a directory (all files below it but hidden ones) or a glob, in which
    `**` stands for any number of directories; a glob stands for the files it matches. A file is
    listed once, however many patterns name it.

    Raises:
      UserError: no patterns, or one that matches no file.
    """
    if not patterns:
        raise UserError("no input is given; name files, directories or patterns with --input")
    files: dict[str, str] = {}
    for pattern in patterns:
        for path in _expand(pattern):
            files.setdefault(os.path.abspath(path), path)
    return list(files.values())


def _expand(pattern: str) -> list[str]:
    if not pattern:
        raise UserError("an input pattern is empty; take out the superfluous comma of --input")
    # Before globbing, as a file's own name may hold brackets.
    if os.path.isdir(pattern):
        found = sorted(_files_below(pattern))
        if not found:
            raise UserError(f"{pattern}: no files in this directory; check --input")
        return found
    if os.path.exists(pattern):
        return [pattern]
    matches = glob.glob(pattern, recursive=True)
    found = sorted(match for match in matches if not os.path.isdir(match))
    if matches and not found:
        raise UserError(f"{pattern}: matches only directories; add /* to name the files in them")
    if not found:
        raise UserError(f"{pattern}: no such file, and nothing matches; check --input")
    return found


def _files_below(directory: str) -> Iterator[str]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                yield os.path.join(parent, name)
