"""Stages of data preparation: what happens to a document between reader and records.

A stage is a frozen dataclass of settings. Called with a document and counters, it returns the
document, changed or not, or None to drop it. It knows nothing of other documents, so its result
depends neither on their order nor on the number of workers. Each document or paragraph that it
drops is counted by `drop_document` under `stage/reason`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from ..output.dropped import DropCounter
from ..readers.document import Document


class Stage(Protocol):
    """Changes or drops documents, one at a time."""

    def __call__(self, document: Document, counters: DropCounter) -> Document | None:
        """The document, changed or not, or None if it is dropped; counts what is dropped."""


def keep_paragraphs(document: Document, paragraphs: list[str]) -> Document:
    """The document with these paragraphs; itself if they are those it has."""
    if paragraphs == document.paragraphs:
        return document
    return replace(document, paragraphs=paragraphs)


class Chain:
    """Stages in order; a stage itself.

    Attributes:
      stages: what each document goes through, until one drops it.
    """

    def __init__(self, stages: Iterable[Stage]) -> None:
        self.stages = tuple(stages)

    def __call__(self, document: Document, counters: DropCounter) -> Document | None:
        """What the last stage makes of the document, or None if any drops it."""
        result: Document | None = document
        for stage in self.stages:
            if result is None:
                break
            result = stage(result, counters)
        return result

    def run(self, documents: Iterable[Document], counters: DropCounter) -> Iterator[Document]:
        """Yields what is left of the documents, which come in the order of their file.

        A piece of a long document no longer continues the one before if that is dropped.
        """
        dropped = False
        for document in documents:
            result = self(document, counters)
            if result is not None:
                yield replace(result, continues=False) if dropped and result.continues else result
            dropped = result is None
