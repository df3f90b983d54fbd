"""Takes single sentences out of documents, which are cut there."""

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ..output.dropped import DropCounter, drop_document
from ..readers.document import Document, cut_id


class SentenceCutter(abc.ABC):
    """Decides which sentences of the documents of a file stay; the documents come in order.

    Where a sentence is taken out, the document is cut into pieces named by `cut_id`: the sentences
    on both sides of it are not neighbours, and training takes neighbours for consecutive text. A
    piece does not continue the one before whose last sentence was taken out.

    Attributes:
      stage: what `cut_id` names the pieces by.
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
        """Whether each sentence stays; bool `[sentences of all documents]`."""

    def __call__(
        self, documents: Sequence[tuple[Document, list[str]]], counters: DropCounter
    ) -> Iterator[tuple[Document, list[str]]]:
        """Yields (document, sentences) of what is left, in order.

        Args:
          documents: the next documents with their sentences.
          counters: counts what is left out.
        """
        kept = self.keep(documents)
        start = 0
        for document, sentences in documents:
            marks = kept[start : start + len(sentences)]
            start += len(sentences)
            joins = document.continues and self._whole
            self._whole = bool(marks[-1]) if len(marks) else True
            if marks.all():
                if joins != document.continues:
                    document = dataclasses.replace(document, continues=joins)
                yield document, sentences
                continue
            for sentence, stays in zip(sentences, marks.tolist()):
                if not stays:
                    drop_document(counters, self.reason, document, sentence)
            if not marks.any():
                drop_document(counters, self.none_left, document)
            for number, run in enumerate(_runs(sentences, marks)):
                name = cut_id(document.id, self.stage, number)
                joins = joins and not number and bool(marks[0])
                yield dataclasses.replace(document, id=name, continues=joins), run


def _runs(sentences: list[str], marks: np.ndarray) -> Iterator[list[str]]:
    """The runs of consecutive sentences that stay."""
    for stays, group in itertools.groupby(zip(sentences, marks.tolist()), lambda pair: pair[1]):
        if stays:
            yield [sentence for sentence, _ in group]
