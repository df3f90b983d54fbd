"""Stage "language id": identifies the language of a document with Compact Language Detector 2."""

import functools
import re
from dataclasses import dataclass, replace
from typing import Annotated

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.languages import check_language_tag
from official_cmlm.common.validation import Flag, OneOf, between

from ..counts import DropCounter
from ..readers.document import Document

DETECT_LANGUAGE = ("check", "set", "off")
UNKNOWN = "und"
# A long document is judged by _SLICES slices of _SLICE_CHARACTERS, evenly spread over it.
_SLICES, _SLICE_CHARACTERS = 32, 512

# Deprecated codes, languages that have a code as part of a larger one, and what the detector calls
# text without a language: code in the input -> code that the project writes.
_SAME = {
    **{"iw": "he", "in": "id", "ji": "yi", "jw": "jv", "mo": "ro", "sh": "sr", "fil": "tl"},
    **{"nb": "no", "cmn": "zh", "arb": "ar", "swh": "sw", "zsm": "ms", "pes": "fa", "prs": "fa"},
    **{"ekk": "et", "lvs": "lv", "uzn": "uz", "khk": "mn", "plt": "mg", "npi": "ne", "azj": "az"},
    **{"als": "sq", "kmr": "ku", "gaz": "om", "ydd": "yi", "pbt": "ps", "ory": "or"},
    **{code: UNKNOWN for code in ("un", "xxx", "xx", "zzb", "zze", "zzh", "zzp")},
}
# Characters that the detector refuses as invalid UTF-8 although they are valid.
_refused = re.compile(
    "[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(p << 16 | 0xFFFE)}{chr(p << 16 | 0xFFFF)}" for p in range(17))
    + "]"
)


@dataclass(frozen=True)
class LanguageId:
    """The stage: checks or sets a document's language, and keeps the languages that are wanted.

    Attributes:
      detect: language of a document: the declared one (off); the declared one, and documents in
        another are dropped (check); or the one found (set).
      languages: languages to keep. Default: all.
      min_confidence: share of a document that must be in the language found, or it is dropped; 0 to
        1. The default is our own choice.

    Raises:
      UserError: for a malformed language tag, or one of a language that "set" cannot find.
    """

    detect: Annotated[str, OneOf(DETECT_LANGUAGE), Flag("detect_language")] = "off"
    languages: Annotated[tuple[str, ...], Flag("keep_languages")] = ()
    min_confidence: Annotated[float, between(0, 1), Flag("min_language_share")] = 0.5

    def __post_init__(self) -> None:
        for language in self.languages:
            check_language_tag(language, "languages")
            if self.detect == "set" and canonical_language(language) not in detectable():
                raise UserError(f"languages: {language!r} is none that can be detected")

    def __call__(self, document: Document, counters: DropCounter) -> Document | None:
        """Returns the document, with "set" under the language found, or None.

        Counts dropped documents as `language/unsure`, `language/mismatch` and `language/other`,
        and kept ones as `language/not_checked` where the detector does not know the declared
        language.
        """
        language = canonical_language(document.language)
        if self.detect == "check" and language not in detectable():
            counters["language/not_checked"] += 1
        elif self.detect != "off":
            detected, confidence = identify(_excerpt(document.paragraphs))
            if detected == UNKNOWN or confidence < self.min_confidence:
                counters.drop("language/unsure", document.language)
                return None
            if self.detect == "check" and detected != language:
                counters.drop("language/mismatch", document.language)
                return None
            if self.detect == "set":
                language = detected
        if self.languages and language not in map(canonical_language, self.languages):
            counters.drop("language/other", document.language)
            return None
        if self.detect == "set" and language != document.language:
            return replace(document, language=language)
        return document


def identify(text: str) -> tuple[str, float]:
    """Finds the language of a text, normalised or not; characters that are not text are ignored.

    Returns:
      The language, as `canonical_language` writes it, "und" if the detector has no answer; and the
      share of the text's bytes that the detector gives to it, 0 to 1, 0 if it only guesses, as it
      does for a few words.
    """
    check_extra("data", "pycld2")
    import pycld2

    try:
        reliable, _, details = pycld2.detect(text, isPlainText=True)
    except (pycld2.error, UnicodeEncodeError):
        text = _refused.sub(" ", text)
        reliable, _, details = pycld2.detect(text, isPlainText=True)
    language = canonical_language(details[0][1])
    if reliable and language != UNKNOWN:
        return language, details[0][2] / 100
    details = pycld2.detect(text, bestEffort=True, isPlainText=True)[2]
    return canonical_language(details[0][1]), 0.0


def canonical_language(tag: str) -> str:
    """Returns the language subtag of a BCP-47 tag, one for all codes of the same language.

    Script and region are left out ("zh-Hant" and "zh-TW" are "zh"), deprecated codes replaced
    ("iw" is "he", "jw" is "jv"), and so are codes of languages within a larger language that alone
    has a common two-letter code ("nb" is "no", "arb" is "ar").
    """
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return _SAME.get(primary, primary)


@functools.cache
def detectable() -> frozenset[str]:
    """Returns the languages that the detector can find, as `canonical_language` writes them."""
    check_extra("data", "pycld2")
    import pycld2

    names = set(pycld2.DETECTED_LANGUAGES)
    codes = {canonical_language(code) for name, code in pycld2.LANGUAGES if name in names}
    return frozenset(codes - {UNKNOWN})


def _excerpt(paragraphs: list[str]) -> str:
    """Returns the text, or slices of a long one."""
    text = "\n".join(paragraphs)
    if len(text) <= _SLICES * _SLICE_CHARACTERS:
        return text
    step = len(text) / _SLICES
    starts = (int(step * n) for n in range(_SLICES))
    return "\n".join(text[start : start + _SLICE_CHARACTERS] for start in starts)
