"""Keeps sentences of evaluation sets out of training text."""

import csv
import dataclasses
import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from data_prep.readers.document import Document
from data_prep.stages.duplicates_text import analyse, exact_keys
from official_cmlm.errors import UserError

# A class in front of the sentence: SST's fine labels, TREC's questions.
_CLASS = re.compile(r"(?:\d|[A-Z]+:\w+)\s+(?=\S)")
# Brackets as the Penn Treebank, and SST after it, write them.
_BRACKETS = re.compile(r"-[LR][RCS]B-", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?…。！？।؟]\W*$")
# Where one sentence may end and another begin; spares most cells the splitter.
_SEVERAL = re.compile(r"[.!?…।؟]\W*\s\W*\w|[。！？]\W*\w")
_BATCH_LINES = 4096


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Sentences that may not be trained on, as hashes.

    A sentence is told by its letters (`duplicates_text`): case, punctuation, white space and so
    tokenisation do not count.

    Attributes:
      keys: hashes of the sentences, sorted and unique, uint64.
      skipped: files that hold no text, such as archives.
    """

    keys: np.ndarray
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, paths: Iterable[str]) -> "Exclusion":
        """Reads evaluation files of any form: what may be a sentence is taken for one.

        That is every line and every cell of a line (between tabs; of `.csv` between commas), each
        also without a class in front, and each sentence of those with several. It has two words, or
        a script without spaces, or ends as sentences do.

        Args:
          paths: plain or gzip (`.gz`); UTF-8, else Latin-1. A file with NUL bytes is skipped.

        Raises:
          UserError: a file cannot be read, or no file holds a sentence.
        """
        paths = list(paths)
        skipped: list[str] = []
        keys = [np.zeros(0, np.uint64)]
        for path in paths:
            lines = _lines(path)
            if lines is None:
                skipped.append(path)
                continue
            for start in range(0, len(lines), _BATCH_LINES):
                batch = lines[start : start + _BATCH_LINES]
                texts = [
                    text for line in batch for text in _candidates(line, path.endswith(".csv"))
                ]
                keys.append(np.unique(exact_keys(analyse(texts))))
        found = np.unique(np.concatenate(keys))
        found = found[found != 0]
        if not len(found):
            raise UserError(f"{', '.join(paths) or '--exclude'}: no sentence to leave out in there")
        return cls(found, tuple(skipped))

    def keep(self, sentence: str) -> bool:
        """Whether a sentence may be trained on."""
        return bool(self.keep_each([sentence])[0])

    def keep_each(self, sentences: Sequence[str]) -> np.ndarray:
        """As `keep`, of many at once, which is many times faster; [sentences], bool."""
        keys = exact_keys(analyse([_BRACKETS.sub(" ", sentence) for sentence in sentences]))
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[places] != keys

    def split(self, sentences: Sequence[str], counters: Counter[str]) -> list[list[str]]:
        """The runs of consecutive sentences that may be trained on.

        The sentences on both sides of one left out are no neighbours. So a caller makes each run a
        document of its own, and lets what follows this document continue it only if the last
        sentence stayed (as `keep` tells); with one run and nothing counted all is as it was.

        Args:
          sentences: of a document, in order.
          counters: `excluded_sentences` counts those left out.
        """
        runs: list[list[str]] = [[]]
        for sentence, kept in zip(sentences, self.keep_each(sentences).tolist()):
            if kept:
                runs[-1].append(sentence)
            else:
                counters["excluded_sentences"] += 1
                runs.append([])
        return [run for run in runs if run]


class Cutter:
    """Takes excluded sentences out of the documents of a file, which come in order."""

    def __init__(self, exclusion: Exclusion) -> None:
        self._exclusion = exclusion
        # Whether the last sentence so far stayed.
        self._whole = True

    def __call__(
        self, documents: Sequence[tuple[Document, list[str]]], counters: Counter[str]
    ) -> Iterator[tuple[Document, list[str]]]:
        """Yields (document, sentences) of what is left.

        Where sentences are taken out a document is cut, into `id`, `id/1`, …, as `Exclusion.split`
        says.

        Args:
          documents: the next documents with their sentences.
          counters: `excluded_sentences` counts those left out.
        """
        kept = self._exclusion.keep_each([s for _, sentences in documents for s in sentences])
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
            runs = self._exclusion.split(sentences, counters)
            for number, run in enumerate(runs):
                name = f"{document.id}/{number}" if number else document.id
                joins = joins and not number and bool(marks[0])
                yield dataclasses.replace(document, id=name, continues=joins), run


def _lines(path: str) -> list[str] | None:
    """The lines of a file; None if it is not text."""
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; check --exclude") from None
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        # TREC's questions; any bytes are Latin-1.
        return data.decode("latin-1").splitlines()


def _candidates(line: str, commas: bool) -> Iterator[str]:
    """What may be a sentence in a line of an evaluation file."""
    import sentencex

    cells = {line, *line.split("\t")}
    if commas and "\t" not in line:
        cells.update(next(csv.reader([line]), ()))
    cells.update([_CLASS.sub("", cell, count=1) for cell in cells if _CLASS.match(cell)])
    for cell in cells:
        cell = _BRACKETS.sub(" ", cell)
        if _may_be_a_sentence(cell):
            yield cell
            if _SEVERAL.search(cell):
                yield from filter(_may_be_a_sentence, sentencex.segment("en", cell))


def _may_be_a_sentence(text: str) -> bool:
    if len(text.split()) > 1 or _SENTENCE_END.search(text):
        return True
    # Without spaces between words, four characters are a text.
    return not text.isascii() and len(analyse([text]).words) > 3
