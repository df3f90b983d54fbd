"""Language tags: which strings are one, by BCP 47 (RFC 5646, section 2.1)."""

import functools
import re

from official_cmlm.errors import UserError

# Longer than any in use; RFC 5646, section 4.4.1, wants room for 35 characters.
_MOST_CHARACTERS = 64
_LANGUAGE = r"(?:[a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4,8})"
_SCRIPT, _REGION = r"(?:-[a-z]{4})?", r"(?:-(?:[a-z]{2}|[0-9]{3}))?"
_VARIANTS = r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"
_EXTENSIONS = r"(?:-[0-9a-wy-z](?:-[a-z0-9]{2,8})+)*"
_PRIVATE = r"x(?:-[a-z0-9]{1,8})+"
# Registered before there were rules.
_IRREGULAR = (
    r"en-gb-oed|i-(?:ami|bnn|default|enochian|hak|klingon|lux|mingo|navajo|pwn|tao|tay|tsu)"
    r"|sgn-(?:be-fr|be-nl|ch-de)"
)
_TAG = re.compile(
    f"{_LANGUAGE}{_SCRIPT}{_REGION}{_VARIANTS}{_EXTENSIONS}(?:-{_PRIVATE})?"
    f"|{_PRIVATE}|{_IRREGULAR}",
    re.ASCII | re.IGNORECASE,
)


@functools.lru_cache(maxsize=4096)
def is_language_tag(tag: str) -> bool:
    """Whether a tag is well-formed; in any case, and with underscores too, as many files write it.

    Whether there is such a language is not asked.

    >>> [is_language_tag(tag) for tag in ("en", "zh_Hant-TW", "zh-min-nan", "<b>", "en|", "")]
    [True, True, True, False, False, False]
    """
    return len(tag) <= _MOST_CHARACTERS and _TAG.fullmatch(tag.replace("_", "-")) is not None


def no_language(tag: str) -> str:
    """Returns a message for a string that is not a language tag, with a remedy."""
    shown = tag if len(tag) <= 40 else f"{tag[:39]}…"
    return (
        f"{shown!r} is not a language tag (BCP 47); write one such as en, pt-BR or zh-Hant, or und"
        " if the language is not known"
    )


def check_language_tag(tag: str, where: str) -> str:
    """Returns the tag if it is one.

    Args:
      tag: a language tag, as a flag or a file gives it.
      where: what the message begins with, such as `--language` or `a.jsonl:3`.

    Raises:
      UserError: it is not well-formed.
    """
    if not is_language_tag(tag):
        raise UserError(f"{where}: {no_language(tag)}")
    return tag
