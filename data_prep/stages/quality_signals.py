"""Measurements of a text for the rules and the classifier of quality."""

import functools
import itertools
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from official_cmlm.common.hashing import GOLDEN_GAMMA

from ..sentences import SENTENCE_END_MARKS, SPACED_MARKS, UNSPACED_MARKS
from .language_id import canonical_language

# Languages written without spaces, where the text between two spaces is not a word.
UNSPACED = frozenset("zh yue wuu ja th lo km my bo dz".split())
# Languages written without a sign at a sentence's end.
UNMARKED = frozenset(("th", "lo"))

# Function words that hardly any running text of a language lacks. English: Rae et al. (2021),
# A.1.1; the lists of other languages are our own: articles, conjunctions, prepositions and forms of
# "to be".
STOP_WORDS = {
    "en": frozenset("the be to of and that have with".split()),
    "de": frozenset("der die das und zu von mit nicht ist ein".split()),
    "fr": frozenset("le la les et à de des que est un".split()),
    "es": frozenset("el la los y a de que en es un".split()),
    "it": frozenset("il la e a di che non per è un".split()),
    "pt": frozenset("o a os e de que em não é um".split()),
    "nl": frozenset("de het een en van te dat met niet is".split()),
}

# C4's full stop, exclamation mark, question mark and quotation mark, in all scripts; closing
# brackets may follow.
_END_MARKS = frozenset(SENTENCE_END_MARKS + "\"'”’»«“‘›‹‟｡」』")
_CLOSING = ")]}）］】〉》〕"
_MARK = f"[{re.escape(SPACED_MARKS)}]"
# A run of marks is tried once, not from each of its marks.
_sentence_end = re.compile(rf"(?<!{_MARK}){_MARK}++[\"'”’»«“‘›‹)\]]*+(?=\s|$)|[{UNSPACED_MARKS}]")
_BULLETS = (*"•‣▸▹►▻▶▷▪▫■□◦○●◆◇∙·⁃➤➢✓✔*", "- ")
_ELLIPSES = ("...", "…")
_EDGES = ".,;:!?…\"'“”‘’«»‹›()[]{}-–—*_¿¡"

TOP_NGRAMS = (2, 3, 4)
DUPLICATE_NGRAMS = (5, 6, 7, 8, 9, 10)
# Any odd number with about as many ones as zeros would do.
_BASE = GOLDEN_GAMMA
_INVERSE = pow(_BASE, -1, 1 << 64)
_SPACE = 32


class Words:
    """The words of a text, which white space divides, measured without splitting it.

    Hashes are polynomials of code points modulo 2^64. They are differences of one cumulative sum,
    so that the hash of an n-gram of any length is one subtraction.

    Attributes:
      text: the paragraphs, with one space between words.
      starts: [words] int64, where each word begins in `text`, in characters.
      ends: [words] int64, where it ends.
      characters: number of characters of all words, without white space.
    """

    def __init__(self, paragraphs: list[str]) -> None:
        """Finds the words of the paragraphs."""
        self.text = " ".join(paragraphs)
        # Readers yield texts with single spaces; looking at a text costs less than splitting it.
        if "  " in self.text or self.text.strip() != self.text or not self.text.isprintable():
            self.text = " ".join(self.text.split())
        # As UTF-32 a character is a number; half surrogate pairs are characters too.
        encoded = self.text.encode("utf-32-le", "surrogatepass")
        self._codes = np.frombuffer(encoded, np.uint32)
        spaces = np.flatnonzero(self._codes == _SPACE)
        self.starts = np.zeros(len(spaces) + bool(self.text), np.int64)
        self.starts[1:] = spaces + 1
        self.ends = np.full_like(self.starts, len(self.text))
        self.ends[:-1] = spaces
        self.characters = len(self.text) - len(spaces)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def mean_length(self) -> float:
        """Mean number of characters of a word; 0 without words."""
        return self.characters / max(len(self), 1)

    @cached_property
    def alphabetic(self) -> float:
        """Share of the words with at least one letter."""
        if not len(self):
            return 0.0
        letters = np.logical_or.reduceat(_is_letter().take(self._codes), self.starts)
        return np.count_nonzero(letters) / len(self)

    def has(self, some: frozenset[str], least: int) -> bool:
        """Returns whether `least` of `some` or more are words here, in any case, without marks."""
        # Most texts have enough of them as they are, and searching is faster than splitting.
        if sum(f" {word} " in self.text for word in some) >= least:
            return True
        words = {word.lower().strip(_EDGES) for word in self.text.split()}
        return len(some & words) >= least

    def share(self, some: frozenset[str]) -> float:
        """Returns about the share of the words in `some`; words with punctuation do not count."""
        text = f" {self.text.lower()} "
        return sum(text.count(f" {word} ") for word in some) / max(len(self), 1)

    def top(self, n: int) -> float:
        """Returns the share of the characters in the most frequent n-gram; Rae et al., A.1.1.

        The share is the n-gram's characters times its occurrences over all characters, for the
        longest of equally frequent n-grams; 0 if none occurs twice. It may be above 1 where an
        n-gram overlaps itself.
        """
        order, same = self._equal(n)
        if not same.any():
            return 0.0
        starts, counts = _runs(same)
        most = counts.max()
        at = order[starts[counts == most]]
        return int(most * self._sizes(n)[at].max()) / self.characters

    def duplicate(self, n: int) -> float:
        """Returns the share of the characters in words of n-grams that occurred before.

        A word in several of them counts once, and the first occurrence is not a duplicate. The
        share is never larger than for a smaller n. Source: Rae et al. (2021), A.1.1.
        """
        order, same = self._equal(n)
        if not same.any():
            return 0.0
        again = order[1:][same]
        cover = np.zeros(len(self) + 1, np.int64)
        cover[again] += 1
        cover[again + n] -= 1
        covered = np.cumsum(cover[:-1]) > 0
        return int((self.ends - self.starts)[covered].sum()) / self.characters

    def top_at_most(self, n: int) -> float:
        """Returns a fast bound on `top` of 2 … n; a 2-gram is at least as frequent as an n-gram."""
        # A text of fewer words has no n-gram, but may have shorter ones.
        sizes = self._sizes(min(n, len(self)))
        return self._most_pairs * int(sizes.max()) / self.characters if len(sizes) else 0.0

    @cached_property
    def _most_pairs(self) -> int:
        ordered = np.sort(self.hashes(2))
        same = ordered[1:] == ordered[:-1]
        return int(_runs(same)[1].max()) if same.any() else 0

    @cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Cumulative sums of code · base^place, [characters + 1], and base^-start, [words]."""
        powers, inverses = _powers(len(self._codes))
        sums = np.zeros(len(self._codes) + 1, np.uint64)
        np.cumsum(self._codes * powers[: len(self._codes)], out=sums[1:])
        return sums, inverses[self.starts]

    def _equal(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the n-grams' numbers, equal n-grams together, and which equals the one before.

        Both are empty if no n-gram occurs twice.
        """
        hashes = self.hashes(n)
        # Most texts have no longer n-gram twice, and the numbers alone are sorted faster.
        ordered = np.sort(hashes)
        if not (ordered[1:] == ordered[:-1]).any():
            return np.zeros(0, np.int64), np.zeros(0, bool)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        return order, ordered[1:] == ordered[:-1]

    def hashes(self, n: int) -> np.ndarray:
        """Returns the hashes of the n-grams of words, in order; [n-grams] uint64."""
        count = max(len(self) - n + 1, 0)
        sums, inverses = self._sums
        return (sums.take(self.ends[n - 1 :]) - sums.take(self.starts[:count])) * inverses[:count]

    def character_hashes(self, n: int) -> np.ndarray:
        """Returns the hashes of every n consecutive characters of `text`; [n-grams] uint64."""
        count = max(len(self.text) - n + 1, 0)
        sums, _ = self._sums
        return (sums[n : n + count] - sums[:count]) * _powers(len(self._codes))[1][:count]

    def _sizes(self, n: int) -> np.ndarray:
        """Returns the characters of each n-gram, without spaces; [n-grams] int64."""
        if len(self) < n:
            return np.zeros(0, np.int64)
        return self.ends[n - 1 :] - self.starts[: len(self) - n + 1] - (n - 1)


