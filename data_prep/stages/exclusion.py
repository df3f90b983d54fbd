"""Keeps sentences of evaluation sets out of training text."""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write, atomic_write_text, write_array

from ..readers.document import Document, ReadOptions
from ..readers.report import ReadReport, guarded
from .duplicates_text import analyse, exact_keys
from .exclusion_files import candidates, normal_brackets, several_sentences
from .sentence_cutter import SentenceCutter

_BATCH_TEXTS = 4096
# Not `.json`, as the results of the pipeline's phases are named.
_KEYS_FILE, _FAULTS_FILE = "exclusion.npy", "exclusion.faults"


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Sentences that may not be trained on, as hashes.

    Sentences are compared by their letters (`duplicates_text`): differences of case, punctuation,
    white space and tokenisation do not count.

    Attributes:
      keys: hashes of the sentences, sorted and unique, uint64.
      faults: a message for each file that could not be read to its end; only its sentences before
        the fault are in `keys`.
    """

    keys: np.ndarray
    faults: tuple[str, ...] = ()

    @classmethod
    def of(cls, paths: Iterable[str], options: ReadOptions | None = None) -> "Exclusion":
        """Reads evaluation files of any form; `exclusion_files.candidates` says what is taken.

        Args:
          paths: the files.
          options: the limits of lines and of what a file may expand to, and with `on_error` what
            a file does that cannot be read: "fail" (default), as else a leak would be silent, or
            "skip".

        Raises:
          UserError: a file cannot be read, or no file holds a sentence.
        """
        options = options or ReadOptions()
        paths, report = list(paths), ReadReport()
        keys = [np.zeros(0, np.uint64)]
        for path in paths:
            found = guarded(path, candidates(path, options, report), options.on_error, report)
            while batch := list(itertools.islice(found, _BATCH_TEXTS)):
                keys.append(np.unique(exact_keys(analyse(batch))))
        known = np.unique(np.concatenate(keys))
        known = known[known != 0]
        faults = tuple(report.files_failed.values())
        if not len(known):
            detail = f" ({faults[0]})" if faults else ""
            raise UserError(
                f"{', '.join(paths) or '--exclude'}: no sentence to leave out in there{detail}"
            )
        return cls(known, faults)

    def save(self, folder: Path) -> None:
        """Writes the files that `load` reads."""
        with atomic_write(folder / _KEYS_FILE) as file:
            write_array(file, self.keys)
        atomic_write_text(folder / _FAULTS_FILE, json.dumps(self.faults))

    @classmethod
    def load(cls, folder: Path) -> "Exclusion":
        """Reads what `save` wrote."""
        keys = np.load(folder / _KEYS_FILE, allow_pickle=False)
        return cls(keys, tuple(json.loads((folder / _FAULTS_FILE).read_bytes())))

    def keep(self, sentence: str) -> bool:
        """Whether a sentence may be trained on."""
        return bool(self.keep_each([sentence])[0])

    def keep_each(self, sentences: Sequence[str]) -> np.ndarray:
        """As `keep`, of many at once, which is many times faster; [sentences], bool."""
        keys = exact_keys(analyse([normal_brackets(sentence) for sentence in sentences]))
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[places] != keys

    def keep_whole(self, texts: Sequence[tuple[str, str]]) -> np.ndarray:
        """Whether a text may be trained on as a whole, and so may each of its sentences.

        Args:
          texts: each with its language.

        Returns:
          [texts], bool.
        """
        parts = [[text, *several_sentences(text, language)] for text, language in texts]
        kept = self.keep_each(list(itertools.chain.from_iterable(parts)))
        if not parts:
            return kept
        starts = np.cumsum([0, *map(len, parts[:-1])])
        return np.logical_and.reduceat(kept, starts)


class Cutter(SentenceCutter):
    """Takes excluded sentences out of the documents of a file."""

    stage = "exclude"
    reason = "exclude/sentence"
    none_left = "exclude/no_sentence_left"

    def __init__(self, exclusion: Exclusion) -> None:
        super().__init__()
        self._exclusion = exclusion

    def keep(self, documents: Sequence[tuple[Document, list[str]]]) -> np.ndarray:
        """Whether each sentence may be trained on."""
        return self._exclusion.keep_each([s for _, sentences in documents for s in sentences])
