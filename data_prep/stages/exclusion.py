"""Keeps sentences of evaluation sets out of training text; reads evaluation files of any form."""

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, atomic_write_text, write_array
from official_cmlm.common.text_files import replace_surrogates, split_csv, strip_compression

from ..counts import Counts, guard_faults
from ..readers.document import Document, ReadOptions
from ..readers.plain_text import iter_lines
from ..sentences import SENTENCE_END_MARKS, UNAMBIGUOUS_MARKS, rejoin_titles, segment
from . import SentenceCutter
from .letters import analyse, letter_keys

_BATCH_TEXTS = 4096
# The names do not end with `.json`, as those of the pipeline's results do.
_KEYS_FILE, _FAULTS_FILE = "exclusion.npy", "exclusion.faults"
# A class in front of the sentence: SST's fine labels, TREC's questions.
_CLASS = re.compile(r"(?:\d|[A-Z]+:\w+)\s+(?=\S)")
# Brackets as the Penn Treebank, and SST after it, write them.
_BRACKETS = re.compile(r"-[LR][RCS]B-", re.IGNORECASE)
# All of these patterns take time that is linear in the length of any text.
_END_MARK = re.compile(rf"[{re.escape(SENTENCE_END_MARKS)}]")
_WORD = re.compile(r"\w")
_UP_TO_LAST_WORD = re.compile(r".*\w", re.DOTALL)
# A sentence of a script whose marks are unambiguous, without any language's own rules.
_PLAIN_SENTENCE = re.compile(rf"[^{UNAMBIGUOUS_MARKS}]+[{UNAMBIGUOUS_MARKS}]*")
# A string of JSON holds no line end, so strings can be found line by line, in any layout. One
# without an end goes to the line's end, as the search would begin again at each quote in it.
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)')


@dataclasses.dataclass(frozen=True)
class Exclusion:
    """Sentences that may not be trained on, as hashes.

    Sentences are compared by their letters (`stages.letters`): differences of case, punctuation,
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
        """Reads evaluation files of any form; `candidates` says which texts are taken.

        Args:
          paths: the files.
          options: the limits of lines and of decompression; and `on_error`, for a file that cannot
            be read: "fail" (default), as otherwise a leak would go unnoticed, or "skip".

        Raises:
          UserError: a file cannot be read, or no file holds a sentence.
        """
        options = options or ReadOptions()
        paths, counts = list(paths), Counts()
        keys = [np.zeros(0, np.uint64)]
        for path in paths:
            texts = guard_faults(path, candidates(path, options, counts), options.on_error, counts)
            while batch := list(itertools.islice(texts, _BATCH_TEXTS)):
                keys.append(np.unique(letter_keys(analyse(batch))))
        unique = np.unique(np.concatenate(keys))
        unique = unique[unique != 0]
        faults = tuple(counts.files_failed.values())
        if not len(unique):
            detail = f" ({faults[0]})" if faults else ""
            raise UserError(
                f"{', '.join(paths) or '--exclude'}: no sentence to leave out in there{detail}"
            )
        return cls(unique, faults)

    def save(self, folder: Path) -> None:
        """Writes the files that `load` reads."""
        with atomic_write(folder / _KEYS_FILE) as file:
            write_array(file, self.keys)
        atomic_write_text(folder / _FAULTS_FILE, json.dumps(self.faults))

    @classmethod
    def load(cls, folder: Path) -> "Exclusion":
        """Reads the files that `save` wrote."""
        keys = np.load(folder / _KEYS_FILE, allow_pickle=False)
        return cls(keys, tuple(json.loads((folder / _FAULTS_FILE).read_bytes())))

    def keep_each(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns which sentences may be trained on; [sentences], bool."""
        keys = letter_keys(analyse([normal_brackets(sentence) for sentence in sentences]))
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[places] != keys

    def keep_whole(self, texts: Sequence[tuple[str, str]]) -> np.ndarray:
        """Returns which texts may be trained on, as a whole and in each of their sentences.

        Returns:
          [texts], bool.
        """
        parts = [[text, *several_sentences(text, language)] for text, language in texts]
        marks = self.keep_each(list(itertools.chain.from_iterable(parts)))
        if not parts:
            return marks
        starts = np.cumsum([0, *map(len, parts[:-1])])
        return np.logical_and.reduceat(marks, starts)


