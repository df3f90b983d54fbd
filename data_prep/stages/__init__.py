"""Stages: what happens to a document between the reader and the records.

A stage is a frozen dataclass, its settings, that is called with a document and counters and
returns the document, changed or not, or None to drop it. It knows nothing of other documents, so
neither their order nor the number of workers can change what it does. Each document or paragraph
that it drops is counted by `count_dropped` under `stage/reason`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from data_prep.readers.document import Document
from data_prep.samples import SAMPLE_CHARACTERS
from data_prep.tally import count_loss

__all__ = ["Chain", "Stage", "count_dropped", "keep_paragraphs"]


class Stage(Protocol):
    """A step of the way from text to records."""

    def __call__(self, document: Document, counters: Counter[str]) -> Document | None:
        """The document as it goes on, or None if it is dropped; counts what is dropped."""


def count_dropped(counters: Counter[str], reason: str, document: Document, text: str = "") -> None:
    """Counts a dropped document, or with `text` a dropped part of it; see `tally.count_loss`.

    Args:
      counters: `counters[reason]` grows by one; a `Tally` notes its language and an example.
      reason: a stable name, `stage/what_was_wrong`.
      document: what is dropped, or what the part is of.
      text: the paragraph or sentence.
    """
    languages = (document.language,)
    count_loss(counters, reason, languages, document.id, lambda: text or _opening(document))


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

    def __call__(self, document: Document, counters: Counter[str]) -> Document | None:
        """What the last stage makes of the document, or None if any drops it."""
        result: Document | None = document
        for stage in self.stages:
            if result is None:
                break
            result = stage(result, counters)
        return result

    def run(self, documents: Iterable[Document], counters: Counter[str]) -> Iterator[Document]:
        """Yields what is left of the documents, which come in the order of their file.

        A piece of a long document no longer continues the one before if that is dropped.
        """
        dropped = False
        for document in documents:
            result = self(document, counters)
            if result is not None:
                yield replace(result, continues=False) if dropped and result.continues else result
            dropped = result is None


def _opening(document: Document) -> str:
    """As much of the beginning as a sample shows, without joining a whole book."""
    text = ""
    for paragraph in document.paragraphs:
        text += ("\n" if text else "") + paragraph[:SAMPLE_CHARACTERS]
        if len(text) > SAMPLE_CHARACTERS:
            break
    return text
