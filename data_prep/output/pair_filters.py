"""Filters of pairs: evaluation sentences, unlike lengths, other languages, repetitions."""

import dataclasses
import unicodedata
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.hashing import mix
from official_cmlm.common.validation import OneOf, at_least

from ..counts import DropCounter
from ..readers.document import Pair
from ..stages.exclusion import Exclusion
from ..stages.language_id import canonical_language
from ..stages.letters import analyse, byte_keys, letter_keys

# Columns by which lengths may always differ, as short texts have wild ratios.
_LENGTH_SLACK = 15
# Least confidence of `detect`, 0 to 1, at which a text counts as one in another language.
_MIN_CONFIDENCE = 0.5
# Codes of an unknown language.
_UNKNOWN = ("", "un", "und")
# Reasons for a repeated pair, a repeated first text and a repeated second text.
_REPETITIONS = ("pairs/repeated", "pairs/repeated_first_text", "pairs/repeated_second_text")
# The pairs of one row: one, or one for each language of row-aligned tables.
Row = tuple[Pair, ...]
# Text -> (language code, confidence from 0 to 1).
Detect = Callable[[str], tuple[str, float]]


def drop_row(counters: DropCounter, reason: str, row: Row) -> None:
    """Counts a row that is left out."""
    # Rows of translations have no single language.
    languages = row[0].languages if len(row) == 1 else ()
    counters.drop(reason, *languages)


@dataclasses.dataclass(frozen=True)
class FilterOptions:
    """Filters of rows; by default all rows stay.

    Texts are compared by 64-bit hashes of their letters (`stages.letters`), hard negatives without
    letters by hashes of the texts. The hashes take 8 bytes a row in memory, with `either` 24; while
    they grow, up to twice as much.

    Attributes:
      max_length_ratio: leaves out rows with a text of more than so many times the columns of the
        other, if they differ by more than 15; 0: no limit. A Chinese character has 2 columns, so
        that translations are about as long as each other. 3 suits bitext: it loses next to nothing
        but misaligned lines.
      repeated: which repetitions to leave out: none (keep), rows whose two texts occurred together
        before (pair), with the same hard negative or both times without, or also rows with one text
        that occurred on its side before (either).

    Raises:
      UserError: if a ratio is below 1 and not 0.
    """

    max_length_ratio: Annotated[float, at_least(0)] = 0.0
    repeated: Annotated[str, OneOf(("keep", "pair", "either"))] = "keep"

    def __post_init__(self) -> None:
        if 0 < self.max_length_ratio < 1:
            raise UserError(
                f"max_length_ratio is {self.max_length_ratio:g}; give 1 or more, or 0 for any"
            )


