"""Readers of text: a registry of them, and the choice of the one that suits a file."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from official_cmlm.common.errors import UserError
from official_cmlm.common.input_files import expand_inputs, is_remote, located, size_of
from official_cmlm.common.languages import check_language_tag
from official_cmlm.common.text_files import COMPRESSED

from ..counts import Counts, guarded
from . import crawl_files, docstrings, jsonl, plain_text, tfds
from .document import Document, Part, ReadOptions
from .lines import is_plain

# A reader is called with (path, options, counts), and with a part too if it can read parts. It
# yields the documents in the order of the file, the same each time.
Reader = Callable[..., Iterator[Document]]

_READERS: dict[str, Reader] = {
    "text": plain_text.read,
    "jsonl": jsonl.read,
    "wet": crawl_files.read_wet,
    "warc": crawl_files.read_warc,
    "tfds": tfds.read,
    "docstrings": docstrings.read,
}
# A smaller part of a file is not worth opening the file for.
LEAST_PART_BYTES = 1 << 16
READER_NAMES = ("auto", *_READERS)
_EXTENSIONS: dict[str, Reader] = {
    ".jsonl": jsonl.read,
    ".wet": crawl_files.read_wet,
    ".warc": crawl_files.read_warc,
    ".py": docstrings.read,
}
_TABLES = (".csv", ".tsv", ".parquet")
# `de:path`, but not the scheme of an address such as gs://.
_LANGUAGE_PREFIX = re.compile(r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*):(?!//)(.*)")


class TextFile(NamedTuple):
    """A file of text, or a data set.

    Attributes:
      path: as a reader takes it.
      language: language of the documents that do not name their own; empty:
        `ReadOptions.language`.
    """

    path: str
    language: str = ""


def expand_text_files(patterns: list[str], suffix: str = "") -> list[TextFile]:
    """Returns the files of patterns with or without a language, as in `de:books/*.txt`.

    A file that several patterns name has the language of the first one. A path that exists is
    never taken for a pattern with a language.

    Raises:
      UserError: as `expand_inputs` does; or a prefix that looks like a language is not one.
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


def reader_for(path: str, name: str = "auto") -> Reader:
    """Returns the reader called `name`, or with "auto" the one for the path's extension.

    Raises:
      UserError: with "auto", if the extension is that of a table.
    """
    if name != "auto":
        return _READERS[name]
    if path.startswith(tfds.PREFIX):
        return tfds.read
    path = path.lower()
    for ending in COMPRESSED:
        # Files of JSON lines are published as json.gz; a plain .json is one object.
        if path.endswith(f".json{ending}"):
            return jsonl.read
        path = path.removesuffix(ending)
    if path.endswith(_TABLES):
        raise UserError(
            f"{path}: a table, not running text; save its text as .txt or .jsonl, or give "
            "--reader=text to read its lines as they are"
        )
    found = (read for end, read in _EXTENSIONS.items() if path.endswith(end))
    return next(found, plain_text.read)


def read_documents(
    files: Iterable[str | TextFile],
    options: ReadOptions,
    counts: Counts,
    reader: str = "auto",
) -> Iterator[Document]:
    """Yields the documents of all files, in order.

    Raises:
      UserError: the error of a reader, if `options.on_error` is "fail"; with "skip" such a file is
        left out from the fault on, and it is an error only if no file could be read to its end.
    """
    count = 0
    for file in files:
        count += 1
        path, language = file if isinstance(file, TextFile) else (file, "")
        yield from read_file(path, options, counts, reader, language=language)
    counts.raise_if_all_failed(count)


def measure(path: str, options: ReadOptions, reader: str = "auto") -> tuple[int, int]:
    """Returns the stored size of a file in bytes, and its extent in the unit of its parts, or 0.

    Parts can be read of plain local files of JSON lines, or of text whose documents end at blank
    lines, in bytes; and of data sets, in examples.

    Raises:
      UserError: no such data set.
    """
    read = reader_for(path, reader)
    if read is tfds.read:
        return tfds.measure(path, options)
    place = located(path, options.directory)
    size = size_of(place)
    by_lines = read is plain_text.read and options.documents_by == "blank_line"
    if size < 2 * LEAST_PART_BYTES or not (read is jsonl.read or by_lines):
        return size, 0
    return size, size if is_plain(place) else 0


def read_file(
    path: str,
    options: ReadOptions,
    counts: Counts,
    reader: str = "auto",
    part: Part | None = None,
    language: str = "",
) -> Iterator[Document]:
    """Yields the documents of one of several files; raises as `read_documents` does with "fail".

    With `part`, in the units of `measure`, it yields the documents of that part; the parts of a
    file together give the documents of the whole file. `language` overrides the options' language.
    """
    if language:
        options = dataclasses.replace(options, language=language)
    read = reader_for(path, reader)
    documents = read(path, options, counts, part) if part else read(path, options, counts)
    return guarded(path, _with_text(documents, counts), options.on_error, counts)


def _with_text(documents: Iterable[Document], counts: Counts) -> Iterator[Document]:
    """Passes on the documents with text, and counts the others as left out."""
    for document in documents:
        if document.paragraphs:
            counts.documents_read += 1
            yield document
        else:
            counts.counters.drop("read/without_text", document.id, (), "")
