"""Language tags by BCP 47 (RFC 5646, section 2.1), and the codes that the records hold."""

import functools
import re

from official_cmlm.common.errors import UserError

# No tag in use is this long; RFC 5646, section 4.4.1, wants room for 35 characters.
_MOST_CHARACTERS = 64
# Scripts written without spaces between words, as ranges of code points.
# Thai and Lao; Myanmar; Khmer; kana; Han with its extensions.
UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)),
)
_LANGUAGE = r"(?:[a-z]{2,3}(?:-[a-z]{3}){0,3}|[a-z]{4,8})"
_SCRIPT, _REGION = r"(?:-[a-z]{4})?", r"(?:-(?:[a-z]{2}|[0-9]{3}))?"
_VARIANTS = r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"
_EXTENSIONS = r"(?:-[0-9a-wy-z](?:-[a-z0-9]{2,8})+)*"
_PRIVATE = r"x(?:-[a-z0-9]{1,8})+"
# These tags were registered before there were rules.
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
    """Returns whether a tag is well-formed, in upper or lower case, with hyphens or underscores.

    It is not checked that there is such a language.

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
    """Returns the tag if it is well-formed.

    Raises:
      UserError: it is not; the message begins with `where`, such as `--language` or `a.jsonl:3`.
    """
    if not is_language_tag(tag):
        raise UserError(f"{where}: {no_language(tag)}")
    return tag


# ISO 639-3 to ISO 639-1, for the languages that have a code of two letters.
_SHORT = dict(
    pair.split(":")
    for pair in """
    aar:aa abk:ab afr:af aka:ak amh:am ara:ar arg:an asm:as ava:av ave:ae aym:ay aze:az bak:ba
    bam:bm bel:be ben:bn bis:bi bod:bo bos:bs bre:br bul:bg cat:ca ces:cs cha:ch che:ce chu:cu
    chv:cv cor:kw cos:co cre:cr cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en epo:eo est:et
    eus:eu ewe:ee fao:fo fas:fa fij:fj fin:fi fra:fr fry:fy ful:ff gla:gd gle:ga glg:gl glv:gv
    grn:gn guj:gu hat:ht hau:ha hbs:sh heb:he her:hz hin:hi hmo:ho hrv:hr hun:hu hye:hy ibo:ig
    ido:io iii:ii iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it jav:jv jpn:ja kal:kl kan:kn
    kas:ks kat:ka kau:kr kaz:kk khm:km kik:ki kin:rw kir:ky kom:kv kon:kg kor:ko kua:kj kur:ku
    lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg mah:mh mal:ml mar:mr mkd:mk
    mlg:mg mlt:mt mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nld:nl
    nno:nn nob:nb nor:no nya:ny oci:oc oji:oj ori:or orm:om oss:os pan:pa pli:pi pol:pl por:pt
    pus:ps que:qu roh:rm ron:ro run:rn rus:ru sag:sg san:sa sin:si slk:sk slv:sl sme:se smo:sm
    sna:sn snd:sd som:so sot:st spa:es sqi:sq srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv tah:ty
    tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti ton:to tsn:tn tso:ts tuk:tk tur:tr twi:tw
    uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi vol:vo wln:wa wol:wo xho:xh yid:yi yor:yo zha:za
    zho:zh zul:zu
    """.split()
)
_PRIMARY = re.compile(r"\s*([A-Za-z]{2,3})(?![A-Za-z0-9])")


def language_code(declared: str | None) -> str:
    """Returns the code of the first language that a file declares, or an empty string.

    It has two letters if the language has such a code.

    >>> language_code("en-US"), language_code("deu,eng"), language_code("english")
    ('en', 'de', '')
    """
    match = _PRIMARY.match(declared or "")
    code = match[1].lower() if match else ""
    return _SHORT.get(code, code)
