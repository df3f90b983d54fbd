"""Leaves out pairs that are no good pairs: unlike lengths, another language, repetitions."""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from data_prep.readers.pairs import Pair
from data_prep.stages.duplicates_text import analyse, exact_keys
from data_prep.stages.language_id import canonical_language
from official_cmlm.errors import UserError

REPEATED = ("keep", "pair", "either")
# What stands for a language that is not known.
_UNKNOWN = ("", "un", "und")
# Text -> (language code, confidence from 0 to 1).
Detect = Callable[[str], tuple[str, float]]


@dataclasses.dataclass(frozen=True)
class PairFilters:
    """Which rows of pairs are left out; by default none.

    Attributes:
      max_length_ratio: the longer text may have so many times the columns of the shorter one; 0
        (default): any number. In columns a Chinese character has 2, so that translations are about
        as long as each other. For bitext 3 loses next to nothing but misaligned lines; the texts
        of NLI differ in length by nature.
      length_slack: columns by which lengths may always differ; default 15, as short texts have
        wild ratios.
      detect: names a text's language; None (default): languages are believed.
      min_confidence: only a text of which `detect` is at least so sure that it is in another
        language counts as such, 0 to 1; default 0.5.
      repeated: `keep` (default) every row; `pair`: leave out a row if both texts stood together
        before; `either`: also if one of them stood on its side before. Compared by their letters
        (`stages.duplicates_text`); in memory are 64 bits a text.

    Raises:
      UserError: a value is out of range.
    """

    max_length_ratio: float = 0.0
    length_slack: int = 15
    detect: Detect | None = None
    min_confidence: float = 0.5
    repeated: str = "keep"

    def __post_init__(self) -> None:
        if self.max_length_ratio and not self.max_length_ratio >= 1:
            raise UserError(
                f"max_length_ratio is {self.max_length_ratio:g}; give 1 or more, or 0 for any"
            )
        if self.length_slack < 0:
            raise UserError(f"length_slack is {self.length_slack}; give 0 or more columns")
        if not 0 <= self.min_confidence <= 1:
            raise UserError(f"min_confidence is {self.min_confidence:g}; give 0 to 1")
        if self.repeated not in REPEATED:
            raise UserError(f"repeated is {self.repeated!r}; choose one of {', '.join(REPEATED)}")


class PairFilter:
    """Filters the rows of one run, in their order; remembers what it has seen."""

    def __init__(self, options: PairFilters) -> None:
        self._options = options
        self._seen: tuple[set[int], set[int]] = (set(), set())
        self._pairs: set[tuple[int, int]] = set()

    def __call__(
        self, rows: Sequence[tuple[Pair, ...]], counters: Counter[str]
    ) -> list[tuple[Pair, ...]]:
        """The rows that stay.

        A row of translations goes whole, if any of its pairs is bad; whether it is a repetition
        is decided by its first pair.

        Args:
          rows: the next rows.
          counters: counts rows left out: `rows_of_unlike_lengths`, `rows_in_another_language`,
            `rows_repeated`, `rows_with_a_repeated_first_text`, `rows_with_a_repeated_second_text`.
        """
        kept = []
        for row in rows:
            if reason := self._bad(row):
                counters[reason] += 1
            else:
                kept.append(row)
        if self._options.repeated == "keep" or not kept:
            return kept
        keys = exact_keys(analyse([text for row in kept for text in row[0].texts]))
        result = []
        for row, key in zip(kept, keys.reshape(-1, 2).tolist(), strict=True):
            if reason := self._repeated(*key):
                counters[reason] += 1
            else:
                result.append(row)
        return result

    def _bad(self, row: tuple[Pair, ...]) -> str:
        options = self._options
        for pair in row:
            if options.max_length_ratio and _unlike(pair.texts, options):
                return "rows_of_unlike_lengths"
        if options.detect is not None:
            for pair in row:
                for text, language in zip(pair.texts, pair.languages):
                    found, confidence = options.detect(text)
                    if (
                        found not in _UNKNOWN
                        and confidence >= options.min_confidence
                        and canonical_language(found) != canonical_language(language)
                    ):
                        return "rows_in_another_language"
        return ""

    def _repeated(self, first: int, second: int) -> str:
        """Why a row is a repetition; remembers it if it is none. Texts without letters are none."""
        if (first, second) in self._pairs:
            return "rows_repeated"
        if self._options.repeated == "either":
            if first in self._seen[0]:
                return "rows_with_a_repeated_first_text"
            if second in self._seen[1]:
                return "rows_with_a_repeated_second_text"
            self._seen[0].update({first} - {0})
            self._seen[1].update({second} - {0})
        if first or second:
            self._pairs.add((first, second))
        return ""


def columns(text: str) -> int:
    """How wide a text is: East Asian wide characters count twice, marks on others not at all."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.category(c) != "Mn"
        for c in text
    )


def _unlike(texts: tuple[str, str], options: PairFilters) -> bool:
    short, long = sorted(map(columns, texts))
    return long - short > options.length_slack and long > options.max_length_ratio * short