def _runs(same: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the starts and lengths of runs of equal entries.

    `same`, [entries - 1] bool, says which entry equals the one before.
    """
    edges = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
    return edges[:-1], edges[1:] - edges[:-1]


@functools.cache
def _is_letter() -> np.ndarray:
    """Returns which code points Python calls alphabetic; [code points] bool."""
    return np.array([chr(code).isalpha() for code in range(sys.maxunicode + 1)])


def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns powers of the base and of its inverse, modulo 2^64; [>= count] uint64."""
    # The sizes are powers of 2, so that few tables are kept.
    return _power_tables(max(1 << 16, 1 << count.bit_length()))


@functools.lru_cache(maxsize=1)
def _power_tables(count: int) -> tuple[np.ndarray, np.ndarray]:
    tables = []
    for factor in (_BASE, _INVERSE):
        table = np.full(count, factor, np.uint64)
        table[0] = 1
        tables.append(np.multiply.accumulate(table))
    return tables[0], tables[1]


@dataclass(frozen=True, slots=True)
class Lines:
    """Signals of paragraphs, which take the place of the lines of the published rules.

    Attributes:
      bullet: share of the paragraphs that begin with a bullet.
      ellipsis: share of the paragraphs that end with an ellipsis.
      duplicate: share of the paragraphs that equal an earlier one.
      duplicate_characters: share of the characters that are in duplicates.
    """

    bullet: float
    ellipsis: float
    duplicate: float
    duplicate_characters: float

    @classmethod
    def of(cls, paragraphs: list[str]) -> "Lines":
        """Measures the paragraphs; all signals are 0 without any."""
        count = max(len(paragraphs), 1)
        seen = Counter(paragraphs)
        repeated = sum((n - 1) * len(text) for text, n in seen.items()) if len(seen) < count else 0
        return cls(
            [text.startswith(_BULLETS) for text in paragraphs].count(True) / count,
            [text.endswith(_ELLIPSES) for text in paragraphs].count(True) / count,
            (len(paragraphs) - len(seen)) / count,
            repeated / max(sum(map(len, paragraphs)), 1),
        )


def is_spaced(language: str) -> bool:
    """Returns whether spaces divide the words of the language."""
    return canonical_language(language) not in UNSPACED


def stop_words(language: str) -> frozenset[str]:
    """Returns function words of the language; none for a language without a list."""
    return STOP_WORDS.get(canonical_language(language), frozenset())


def has_end_mark(paragraph: str) -> bool:
    """Returns whether a paragraph ends with a sign that ends sentences or quotations."""
    return paragraph[-1:] in _END_MARKS or paragraph.rstrip(_CLOSING)[-1:] in _END_MARKS


def sentence_ends(paragraphs: list[str], most: int | None = None) -> int:
    """Counts the signs that end a sentence, up to `most`."""
    ends = (match for text in paragraphs for match in _sentence_end.finditer(text))
    return sum(1 for _ in itertools.islice(ends, most))


def symbol_ratios(words: Words) -> tuple[float, float]:
    """Returns (number signs, ellipses) for each word."""
    count = max(len(words), 1)
    ellipses = words.text.count("...") + words.text.count("…")
    return words.text.count("#") / count, ellipses / count