class Cutter(SentenceCutter):
    """A cutter that takes excluded sentences out of the documents of a file."""

    stage = "exclude"
    reason = "exclude/sentence"
    none_left = "exclude/no_sentence_left"

    def __init__(self, exclusion: Exclusion) -> None:
        super().__init__()
        self._exclusion = exclusion

    def keep(self, documents: Sequence[tuple[Document, list[str]]]) -> np.ndarray:
        """Returns whether each sentence may be trained on."""
        return self._exclusion.keep_each([s for _, sentences in documents for s in sentences])


def normal_brackets(text: str) -> str:
    """Returns the text without brackets as treebanks write them, which would count as letters."""
    return _BRACKETS.sub(" ", text)


def candidates(path: str, options: ReadOptions, counts: Counts) -> Iterator[str]:
    """Yields each text of an evaluation file that may be a sentence, some of them more than once.

    Candidates are every line; every cell of a line between tabs, of `.csv` between commas; every
    string of JSON, at any depth, in files with such a name and in lines that begin with a bracket.
    Each of these is also taken without a class in front, and each sentence of a text with several
    sentences. A candidate has two words or more, or four characters of a script without spaces, or
    ends as sentences do.

    Args:
      path: plain, gzip or Zstandard; UTF-8, or UTF-16 with a byte order mark. A line that is
        neither is taken for Latin-1.
      options: the limits of lines and of decompression.
      counts: counts what is read.

    Raises:
      UserError: no such file, a broken or exploding stream, binary content, a line too long.
    """
    name = strip_compression(path.lower())
    is_csv, is_json = name.endswith(".csv"), name.endswith((".json", ".jsonl", ".ndjson"))
    for *_, line in iter_lines(path, counts, options, any_encoding=True):
        cells = {line, *line.split("\t")}
        if is_csv and "\t" not in line:
            cells.update(split_csv(line))
        if is_json or line.lstrip()[:1] in ("{", "["):
            for text in map(_json_text, _JSON_STRING.findall(line)):
                cells.update([text, *re.split(r"[\t\r\n]+", text)])
        cells.update([_CLASS.sub("", cell, count=1) for cell in cells if _CLASS.match(cell)])
        for cell in cells:
            cell = normal_brackets(replace_surrogates(cell))
            if _may_be_a_sentence(cell):
                yield cell
                yield from filter(_may_be_a_sentence, several_sentences(cell, "en"))


def several_sentences(text: str, language: str) -> list[str]:
    """Returns the sentences of a text that has an end mark before its last word, else none.

    The text is split by the rules of the language, and also at each mark that ends nothing but
    sentences, as the text's true language may have other rules.
    """
    mark = _END_MARK.search(text)
    if mark is None or not _WORD.search(text, mark.end()):
        return []
    pieces = segment(text, language)
    # The language of the file may be wrong, so the sentences by French rules are added.
    return [*pieces, *rejoin_titles(pieces, "fr"), *_PLAIN_SENTENCE.findall(text)]


def _json_text(literal: str) -> str:
    try:
        return json.loads(literal)
    except ValueError:
        return literal[1:-1]


def _may_be_a_sentence(text: str) -> bool:
    if len(text.split()) > 1:
        return True
    words = _UP_TO_LAST_WORD.match(text)
    if words and _END_MARK.search(text, words.end()):
        return True
    # Without spaces between words, four characters are a text.
    return not text.isascii() and len(analyse([text]).words) > 3
