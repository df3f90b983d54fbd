"""Stage "normalise": Unicode normal form C, no control characters, single spaces.

Words that were hyphenated at a line's end are joined again.
"""

import dataclasses
import re

from official_cmlm.common import normal_forms

from ..counts import DropCounter
from ..readers.document import Document
from . import keep_paragraphs

_REPLACEMENT = "\ufffd"


# The characters that Windows-1252 has in place of C1 controls; NEL (U+0085) is white space.
_C1 = {
    code: bytes([code]).decode("cp1252", "ignore")
    for code in (*range(0x80, 0x85), *range(0x86, 0xA0))
}
# Characters that are not text. Those that change the reading are kept: the joiners U+200C and
# U+200D (Persian, the scripts of India, emoji), the Arabic, Syriac and Kaithi number signs, the
# Mongolian vowel separator, the controls of hieroglyphs, shorthand and music, and the tags of
# flags; and so are characters that are newer than this Python's Unicode.
_NO_TEXT = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # controls that are not white space
    "\xad"  # soft hyphen
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks, zero width space
    "\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffc\U000e0001"  # word joiner, byte order mark, …
    "\ud800-\udfff"  # half surrogate pairs
    "\ue000-\uf8ff\U000f0000-\U0010ffff"  # private use: mostly the icons of a page's own fonts
    "\ufdd0-\ufdef" + "".join(f"{chr(p << 16 | 0xFFFE)}{chr(p << 16 | 0xFFFF)}" for p in range(17))
)
_no_text = re.compile(f"[{_NO_TEXT}]")
# A joiner has nothing to join after white space, an ASCII letter or a text's beginning.
_stray_joiners = re.compile(r"(?<![^\x00-\x7f\s])[\u200c\u200d]+")

_LETTER = r"[^\W\d_]"
_soft_broken = re.compile(r"\xad\s+")
# The patterns begin with the hyphen, which is rare, so that the search is fast.
_cut_at_line = re.compile(rf"-(?<={_LETTER}-)[^\S\n]*\n\s*(?={_LETTER})")
_cut_at_space = re.compile(rf"-(?<={_LETTER}-)\s+(?={_LETTER})")
# A match that is a whole word, such as "re- con- struct", has the group. Parts of words, such as
# "re- con-", are matched too, without the group: otherwise the search would begin again inside of
# them and take quadratic time, hours for a line of hyphens.
_WHOLE = r"(?:(?P<whole>)(?![\w-])|)"
_lines_word = re.compile(rf"(?<![\w-]){_LETTER}+(?:-[^\S\n]*\n\s*{_LETTER}+)+{_WHOLE}")
_spaced_word = re.compile(rf"(?<![\w-]){_LETTER}+(?:-\s+{_LETTER}+)+{_WHOLE}")
_word = re.compile(rf"(?<![\w-]){_LETTER}+(?:-{_LETTER}+)*(?![\w-])")
# Words that follow a hyphen in place of a part left out: "Vor- und Nachteile".
_AFTER_OMISSION = frozenset(
    "and or to nor und oder bis noch wie sowie bzw als et ou à y o e u en of tot och eller og"
    " i lub ali ili".split()
)
# With more words to look for, one pass over all words is faster than a search for each.
_MANY = 100


# A document with a larger share of U+FFFD among its characters is dropped (our own value): with one
# in a hundred hardly any sentence is whole.
_MAX_REPLACED = 0.01


def normalise_document(document: Document, counters: DropCounter) -> Document | None:
    """Returns the document in normal form, or None if it is empty or was decoded wrongly.

    Counts `normalise/empty`, `normalise/not_decoded` (documents) and `normalise/empty_paragraph`;
    and in kept text `normalise/hyphens_mended`.
    """
    normal = [normalise(text) for text in mend_hyphens(document.paragraphs, counters)]
    paragraphs = [paragraph for paragraph in normal if paragraph]
    for paragraph in normal:
        if not paragraph:
            counters.drop("normalise/empty_paragraph", document.language)
    if not paragraphs:
        counters.drop("normalise/empty", document.language)
        return None
    replaced = sum(text.count(_REPLACEMENT) for text in paragraphs if not text.isascii())
    if replaced > _MAX_REPLACED * sum(map(len, paragraphs)):
        counters.drop("normalise/not_decoded", document.language)
        return None
    # The white space of the line as it was read no longer counts.
    document = dataclasses.replace(document, line="") if document.line else document
    return keep_paragraphs(document, paragraphs)


def normalise(text: str) -> str:
    """Returns the text in normal form C, with single spaces, without characters that are not text.

    C1 controls become what Windows-1252 has in their place, as HTML's numeric references do; half
    surrogate pairs become U+FFFD. Normalising a second time changes nothing.
    """
    # Printable ASCII is text, and so is most of other scripts.
    if not text.isprintable():
        text = _no_text.sub(_replacement, text)
    if not text.isascii():
        text = normal_forms.normalise("NFC", text)
        if "\u200c" in text or "\u200d" in text:
            # Characters that a joiner kept apart may compose now.
            text = normal_forms.normalise("NFC", _stray_joiners.sub("", text))
    return " ".join(text.split())


def mend_hyphens(paragraphs: list[str], counters: DropCounter) -> list[str]:
    """Joins words that were cut in two at a line's end.

    Where the line's end is still there the hyphen is removed, unless the document has the word with
    its hyphen elsewhere, as in "well-known"; a soft hyphen is always removed. Where a reader has
    made the line's end a space, words are joined only if the document has the joined word
    elsewhere, so that "Vor- und Nachteile" stays. Counts `normalise/hyphens_mended`.
    """
    if any("\xad" in text for text in paragraphs):
        paragraphs = [_soft_broken.sub("", text) for text in paragraphs]
    paragraphs = _mend(paragraphs, "\n", _cut_at_line, _lines_word, counters)
    return _mend(paragraphs, "- ", _cut_at_space, _spaced_word, counters)


def _mend(
    paragraphs: list[str],
    hint: str,
    cut: re.Pattern[str],
    word: re.Pattern[str],
    counters: DropCounter,
) -> list[str]:
    """Joins the words that `word` matches, with hyphens if the document has them so elsewhere.

    Words that were cut at a line's end and occur nowhere else are joined without hyphens. Only
    paragraphs with `hint` and then `cut`, which are found faster, are searched for words.
    """
    places = [n for n, text in enumerate(paragraphs) if hint in text and cut.search(text)]
    if not places:
        return paragraphs
    matches_of_all = (match for n in places for match in word.finditer(paragraphs[n]))
    matches = {match[0] for match in matches_of_all if match["whole"] is not None}
    parts = {match: re.split(r"-\s+", match) for match in matches}
    at_line = word is _lines_word
    if not at_line:
        parts = {m: cut_up for m, cut_up in parts.items() if _AFTER_OMISSION.isdisjoint(cut_up[1:])}
    without = {match: "".join(cut_up) for match, cut_up in parts.items()}
    hyphened = {match: "-".join(cut_up) for match, cut_up in parts.items()}
    occurring = _occurring({*without.values(), *hyphened.values()}, paragraphs)
    joined = {}
    for match in parts:
        if hyphened[match] in occurring and without[match] not in occurring:
            joined[match] = hyphened[match]
        elif without[match] in occurring or at_line:
            joined[match] = without[match]

    def join(match: re.Match[str]) -> str:
        if match["whole"] is None:
            return match[0]
        counters["normalise/hyphens_mended"] += match[0] in joined
        return joined.get(match[0], match[0])

    mended = list(paragraphs)
    for n in places:
        mended[n] = word.sub(join, mended[n])
    return mended


def _occurring(words: set[str], paragraphs: list[str]) -> set[str]:
    """Returns the words that occur in the text as whole words."""
    text = "\n".join(paragraphs)
    if len(words) > _MANY:
        return words.intersection(_word.findall(text))
    return {
        word
        for word in words
        if word in text and re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)
    }


def _replacement(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        return _REPLACEMENT
    return _C1.get(ord(character), "")
