"""Stages: what happens to a document between the reader and the records.

A stage is a frozen dataclass, its settings, that is called with a document and counters and
returns the document, changed or not, or None to drop it. It knows nothing of other documents, so
neither their order nor the number of workers can change what it does. Each document or paragraph
that it drops is counted by `count_dropped` under `stage/reason`.
"""

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from data_prep.readers.document import Document

__all__ = ["Chain", "Samples", "Stage", "count_dropped", "keep_paragraphs"]

# Enough of a dropped text for a person to judge it, in characters.
SAMPLE_CHARACTERS = 300


class Stage(Protocol):
    """A step of the way from text to records."""

    def __call__(self, document: Document, counters: Counter[str]) -> Document | None:
        """The document as it goes on, or None if it is dropped; counts what is dropped."""


@dataclass
class Samples:
    """Examples of what was dropped: of each reason those with the smallest hashes.

    Which ones are kept depends on the documents alone, neither on their order nor on how they
    are divided among workers, whose samples `merge` joins.

    Attributes:
      limit: examples of each reason.
      kept: by reason, a heap of (-hash, document's id, text's beginning).
    """

    limit: int
    kept: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)

    def offer(self, reason: str, document_id: str, text: str) -> None:
        """Keeps the example if its hash is among the `limit` smallest of its reason."""
        # A half surrogate in an id or a text must not stop the run.
        key = f"{document_id}\n{text}".encode("utf-8", "replace")
        digest = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        self._offer(reason, (-digest, document_id, text[:SAMPLE_CHARACTERS]))

    def merge(self, other: "Samples") -> None:
        """Adds the examples of another worker."""
        for reason, examples in other.kept.items():
            for example in examples:
                self._offer(reason, tuple(example))

    def lines(self) -> Iterator[str]:
        """One JSON object {"reason", "id", "text"} for each example, sorted by reason and hash."""
        for reason, examples in sorted(self.kept.items()):
            for _, document_id, text in sorted(examples, reverse=True):
                example = {"reason": reason, "id": document_id, "text": text}
                yield json.dumps(example, ensure_ascii=False)

    def _offer(self, reason: str, example: tuple[int, str, str]) -> None:
        # A heap whose first entry has the largest hash, the next to go.
        kept = self.kept.setdefault(reason, [])
        if example in kept:
            return
        if len(kept) < self.limit:
            heapq.heappush(kept, example)
        elif kept and example > kept[0]:
            heapq.heapreplace(kept, example)


class _SamplingCounter(Counter[str]):
    """The counts of one document, with the samples that `count_dropped` fills."""

    samples: Samples


def count_dropped(counters: Counter[str], reason: str, document: Document, text: str = "") -> None:
    """Counts a dropped document, or with `text` a dropped paragraph of it, and may sample it.

    Args:
      counters: `counters[reason]` grows by one.
      reason: a stable name, `stage/what_was_wrong`.
      document: what is dropped, or what the paragraph is of.
      text: the paragraph.
    """
    counters[reason] += 1
    if isinstance(counters, _SamplingCounter):
        counters.samples.offer(reason, document.id, text or _opening(document))


def keep_paragraphs(document: Document, paragraphs: list[str]) -> Document:
    """The document with these paragraphs; itself if they are those it has."""
    if paragraphs == document.paragraphs:
        return document
    return replace(document, paragraphs=paragraphs)


class Chain:
    """Stages in order; a stage itself.

    Attributes:
      stages: what each document goes through, until one drops it.
      samples: examples of each reason; empty unless asked for.
    """

    def __init__(self, stages: Iterable[Stage], sample_dropped: int = 0) -> None:
        """Makes a chain that keeps `sample_dropped` examples of each reason."""
        self.stages = tuple(stages)
        self.samples = Samples(sample_dropped)

    def __call__(self, document: Document, counters: Counter[str]) -> Document | None:
        """What the last stage makes of the document, or None if any drops it."""
        if not self.samples.limit:
            return self._through(document, counters)
        counted = _SamplingCounter()
        counted.samples = self.samples
        result = self._through(document, counted)
        for reason, count in counted.items():
            counters[reason] += count
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

    def _through(self, document: Document, counters: Counter[str]) -> Document | None:
        result: Document | None = document
        for stage in self.stages:
            if result is None:
                break
            result = stage(result, counters)
        return result


def _opening(document: Document) -> str:
    """As much of the beginning as a sample shows, without joining a whole book."""
    text = ""
    for paragraph in document.paragraphs:
        text += ("\n" if text else "") + paragraph[:SAMPLE_CHARACTERS]
        if len(text) > SAMPLE_CHARACTERS:
            break
    return text
