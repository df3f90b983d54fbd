"""Stage "quality filter" by published rules: C4's for lines and pages, Gopher's for pages.

C4: Raffel et al. (2020), section 2.2. Gopher: Rae et al. (2021), appendix A.1.1. Rules about lines
are applied to paragraphs, as readers yield no lines.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..counts import DropCounter
from ..readers.document import Document
from . import keep_paragraphs
from .language_id import canonical_language
from .quality_signals import (
    DUPLICATE_NGRAMS,
    TOP_NGRAMS,
    UNMARKED,
    Lines,
    Words,
    has_end_mark,
    is_spaced,
    sentence_ends,
    stop_words,
    symbol_ratios,
)

_POLICY = (
    *("terms of use", "privacy policy", "cookie policy"),
    *("uses cookies", "use of cookies", "use cookies"),
)


@dataclass(frozen=True)
class QualityRules:
    """The stage and its thresholds; a value at the threshold passes.

    `lorem_ipsum` and `curly_bracket` are applied to the whole text, then the rules for paragraphs,
    as in C4, then all other rules to the paragraphs that are left. Rules about words are left out
    for languages written without spaces, rules about end marks for languages without them, rules
    about stop words for languages without a list. A piece that continues a long document need not
    have `min_words` nor `min_sentences`.

    Attributes:
      end_mark: remove paragraphs that do not end like a sentence (C4).
      min_words_per_paragraph: remove paragraphs with fewer words; 0 for none (C4).
      javascript: remove paragraphs that mention JavaScript (C4).
      policy: remove paragraphs that mention cookies, privacy or terms of use (C4).
      lorem_ipsum: drop documents with the typesetters' filling text (C4).
      curly_bracket: drop documents with "{", which is code (C4).
      min_sentences: drop documents with fewer sentence ends; 0 for none (C4).
      min_words: drop documents with fewer words; 0 for none (Gopher).
      max_words: drop documents with more words (Gopher).
      min_mean_word_length: in characters (Gopher).
      max_mean_word_length: in characters (Gopher).
      max_symbols_per_word: number signs, and ellipses, for each word (Gopher).
      max_bullets: share of paragraphs that begin with a bullet (Gopher).
      max_ellipses: share of paragraphs that end with an ellipsis (Gopher).
      min_alphabetic: share of words with a letter (Gopher).
      min_stop_words: different function words of the language; 0 for none (Gopher).
      max_duplicate_paragraphs: share of paragraphs equal to one before (Gopher, table A1).
      max_duplicate_characters: share of characters in such paragraphs (Gopher, table A1).
      max_top_ngrams: share of characters in the most frequent n-gram, n = 2, 3, 4 (Gopher, table
        A1); empty for none.
      max_duplicate_ngrams: share of characters in n-grams that occurred before, n = 5 … 10
        (Gopher, table A1); empty for none.
    """

    end_mark: bool = True
    min_words_per_paragraph: int = 5
    javascript: bool = True
    policy: bool = True
    lorem_ipsum: bool = True
    curly_bracket: bool = True
    min_sentences: int = 3
    min_words: int = 50
    max_words: int = 100_000
    min_mean_word_length: float = 3.0
    max_mean_word_length: float = 10.0
    max_symbols_per_word: float = 0.1
    max_bullets: float = 0.9
    max_ellipses: float = 0.3
    min_alphabetic: float = 0.8
    min_stop_words: int = 2
    max_duplicate_paragraphs: float = 0.3
    max_duplicate_characters: float = 0.2
    max_top_ngrams: tuple[float, ...] = (0.20, 0.18, 0.16)
    max_duplicate_ngrams: tuple[float, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)

    def __call__(self, document: Document, counters: DropCounter) -> Document | None:
        """Returns the document with the paragraphs that pass, or None.

        Counts a removed paragraph as `quality/paragraph_…`, a dropped document as `quality/…`
        under the first rule that it breaks, in the order of the fields.
        """
        spaced = is_spaced(document.language)
        marked = canonical_language(document.language) not in UNMARKED
        page = "\n".join(document.paragraphs).lower()
        # These rules are about the whole page, as in C4, whichever of its lines would stay.
        if self.lorem_ipsum and "lorem ipsum" in page:
            counters.drop("quality/lorem_ipsum", document.language)
            return None
        if self.curly_bracket and "{" in page:
            counters.drop("quality/curly_bracket", document.language)
            return None
        # Words that are nowhere on the page are not looked for in each paragraph.
        unwanted = ("javascript",) * self.javascript + _POLICY * self.policy
        unwanted = [word for word in unwanted if word in page]
        paragraphs = []
        for text in document.paragraphs:
            reason = self._paragraph_breaks(text, spaced, marked, unwanted)
            if reason:
                counters.drop(f"quality/paragraph_{reason}", document.language)
            else:
                paragraphs.append(text)
        reason = next(self._text_breaks(paragraphs, document, spaced, marked), "")
        if reason:
            counters.drop(f"quality/{reason}", document.language)
            return None
        return keep_paragraphs(document, paragraphs)

    def _paragraph_breaks(self, text: str, spaced: bool, marked: bool, unwanted: list[str]) -> str:
        """Returns the name of the first rule for paragraphs that this one breaks, or nothing."""
        if marked and self.end_mark and not has_end_mark(text):
            return "without_end_mark"
        least = self.min_words_per_paragraph
        if spaced and least and len(text.split(None, least)) < least:
            return "too_short"
        lower = text.lower() if unwanted else ""
        word_of_policy = next((word for word in unwanted if word in lower), "")
        return "policy" if word_of_policy in _POLICY else word_of_policy

    def _text_breaks(
        self, paragraphs: list[str], document: Document, spaced: bool, marked: bool
    ) -> Iterator[str]:
        """Yields the names of the rules that these paragraphs break, in order, costly ones last."""
        if not paragraphs:
            yield "no_paragraph_left"
            return
        least = 0 if document.continues else self.min_sentences
        if marked and sentence_ends(paragraphs, least) < least:
            yield "too_few_sentences"
        words = Words(paragraphs) if spaced else None
        if words is not None:
            yield from self._words_break(words, document)
        lines = Lines.of(paragraphs)
        if lines.bullet > self.max_bullets:
            yield "bullets"
        if lines.ellipsis > self.max_ellipses:
            yield "ellipses"
        if words is not None:
            if words.alphabetic < self.min_alphabetic:
                yield "too_few_alphabetic_words"
            function_words = stop_words(document.language)
            if function_words and not words.has(function_words, self.min_stop_words):
                yield "too_few_stop_words"
        if lines.duplicate > self.max_duplicate_paragraphs:
            yield "duplicate_paragraphs"
        if lines.duplicate_characters > self.max_duplicate_characters:
            yield "duplicate_paragraph_characters"
        if words is not None:
            yield from self._repetition_breaks(words)

    def _words_break(self, words: Words, document: Document) -> Iterator[str]:
        if len(words) < self.min_words and not document.continues:
            yield "too_few_words"
        if len(words) > self.max_words:
            yield "too_many_words"
        if words.mean_length < self.min_mean_word_length:
            yield "words_too_short"
        if words.mean_length > self.max_mean_word_length:
            yield "words_too_long"
        if max(symbol_ratios(words)) > self.max_symbols_per_word:
            yield "too_many_symbols"

    def _repetition_breaks(self, words: Words) -> Iterator[str]:
        limits = self.max_top_ngrams
        if limits and words.top_at_most(TOP_NGRAMS[-1]) > min(limits):
            for n, limit in zip(TOP_NGRAMS, limits):
                if words.top(n) > limit:
                    yield f"top_{n}gram"
        share = math.inf
        for n, limit in zip(DUPLICATE_NGRAMS, self.max_duplicate_ngrams):
            # Longer n-grams are rarer: if these are under the limit, the longer ones are too.
            if share > limit:
                share = words.duplicate(n)
            if share > limit:
                yield f"duplicate_{n}gram"
