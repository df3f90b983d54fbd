"""Splits paragraphs into sentences, with the sentencex library (rules for some 240 languages)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from official_cmlm.common.extras import check_extra

# A longer "sentence" is a list, a table or text without punctuation.
DEFAULT_MAX_CHARACTERS = 2000
# Characters that are split at once; few paragraphs of running text are longer.
_WINDOW = 1 << 13
# `\s` matches the characters that `str.strip` takes for white space.
_NO_SPACE = re.compile(r"\S")


def split_paragraphs(
    paragraphs: Iterable[str],
    language: str,
    counters: Counter[str],
    max_characters: int = DEFAULT_MAX_CHARACTERS,
) -> list[str]:
    """Returns the sentences of paragraphs in order, without white space around them.

    Args:
      paragraphs: running text.
      language: language code; an unknown one falls back to rules for all languages.
      counters: `records/sentence_cut` counts the cuts through over-long sentences.
      max_characters: a longer sentence is cut at white space into pieces of at most this many, so
        that nothing is lost and no record is unbounded.
    """
    check_extra("data", "sentencex")
    import sentencex

    # These are looked up once, as a paragraph is split in a few microseconds.
    split, mended, result = sentencex.segment, language in MENDED_LANGUAGES, []
    for paragraph in paragraphs:
        if len(paragraph) <= _WINDOW:
            sentences = split(language, paragraph)
        else:
            sentences = segment(paragraph, language)
        if mended:
            sentences = rejoin_titles(sentences, language)
        if len(paragraph) <= max_characters:
            result += sentences
            continue
        for sentence in sentences:
            result += cut_long_sentence(sentence.strip(), counters, max_characters)
    # All sentences are stripped at once: a step of Python for each would take as long as finding
    # them.
    return list(filter(None, map(str.strip, result)))


def segment(text: str, language: str, window: int = _WINDOW) -> list[str]:
    """Returns the sentences of a text with their white space, which joined are the text.

    Args:
      text: text of any length.
      language: language code; an unknown one falls back to rules for all languages.
      window: characters that the library sees at once. Its time grows with their square, half an
        hour for 8 MB of apostrophes and full stops; so a longer text is split window by window;
        each window begins with the sentence that the previous one left unfinished.
    """
    check_extra("data", "sentencex")
    import sentencex

    sentences: list[list[str]] = []
    start, open_end = 0, False
    while start < len(text):
        part = text[start : start + window]
        pieces = sentencex.segment(language, part) or [part]
        is_last = start + window >= len(text)
        was_open, open_end = open_end, len(pieces) == 1 and not is_last
        if len(pieces) > 1 and not is_last:
            # The last sentence may end in the next window.
            pieces.pop()
        start += sum(map(len, pieces))
        if was_open:
            sentences[-1].append(pieces.pop(0))
        sentences += [[piece] for piece in pieces]
    return list(map("".join, sentences))


def cut_long_sentence(sentence: str, counters: Counter[str], max_characters: int) -> Iterator[str]:
    """Yields the sentence, or its pieces of at most `max_characters` if it is longer."""
    start, end = 0, len(sentence)
    while end - start > max_characters:
        # Without white space in reach, the cut is in the middle of a word.
        cut = sentence.rfind(" ", start + 1, start + max_characters + 1)
        cut = cut if cut > 0 else start + max_characters
        counters["records/sentence_cut"] += 1
        yield sentence[start:cut].rstrip()
        # Positions instead of copies of the rest keep the time linear in the length.
        space = _NO_SPACE.search(sentence, cut)
        start = space.start() if space else end
    if start < end:
        yield sentence[start:]


# Titles, and initials. In French novels one break in 27 follows a "M." that means Monsieur.
_FRENCH = r"(?:MM?|Mmes?|Mlles?|Mgr|Mtre|Me|Dr|Drs|Pr|Vve|Ste?|[A-ZÀÂÇÉÈÊÎÔÛ])\.\s*$"
_UNFINISHED = {"fr": re.compile(rf"(?<![\w'’.-]){_FRENCH}")}
MENDED_LANGUAGES = frozenset(_UNFINISHED)


def rejoin_titles(pieces: list[str], language: str) -> list[str]:
    """Joins each piece that ends with an abbreviation to the one after it.

    Args:
      pieces: a paragraph's sentences with their white space, so that joined they are the paragraph.
      language: code of the language; all but `fr` are returned as they are.

    Returns:
      The sentences; e.g. the French pieces `["Il a vu M. ", "Dupont hier."]` become one sentence.
    """
    unfinished = _UNFINISHED.get(language)
    if unfinished is None:
        return pieces
    sentences: list[list[str]] = []
    open_end = False
    for piece in pieces:
        if open_end:
            sentences[-1].append(piece)
        else:
            sentences.append([piece])
        open_end = unfinished.search(piece) is not None
    return list(map("".join, sentences))


# One of these may also end an abbreviation, a list or an aside; white space follows.
_LATIN = ".!?\u2026\u203d\u2e2e"
# White space follows these too.
_OTHER = (
    "\u061f\u06d4"  # Arabic question mark, Urdu full stop
    "\u0964\u0965"  # danda and double danda of Indic scripts
    "\u0589\u1362\u1367"  # Armenian; Ethiopic full stop and question mark
    "\u104b\u0f0d\u0f0e\u17d4\u17d5"  # Burmese, Tibetan, Khmer
    "\u0df4\u166e\u1803\ua4ff"  # Sinhala, Canadian, Mongolian, Lisu
)
# The next sentence may follow these without a space, in Chinese and Japanese.
UNSPACED_MARKS = "\u3002\uff01\uff1f\uff61"
# This mark of full width may also be between digits.
_WIDE_DOT = "\uff0e"

SPACED_MARKS = _LATIN + _OTHER
SENTENCE_END_MARKS = SPACED_MARKS + UNSPACED_MARKS + _WIDE_DOT
# The marks that end nothing but sentences.
UNAMBIGUOUS_MARKS = _OTHER + UNSPACED_MARKS
