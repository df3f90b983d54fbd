"""Splits paragraphs into sentences, with the sentencex library (rules for some 240 languages)."""

from collections import Counter
from collections.abc import Iterable, Iterator

from data_prep.abbreviations import MENDED_LANGUAGES, rejoined

# A "sentence" beyond this is a list, a table or text without punctuation.
DEFAULT_MAX_CHARACTERS = 2000


def split_sentences(
    paragraph: str,
    language: str,
    counters: Counter[str],
    max_characters: int = DEFAULT_MAX_CHARACTERS,
) -> list[str]:
    """As `split_paragraphs`, of one."""
    return split_paragraphs([paragraph], language, counters, max_characters)


def split_paragraphs(
    paragraphs: Iterable[str],
    language: str,
    counters: Counter[str],
    max_characters: int = DEFAULT_MAX_CHARACTERS,
) -> list[str]:
    """The sentences of paragraphs in order, without white space around them.

    Args:
      paragraphs: running text.
      language: language code; an unknown one falls back to rules for all languages.
      counters: `records/sentence_cut` counts the cuts through over-long sentences.
      max_characters: a longer sentence is cut at white space into pieces of at most so many, so
        that nothing is lost and no record is unbounded.
    """
    import sentencex

    # Looked up once: a paragraph is split in a few microseconds.
    segment, mended, found = sentencex.segment, language in MENDED_LANGUAGES, []
    for paragraph in paragraphs:
        sentences = segment(language, paragraph)
        if mended:
            sentences = rejoined(sentences, language)
        if len(paragraph) <= max_characters:
            found += sentences
            continue
        for sentence in sentences:
            found += bounded(sentence.strip(), counters, max_characters)
    # All at once: a step of Python for each would take as long as to find them.
    return list(filter(None, map(str.strip, found)))


def bounded(sentence: str, counters: Counter[str], max_characters: int) -> Iterator[str]:
    """Yields the sentence, or its pieces of at most `max_characters` if it is longer."""
    while len(sentence) > max_characters:
        # Without white space in reach, cut in the middle of the word.
        cut = sentence.rfind(" ", 1, max_characters + 1)
        cut = cut if cut > 0 else max_characters
        counters["records/sentence_cut"] += 1
        yield sentence[:cut].rstrip()
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence
