"""Stages of data preparation: changes to a document between reader and records.

A stage is a function, or a frozen dataclass of settings that can be called. It gets a document and
counters and returns the document, changed or not, or None to drop it. It knows nothing of other
documents, so its result depends neither on their order nor on the number of workers. Each document
or paragraph that it drops is counted by `DropCounter.drop` under `stage/reason`.

Later, when documents are split into sentences, a `SentenceCutter` may take single ones out.
"""

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, TypeVar

import numpy as np

from ..counts import DropCounter
from ..readers.document import Document, cut_id

# Returns a document, changed or not, or None to drop it; counts what is dropped.
Stage = Callable[[Document, DropCounter], Document | None]
_Item = TypeVar("_Item")


def batches(
    items: Iterable[_Item], size: Callable[[_Item], int], most: int
) -> Iterator[list[_Item]]:
    """Yields runs of items; the last item of each brings the sum of their sizes to `most`."""
    batch: list[_Item] = []
    held = 0
    for item in items:
        batch.append(item)
        held += size(item)
        if held >= most:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def group_pieces(
    pieces: Iterable[_Item], continues: Callable[[_Item], bool]
) -> Iterator[Iterator[_Item]]:
    """Yields the pieces of each document; they follow each other, and are passed on one by one."""
    number = 0

    def count_documents(piece: _Item) -> int:
        nonlocal number
        number += not continues(piece)
        return number

    for _, document in itertools.groupby(pieces, count_documents):
        yield document


def keep_paragraphs(document: Document, paragraphs: list[str]) -> Document:
    """Returns the document with these paragraphs; the same object if nothing changes."""
    if paragraphs == document.paragraphs:
        return document
    return dataclasses.replace(document, paragraphs=paragraphs, line="")


def run_stages(
    stages: Sequence[Stage], documents: Iterable[Document], counters: DropCounter
) -> Iterator[Document]:
    """Yields the documents that no stage drops; they come in the order of their file.

    A piece of a long document no longer continues the previous piece if that was dropped.
    """
    dropped = False
    for document in documents:
        result: Document | None = document
        for stage in stages:
            result = stage(result, counters)
            if result is None:
                break
        if result is not None:
            cut = dropped and result.continues
            yield dataclasses.replace(result, continues=False) if cut else result
        dropped = result is None


class SentenceCutter(abc.ABC):
    """The decision about which sentences of a file's documents stay; documents come in order.

    Where a sentence is taken out, the document is cut into pieces named by `cut_id`: the sentences
    on both sides of it are not neighbours, and training takes neighbours for consecutive text. A
    piece does not continue the previous piece if the last sentence of that was taken out.

    Attributes:
      stage: the name that `cut_id` gives to pieces.
      reason: counts the sentences that are taken out.
      none_left: counts the documents of which nothing is left.
    """

    stage: ClassVar[str]
    reason: ClassVar[str]
    none_left: ClassVar[str]

    def __init__(self) -> None:
        # Whether the last sentence of the document before stayed.
        self._whole = True

    @abc.abstractmethod
    def keep(self, documents: Sequence[tuple[Document, list[str]]]) -> np.ndarray:
        """Returns whether each sentence stays; bool `[sentences of all documents]`."""

    def __call__(
        self, documents: Sequence[tuple[Document, list[str]]], counters: DropCounter
    ) -> Iterator[tuple[Document, list[str]]]:
        """Yields (document, sentences that stay), in order.

        Args:
          documents: the next documents with their sentences.
          counters: counts what is left out.
        """
        all_marks = self.keep(documents)
        start = 0
        for document, sentences in documents:
            marks = all_marks[start : start + len(sentences)]
            start += len(sentences)
            joins = document.continues and self._whole
            self._whole = bool(marks[-1]) if len(marks) else True
            if marks.all():
                if joins != document.continues:
                    document = dataclasses.replace(document, continues=joins)
                yield document, sentences
                continue
            for stays in marks.tolist():
                if not stays:
                    counters.drop(self.reason, document.language)
            if not marks.any():
                counters.drop(self.none_left, document.language)
            for number, run in enumerate(_runs(sentences, marks)):
                name = cut_id(document.id, self.stage, number)
                joins = joins and not number and bool(marks[0])
                yield dataclasses.replace(document, id=name, continues=joins), run


def _runs(sentences: list[str], marks: np.ndarray) -> Iterator[list[str]]:
    """Yields the runs of consecutive sentences that stay."""
    for stays, group in itertools.groupby(zip(sentences, marks.tolist()), lambda pair: pair[1]):
        if stays:
            yield [sentence for sentence, _ in group]
