"""Readers of text: which there are, and which suits a file."""

from collections.abc import Callable, Iterator

from data_prep.readers import docstrings, jsonl, plain_text, tfds, warc, wet
from data_prep.readers.document import Document, ReadOptions
from data_prep.readers.opening import size_of
from data_prep.readers.paths import expand_inputs
from data_prep.readers.report import ReadReport, guarded
from official_cmlm.errors import UserError

__all__ = [
    "READER_NAMES",
    "Document",
    "ReadOptions",
    "ReadReport",
    "expand_inputs",
    "read_documents",
    "read_file",
    "reader_for",
    "size_of",
]

# Documents come in the order of the file, which is the same each time.
Reader = Callable[[str, ReadOptions, ReadReport], Iterator[Document]]

_READERS: dict[str, Reader] = {
    "text": plain_text.read,
    "jsonl": jsonl.read,
    "wet": wet.read,
    "warc": warc.read,
    "tfds": tfds.read,
    "docstrings": docstrings.read,
}
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
    paths: list[str], options: ReadOptions, report: ReadReport, reader: str = "auto"
) -> Iterator[Document]:
    """Yields the documents of all files, in order.

    Raises:
      UserError: what a reader raises, if `options.on_error` is "fail"; with "skip" such a file is
        left out from the fault on, and it is an error only if no file could be read to its end.
    """
    for path in paths:
        yield from read_file(path, options, report, reader)
    report.raise_if_all_failed(len(paths))


def read_file(
    path: str, options: ReadOptions, report: ReadReport, reader: str = "auto"
) -> Iterator[Document]:
    """Yields the documents of one of several files; raises as `read_documents` does with "fail"."""
    documents = reader_for(path, reader)(path, options, report)
    return guarded(path, documents, options.on_error, report)
