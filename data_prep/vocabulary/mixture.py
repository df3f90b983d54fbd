"""The text that a vocabulary is learned from: inputs by language, small ones raised."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from official_cmlm.common.hashing import hash_text
from official_cmlm.common.text_files import COMPRESSED

from ..counts import Counts
from ..output.report import smooth_shares
from ..readers import Document, TextFile, size_of

# Characters that BERT's tokenizer takes for a word each.
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
# Bytes of text in a compressed byte, about; only the size of the sample depends on it.
_COMPRESSION_RATIO = 3
# The documents of a text, which is read anew at each call.
Read = Callable[[Counts], Iterator[Document]]


def text_bytes(files: Iterable[TextFile]) -> int:
    """Returns about how much text there is, in bytes."""
    return sum(
        size_of(path) * (_COMPRESSION_RATIO if path.endswith(COMPRESSED) else 1)
        for path, _ in files
    )


def count_words(text: str) -> int:
    """Counts words between spaces; a Han character is a word, as for BERT's tokenizer."""
    if text.isascii():
        return len(text.split())
    text, characters = _HAN.subn(" ", text)
    return len(text.split()) + characters


def smoothing_coefficients(counts: Mapping[str, int], exponent: float) -> dict[str, float]:
    """Returns the factor of each language's counts: p^S / (Σ p^S · p).

    p is a language's share of all words, S the exponent; the sum runs over all languages, so that
    the shares become p^S / Σ p^S and the total stays. CMLM §4.4 takes S = 0.3 "from the vocab
    generation tool", which is tensorflow_text's `tools/wordpiece_vocab`; it computes this.

    Args:
      counts: language -> words, at least one of them positive.
      exponent: 1 changes nothing, 0 makes all languages alike.
    """
    total, shares = sum(counts.values()), smooth_shares(counts, exponent)
    return {language: share * total / counts[language] for language, share in shares.items()}


def times(paragraph: str, coefficient: float) -> int:
    """Returns how often a paragraph is used so that its language counts `coefficient` times.

    Every paragraph is used as often as the coefficient's whole part says; a share of them, its
    fraction, is used once more. A hash of the text chooses these, so they are the same in any order
    and in every run.
    """
    whole = math.floor(coefficient)
    return whole + (hash_text(paragraph) < (coefficient - whole) * 2**64)


def sample_paragraphs(
    read: Read, size: float, counts: Counts, max_bytes: float
) -> Iterator[tuple[str, str]]:
    """Yields (language, paragraph) spread evenly over all text, `max_bytes` of UTF-8 at most.

    Which ones depends on the text alone. `size` is about how much there is, in bytes: for
    compressed files it is an estimate, so their sample may be smaller.

    Raises:
      UserError: as the readers do.
    """
    share = min(1.0, max_bytes / max(1, size))
    seen = taken = 0
    for document in read(counts):
        for paragraph in document.paragraphs:
            own = _size(paragraph)
            seen += own
            if taken + own <= min(share * seen, max_bytes):
                taken += own
                yield document.language, paragraph


def smooth_paragraphs(
    read: Read, counts: Counts, max_bytes: float, exponent: float
) -> Iterator[tuple[str, str]]:
    """Yields (language, paragraph) so that languages have smoothed shares; reads the text twice.

    Paragraphs of rare languages come several times in a row; of frequent languages some are left
    out. In total, about as much text comes as there is, or `max_bytes` of UTF-8, if that is less.

    Raises:
      UserError: as the readers do.
    """
    words: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for document in read(Counts()):
        words[document.language] += sum(map(count_words, document.paragraphs))
        sizes[document.language] += sum(map(_size, document.paragraphs))
    if not any(words.values()):
        return
    coefficients = smoothing_coefficients(words, exponent)
    total = sum(sizes[language] * value for language, value in coefficients.items())
    scale = min(1.0, max_bytes / max(1.0, total))
    for document in read(counts):
        coefficient = scale * coefficients.get(document.language, 0.0)
        for paragraph in document.paragraphs:
            for _ in range(times(paragraph, coefficient)):
                yield document.language, paragraph


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
