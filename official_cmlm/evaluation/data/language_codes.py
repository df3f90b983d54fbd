"""Codes of languages as publishers write them, and the choice of some of the languages found."""

from collections.abc import Sequence

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.scores import Missing, SuiteReport

# XTREME's 36 languages: the code in LASER's file names -> the code in XTREME's tables.
XTREME = {
    "afr": "af", "ara": "ar", "bul": "bg", "ben": "bn", "deu": "de", "ell": "el",
    "spa": "es", "est": "et", "eus": "eu", "pes": "fa", "fin": "fi", "fra": "fr",
    "heb": "he", "hin": "hi", "hun": "hu", "ind": "id", "ita": "it", "jpn": "ja",
    "jav": "jv", "kat": "ka", "kaz": "kk", "kor": "ko", "mal": "ml", "mar": "mr",
    "nld": "nl", "por": "pt", "rus": "ru", "swh": "sw", "tam": "ta", "tel": "te",
    "tha": "th", "tgl": "tl", "tur": "tr", "urd": "ur", "vie": "vi", "cmn": "zh",
}  # fmt: skip

# Others of Multi-SimLex (ISO 639-3), the names in the files of SimLex-999's translations, and the
# code of Japanese in Webis-CLS-10.
_OTHERS = {
    "cym": "cy", "eng": "en", "pol": "pl", "swa": "sw",
    "english": "en", "german": "de", "italian": "it", "russian": "ru",
    "jp": "ja",
}  # fmt: skip


def two_letters(code: str) -> str:
    """Returns the two-letter code of a language, in lower case; a code without one as it is.

    >>> [two_letters(code) for code in ("ENG", "cmn", "fr", "YUE", "german")]
    ['en', 'zh', 'fr', 'yue', 'de']
    """
    code = code.strip().casefold()
    return XTREME.get(code, _OTHERS.get(code, code))


def pair_name(first: str, second: str) -> str:
    """Returns the one name of a pair of languages, whichever comes first in a file's name.

    >>> pair_name("ZHO", "he"), pair_name("CMN", "HEB"), pair_name("heb", "cmn")
    ('he-zho', 'he-zh', 'he-zh')
    """
    return "-".join(sorted((two_letters(first), two_letters(second))))


def direction_name(direction: str) -> str:
    """Returns a translation direction `<source>-<target>` in the codes of `two_letters`.

    >>> direction_name("DEU-eng"), direction_name("en-de"), direction_name("en")
    ('de-en', 'en-de', 'en')
    """
    return "-".join(two_letters(code) for code in direction.split("-", 1))


def choose_languages(
    option: str, wanted: Sequence[str], there: Sequence[str], report: SuiteReport | None = None
) -> list[str]:
    """Selects the languages that an option names from those that are there; by default all.

    Args:
      option: e.g. `tatoeba.languages`, for the message.
      wanted: codes in upper or lower case: those of the data, or others of the same languages.
      there: codes as the data has them; the result is in this order.
      report: gets the languages that are missing, unless all are. Default: none may be missing.
    """
    if not wanted:
        return list(there)
    matching: set[str] = set()
    lacking: dict[str, str] = {}
    codes = ", ".join(there) or "none"
    for code in wanted:
        # A folder may have files under both codes of a language: the given code has priority.
        same = [name for name in there if name.casefold() == code.casefold()]
        same = same or [name for name in there if two_letters(name) == two_letters(code)]
        if not same:
            lacking[code] = f"{option}: the data has no {code!r}; it has {codes}"
        matching.update(same)
    if lacking and not (matching and report):
        raise UserError(next(iter(lacking.values())))
    if report:
        report.missing += [Missing(code, option, line) for code, line in lacking.items()]
    return [name for name in there if name in matching]
