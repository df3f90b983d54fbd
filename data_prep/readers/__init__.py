"""Readers of text: a registry of them, and the choice of the one that suits a file."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from official_cmlm.common.errors import UserError
from official_cmlm.common.input_files import expand_inputs, is_remote, join_directory, size_of
from official_cmlm.common.languages import check_language_tag
from official_cmlm.common.text_files import strip_compression

from ..counts import Counts, guard_faults
from . import crawl_files, docstrings, jsonl, plain_text, tfds
from .document import Document, ReadOptions

# A reader yields the documents in the order of the file, the same each time.
Reader = Callable[[str, ReadOptions, Counts], Iterator[Document]]

_READERS: dict[str, Reader] = {
    "text": plain_text.read,
    "jsonl": jsonl.read,
    "wet": crawl_files.read_wet,
    "warc": crawl_files.read_warc,
    "tfds": tfds.read,
    "docstrings": docstrings.read,
}
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
    packed, path = path.lower(), strip_compression(path.lower())
    # Files of JSON lines are published as json.gz; a plain .json is one object.
    if path.endswith(".json") and packed != path:
        return jsonl.read
    if path.endswith(_TABLES):
        raise UserError(
            f"{path}: a table, not running text; save its text as .txt or .jsonl, or give "
            "--reader=text to read its lines as they are"
        )
    readers = (read for end, read in _EXTENSIONS.items() if path.endswith(end))
    return next(readers, plain_text.read)


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


def get_stored_size(path: str, options: ReadOptions) -> int:
    """Returns the stored size of a file or a data set in bytes; 0 for a file that is missing.

    Raises:
      UserError: no such data set.
    """
    if path.startswith(tfds.PREFIX):
        return tfds.get_stored_size(path, options)
    return size_of(join_directory(path, options.directory))


def read_file(
    path: str,
    options: ReadOptions,
    counts: Counts,
    reader: str = "auto",
    language: str = "",
) -> Iterator[Document]:
    """Yields the documents of one of several files; raises as `read_documents` does with "fail".

    A `language` takes the place of the options' language.
    """
    if language:
        options = dataclasses.replace(options, language=language)
    documents = reader_for(path, reader)(path, options, counts)
    return guard_faults(path, _with_text(documents, counts), options.on_error, counts)


def _with_text(documents: Iterable[Document], counts: Counts) -> Iterator[Document]:
    """Passes on the documents with text, and counts the others as left out."""
    for document in documents:
        if document.paragraphs:
            counts.documents_read += 1
            yield document
        else:
            counts.counters.drop("read/without_text")