class PairFilter:
    """A filter of the rows of one run, in their order; it remembers what it has seen."""

    def __init__(
        self,
        options: FilterOptions | None = None,
        detect: Detect | None = None,
        exclusion: Exclusion | None = None,
    ) -> None:
        """Sets the filters, by default none.

        Args:
          options: see the class.
          detect: names a text's language; None: the declared languages are believed.
          exclusion: sentences that may not be trained on. A row is left out if one of its texts is
            such a sentence, or holds one. Hard negatives count here and for `detect` as the other
            texts do, but they may have any length.
        """
        self._options = options or FilterOptions()
        self._detect, self._exclusion = detect, exclusion
        # The keys of the pairs that stayed, and of the texts on each side.
        sides = 3 if self._options.repeated == "either" else 1
        self._seen = [KeySet() for _ in _REPETITIONS[:sides]]

    def __call__(self, rows: Sequence[Row], counters: DropCounter) -> list[Row]:
        """Returns the rows that stay.

        A row of translations is left out as a whole if any of its pairs is bad; its first pair
        decides whether it is a repetition.

        Args:
          rows: the next rows.
          counters: counts rows left out: `exclude/row`, `pairs/unlike_lengths`,
            `pairs/another_language`, `pairs/repeated`, `pairs/repeated_first_text`,
            `pairs/repeated_second_text`.
        """
        rows_left = []
        for row in self._leave_out_excluded(rows, counters):
            if reason := self._bad(row):
                drop_row(counters, reason, row)
            else:
                rows_left.append(row)
        if self._options.repeated == "keep" or not rows_left:
            return rows_left
        return self._leave_out_repeated(rows_left, counters)

    def _leave_out_excluded(self, rows: Sequence[Row], counters: DropCounter) -> Sequence[Row]:
        if self._exclusion is None:
            return rows
        texts = [each for row in rows for pair in row for each in pair.all_texts]
        marks = iter(self._exclusion.keep_whole(texts).tolist())
        rows_left = []
        for row in rows:
            # A list takes the mark of every text; a generator would stop at the first false one.
            if all([next(marks) for pair in row for _ in pair.all_texts]):
                rows_left.append(row)
            else:
                drop_row(counters, "exclude/row", row)
        return rows_left

    def _bad(self, row: Row) -> str:
        ratio = self._options.max_length_ratio
        for pair in row if ratio else ():
            short, long = sorted(map(columns, pair.texts))
            if long - short > _LENGTH_SLACK and long > ratio * short:
                return "pairs/unlike_lengths"
        if self._detect is not None:
            for pair in row:
                for text, language in pair.all_texts:
                    detected, confidence = self._detect(text)
                    if (
                        detected not in _UNKNOWN
                        and confidence >= _MIN_CONFIDENCE
                        and canonical_language(detected) != canonical_language(language)
                    ):
                        return "pairs/another_language"
        return ""

    def _leave_out_repeated(self, rows: list[Row], counters: DropCounter) -> list[Row]:
        """Returns the rows that repeat no earlier one; texts without letters repeat nothing."""
        sides = letter_keys(analyse([text for row in rows for text in row[0].texts]))
        first, second = sides.reshape(-1, 2).T
        both = mix(first ^ mix(second + np.uint64(1)))
        negatives = [row[0].negative or "" for row in rows]
        if any(negatives):
            hard = mix(_text_keys(negatives) + np.uint64(2))
            both = np.where([text == "" for text in negatives], both, mix(both ^ hard))
        both[(first == 0) & (second == 0)] = 0
        keys = (both, first, second)[: len(self._seen)]
        seen_before = [seen.contains(own).tolist() for seen, own in zip(self._seen, keys)]
        # The keys that this batch adds, row by row, as a row left out must not count as seen.
        added: list[set[int]] = [set() for _ in keys]
        rows_left = []
        for number, row in enumerate(zip(*(own.tolist() for own in keys))):
            repeated = [
                reason
                for reason, key, before, new in zip(_REPETITIONS, row, seen_before, added)
                if key and (before[number] or key in new)
            ]
            if repeated:
                drop_row(counters, repeated[0], rows[number])
                continue
            rows_left.append(rows[number])
            for key, new in zip(row, added):
                if key:
                    new.add(key)
        for seen, new in zip(self._seen, added):
            seen.add(np.fromiter(new, np.uint64, len(new)))
        return rows_left


def _text_keys(texts: Sequence[str]) -> np.ndarray:
    """Returns hashes of the texts' letters, or of texts without letters; [texts], uint64."""
    keys = letter_keys(analyse(texts))
    return np.where(keys == 0, byte_keys(texts), keys)


def columns(text: str) -> int:
    """Measures the width of a text: East Asian wide characters count twice, combining marks 0."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.category(c) != "Mn"
        for c in text
    )


class KeySet:
    """Keys that were seen, in sorted arrays, each at most half as long as the one before.

    A key takes 8 bytes; while two arrays are merged, their keys take twice as much. With n keys
    there are at most log2(n) arrays to search, and each key is merged about as often.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """Returns which of the keys are in the set; [keys], uint64 -> bool."""
        is_member = np.zeros(len(keys), bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, keys), len(run) - 1)
            is_member |= run[places] == keys
        return is_member

    def add(self, keys: np.ndarray) -> None:
        """Adds keys of which none is in the set yet, each once, in any order; [keys], uint64."""
        if not len(keys):
            return
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            # A stable sort is fast here, as it merges arrays that are sorted already.
            run.sort(kind="stable")
        self._runs.append(run)
