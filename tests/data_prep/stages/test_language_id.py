"""Language id: tags, the detector's quirks, what is dropped, and real text."""

import pytest

from data_prep.counts import DropCounter
from data_prep.readers import Document
from data_prep.stages.language_id import (
    LanguageId,
    canonical_language,
    detectable,
    identify,
)
from official_cmlm.common.errors import UserError

TEXTS = {
    "en": "The committee will meet again next week to discuss the results of the election.",
    "de": "Der Ausschuss trifft sich nächste Woche erneut, um die Ergebnisse zu besprechen.",
    "fr": "Le comité se réunira de nouveau la semaine prochaine pour discuter des résultats.",
    "he": "הוועדה תיפגש שוב בשבוע הבא כדי לדון בתוצאות הבחירות",
    "jv": "Aku arep lunga menyang pasar karo ibuku lan adhiku amarga arep tuku beras lan janganan.",
    "zh": "委员会将于下周再次开会讨论选举结果",
    "no": "Komiteen møtes igjen neste uke for å diskutere resultatene av valget, sier lederen.",
}
TRADITIONAL = "委員會將於下週再次開會討論選舉結果，這個問題還沒有解決"


def run(text, language="en", **settings):
    counters = DropCounter()
    result = LanguageId(**{"detect": "check"} | settings)(Document("d", language, [text]), counters)
    return result and result.language, dict(counters)


@pytest.mark.parametrize("language", TEXTS)
def test_finds_the_language_and_writes_it_our_way(language):
    detected, confidence = identify(TEXTS[language])
    assert detected == language and 0.5 < confidence <= 1


@pytest.mark.parametrize(
    ("tag", "canonical"),
    [("iw", "he"), ("jw", "jv"), ("zh-Hant", "zh"), ("zh_TW", "zh"), ("nb-NO", "no"), ("EN", "en"),
     ("arb", "ar"), ("un", "und"), ("xx-Copt", "und"), ("sr-ME", "sr"), ("hsb", "hsb")],
)  # fmt: skip
def test_tags(tag, canonical):
    assert canonical_language(tag) == canonical
    assert canonical_language(canonical) == canonical


def test_both_chinese_scripts_are_chinese():
    assert identify(TRADITIONAL)[0] == "zh"
    assert {"he", "jv", "zh", "no", "en"} <= detectable()
    assert not {"und", "iw", "xx"} & detectable()


@pytest.mark.parametrize("odd", ["\0", "\x1b", "\x85", "\ud800", "\ufdd0", "\U0001ffff", "\x9f"])
def test_characters_that_the_detector_refuses(odd):
    assert identify(TEXTS["de"].replace(" ", f" {odd} ", 1))[0] == "de"


@pytest.mark.parametrize("text", ["", "   ", "12 34 56", "\0"])
def test_nothing_to_go_by(text):
    assert identify(text) == ("und", 0)


def test_markup_is_text():
    # Read as HTML the tags would be skipped and little of the text left.
    text = "<die> <der> <und> <nicht> <ein> " + TEXTS["de"]
    assert identify(text)[0] == "de"


@pytest.mark.parametrize(
    ("text", "declared", "settings", "expected"),
    [
        ("en", "en", {}, ("en", {})),
        ("de", "en", {}, (None, {"language/mismatch": 1})),
        ("he", "iw", {}, ("iw", {})),
        ("zh", "zh-Hant", {}, ("zh-Hant", {})),
        ("no", "nb", {"languages": ("no",)}, ("nb", {})),
        ("de", "en", {"detect": "set"}, ("de", {})),
        ("he", "en", {"detect": "set", "languages": ("iw",)}, ("he", {})),
        ("de", "en", {"detect": "set", "languages": ("en",)}, (None, {"language/other": 1})),
        ("de", "de", {"languages": ("en", "fr")}, (None, {"language/other": 1})),
        ("de", "en", {"detect": "off"}, ("en", {})),
        ("de", "en", {"detect": "off", "languages": ("de",)}, (None, {"language/other": 1})),
        # The detector knows no Sorbian: what cannot be checked is believed, and counted.
        ("de", "hsb", {}, ("hsb", {"language/not_checked": 1})),
    ],
)
def test_stage(text, declared, settings, expected):
    assert run(TEXTS[text], declared, **settings) == expected


def test_unsure():
    half = TEXTS["de"] + " " + TEXTS["en"]
    _, confidence = identify(half)
    assert 0.3 < confidence < 0.7
    for text, settings in (("17 42", {}), (half, {"min_confidence": confidence + 0.01})):
        assert run(text, "de", detect="set", **settings) == (None, {"language/unsure": 1})
    assert run(half, "de", detect="set", min_confidence=confidence)[0] in ("de", "en")


def test_long_documents_are_judged_by_slices_of_all_of_it():
    # Mostly German, whatever it begins with.
    text = [TEXTS["en"]] * 50 + [TEXTS["de"]] * 1000
    document = Document("d", "en", text)
    assert LanguageId(detect="set")(document, DropCounter()).language == "de"


def test_languages_to_keep_must_be_tags_that_the_detector_finds():
    LanguageId("check", ("en", "gr"))
    with pytest.raises(UserError, match="'gr' is none that can be detected"):
        LanguageId("set", ("en", "gr"))
    with pytest.raises(UserError, match="'<b>' is not a language tag"):
        LanguageId("off", ("<b>",))
