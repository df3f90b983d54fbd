"""Ends of sentences that are none: abbreviations that sentencex's own lists lack."""

import re

# Titles, and initials. In French novels one break in 27 follows a "M." that means Monsieur.
_FRENCH = r"(?:MM?|Mmes?|Mlles?|Mgr|Mtre|Me|Dr|Drs|Pr|Vve|Ste?|[A-ZÀÂÇÉÈÊÎÔÛ])\.\s*$"
_UNFINISHED = {"fr": re.compile(rf"(?<![\w'’.-]){_FRENCH}")}
MENDED_LANGUAGES = frozenset(_UNFINISHED)


def rejoined(pieces: list[str], language: str) -> list[str]:
    """Joins each piece that ends with an abbreviation to the one after it.

    Args:
      pieces: a paragraph's sentences, white space kept, so that they end to end are the paragraph.
      language: code of the language; all but `fr` are returned as they are.

    Returns:
      The sentences, e.g. of French `["Il a vu M. ", "Dupont hier."]` only
      `["Il a vu M. Dupont hier."]`.
    """
    unfinished = _UNFINISHED.get(language)
    if unfinished is None:
        return pieces
    sentences: list[str] = []
    open_end = False
    for piece in pieces:
        if open_end:
            sentences[-1] += piece
        else:
            sentences.append(piece)
        open_end = unfinished.search(piece) is not None
    return sentences
