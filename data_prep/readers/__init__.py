"""Readers of text: which there are, and which suits a file."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from official_cmlm.errors import UserError
from official_cmlm.input_files import expand_inputs, located

from . import crawl_files, docstrings, jsonl, plain_text, tfds
from .document import Document, Part, ReadOptions
from .files import (
    TextFile,
    expand_text_files,
    is_plain,
    size_of,
)
from .report import ReadReport, guarded

__all__ = [
    "READER_NAMES",
    "Document",
    "Part",
    "ReadOptions",
    "ReadReport",
    "TextFile",
    "expand_inputs",
    "expand_text_files",
    "measure",
    "read_documents",
    "read_file",
    "reader_for",
    "size_of",
]

# Called with (path, options, report), and by readers of parts with one. Documents come in the order
# of the file, which is the same each time.
Reader = Callable[..., Iterator[Document]]

_READERS: dict[str, Reader] = {
    "text": plain_text.read,
    "jsonl": jsonl.read,
    "wet": crawl_files.read_wet,
    "warc": crawl_files.read_warc,
    "tfds": tfds.read,
    "docstrings": docstrings.read,
}
# A smaller part of a file is not worth to be opened for itself.
LEAST_PART_BYTES = 1 << 16
READER_NAMES = ("auto", *_READERS)
_COMPRESSED = (".gz", ".zst")
_EXTENSIONS = {".jsonl": "jsonl", ".wet": "wet", ".warc": "warc", ".py": "docstrings"}


def reader_for(path: str, name: str = "auto") -> Reader:
    """The reader called `name`, or with "auto" the one that the path's extension asks for.

    Raises:
      UserError: no reader has that name.
    """
    if name == "auto":
        name = _name_for(path)
    if name not in _READERS:
        raise UserError(f"no reader is called {name!r}; choose one of {', '.join(READER_NAMES)}")
    return _READERS[name]


def _name_for(path: str) -> str:
    if path.startswith(tfds.PREFIX):
        return "tfds"
    path = path.lower()
    for ending in _COMPRESSED:
        # Published as json.gz are files of JSON lines; a plain .json is one object.
        if path.endswith(f".json{ending}"):
            return "jsonl"
        path = path.removesuffix(ending)
    return next((name for end, name in _EXTENSIONS.items() if path.endswith(end)), "text")


def read_documents(
    files: Iterable[str | TextFile],
    options: ReadOptions,
    report: ReadReport,
    reader: str = "auto",
) -> Iterator[Document]:
    """Yields the documents of all files, in order.

    Args:
      files: paths, or files with their languages.
      options: how they are read.
      report: counts what is read.
      reader: name of the reader.

    Raises:
      UserError: what a reader raises, if `options.on_error` is "fail"; with "skip" such a file is
        left out from the fault on, and it is an error only if no file could be read to its end.
    """
    count = 0
    for file in files:
        count += 1
        path, language = file if isinstance(file, TextFile) else (file, "")
        yield from read_file(path, options, report, reader, language=language)
    report.raise_if_all_failed(count)


def measure(path: str, options: ReadOptions, reader: str = "auto") -> tuple[int, int]:
    """The size of a file as stored, in bytes, and what its parts are counted in; 0: it has none.

    Parts can be read of plain local files of JSON lines, or of text whose documents end at blank
    lines, in bytes; and of data sets, in examples.

    Raises:
      UserError: no such data set.
    """
    read = reader_for(path, reader)
    if read is tfds.read:
        return tfds.measure(path, options)
    size = size_of(located(path, options.directory))
    by_lines = read is plain_text.read and options.documents_by == "blank_line"
    if size < 2 * LEAST_PART_BYTES or not (read is jsonl.read or by_lines):
        return size, 0
    return size, size if is_plain(located(path, options.directory)) else 0


def read_file(
    path: str,
    options: ReadOptions,
    report: ReadReport,
    reader: str = "auto",
    part: Part | None = None,
    language: str = "",
) -> Iterator[Document]:
    """Yields the documents of one of several files; raises as `read_documents` does with "fail".

    With `part` only those of it, in the units of `measure`; the parts of a file together give the
    documents of the whole file. `language` overrides that of the options.
    """
    if language:
        options = dataclasses.replace(options, language=language)
    read = reader_for(path, reader)
    documents = read(path, options, report, part) if part else read(path, options, report)
    return guarded(path, documents, options.on_error, report)
