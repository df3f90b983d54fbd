"""Normal form: against unicodedata, by hand, and what holds for any text."""

import sys
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.counts import DropCounter
from data_prep.readers import Document
from data_prep.stages.normalise import mend_hyphens, normalise, normalise_document

# Characters that matter: joiners, controls, marks, halves, hyphens, white space.
MIXED = st.text(
    st.one_of(
        st.sampled_from("ab -é\u0301\u200c\u200d\u200b\xad\n\x85\x92\x00\ufeff\ud800\ufffd\u2028"),
        st.characters(),
    )
)


def stage(*paragraphs, counters=None):
    document = Document("d", "en", list(paragraphs))
    return normalise_document(document, DropCounter() if counters is None else counters)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("plain", "plain"),
        ("  two \t words\r\n\x0b ", "two words"),
        ("e\u0301te\u0301", "été"),
        ("no\xa0break\u3000wide\u2028line\x85next", "no break wide line next"),
        ("be\xadcause", "because"),
        ("\ufeffmark\u200bed\u2060", "marked"),
        ("\u202eright\u202c \u200fto\u200e left", "right to left"),
        ("It\x92s \x93quoted\x94 \x96 \x81bad", "It’s “quoted” – bad"),
        ("bell\x07\x00 del\x7f", "bell del"),
        ("half \ud83d pair", "half \ufffd pair"),
        ("icon\ue000 \U000f0001\U0010fffd", "icon"),
        ("not\ufdd0 a\U0001fffe char\uffff", "not a char"),
        # Persian "I want", Hindi with a joined half form, a family, a flag of tags.
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क्\u200dष", "क्\u200dष"),
        ("👩\u200d👩\u200d👧", "👩\u200d👩\u200d👧"),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴\U000e0067\U000e0062\U000e007f"),
        ("a\u200db \u200c c\u200d", "ab c"),
        # Characters that a joiner kept apart compose.
        ("e\u200d\u0301", "é"),
        ("\u0601٢", "\u0601٢"),
        # Canonical equivalents that are not compositions; compatibility ones stay.
        ("\u212b \u2126", "Å Ω"),
        ("ﬁ ½ ①", "ﬁ ½ ①"),
    ],
)
def test_by_hand(text, normal):
    assert normalise(text) == normal


@given(MIXED)
@settings(max_examples=300, deadline=None)
@example("\u037e\u200d\u0301")
@example("e\u200b\u0301")
def test_holds_for_any_text(text):
    normal = normalise(text)
    assert normalise(normal) == normal
    assert unicodedata.is_normalized("NFC", normal)
    assert normal == " ".join(normal.split())
    assert not {unicodedata.category(c) for c in normal} & {"Cc", "Cs", "Co", "Zl", "Zp"}


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
@settings(max_examples=200, deadline=None)
def test_of_ordinary_characters_it_is_nfc_and_single_spaces(text):
    text = text.replace("\ufffc", "")
    assert normalise(text) == " ".join(unicodedata.normalize("NFC", text).split())


def test_every_control_character_goes():
    left = {
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) in ("Cc", "Cs", "Co")
        and normalise(f"x{char}y") not in ("xy", "x y", "x\ufffdy")
    }
    # Windows-1252 gives these a meaning.
    assert {unicodedata.category(char) for char in left} == {"Cc"}
    assert left == {
        chr(code)
        for code in range(0x80, 0xA0)
        if code != 0x85 and bytes([code]).decode("cp1252", "ignore")
    }


@pytest.mark.parametrize(
    ("paragraphs", "mended"),
    [
        # A line's end that is still there.
        (["the con-\ntinent"], ["the continent"]),
        (["re-\ncon-  \n struct"], ["reconstruct"]),
        (["a well-\nknown man", "the well-known man"], ["a well-known man", "the well-known man"]),
        (["page 3-\n4, x-\n5"], ["page 3-\n4, x-\n5"]),
        # A soft hyphen, even before a space.
        (["conti\xad nent"], ["continent"]),
        # A space: only what the text has elsewhere.
        (["the con- tinent, one continent"], ["the continent, one continent"]),
        (["the day- time", "by day-time"], ["the day-time", "by day-time"]),
        (["the day- time, day-time or daytime"], ["the daytime, day-time or daytime"]),
        (["the con- tinent, continental"], ["the con- tinent, continental"]),
        (["Vor- und Nachteile"], ["Vor- und Nachteile"]),
        (["Hin- und Rückweg", "Hin-und Rückweg"], ["Hin- und Rückweg", "Hin-und Rückweg"]),
        (["he said - nothing"], ["he said - nothing"]),
    ],
)
def test_hyphens(paragraphs, mended):
    counters = DropCounter()
    assert mend_hyphens(paragraphs, counters) == mended
    changed = paragraphs != mended and "\xad" not in paragraphs[0]
    assert bool(counters["normalise/hyphens_mended"]) == changed


def test_many_broken_words_are_looked_up_the_same_way():
    words = [chr(97 + n // 26) + chr(97 + n % 26) + "xyz" for n in range(200)]
    cut = [f"{word[:3]}- {word[3:]}" for word in words]
    few = [mend_hyphens([broken, " ".join(words)], DropCounter())[0] for broken in cut]
    many = mend_hyphens([*cut, " ".join(words)], DropCounter())[:-1]
    assert few == many == words


@given(st.lists(st.text(st.sampled_from("abc- \n\xadé1_")), max_size=4))
@settings(max_examples=300, deadline=None)
def test_the_stage_is_idempotent(paragraphs):
    once = stage(*paragraphs)
    if once is not None:
        assert normalise_document(once, DropCounter()) is once


def test_stage_counts_and_leaves_clean_documents_alone():
    counters = DropCounter()
    document = Document("d", "en", ["Clean text.", "Été."])
    assert normalise_document(document, counters) is document
    assert stage("a", "\u200b \x00", "b", counters=counters).paragraphs == ["a", "b"]
    assert stage("\u200b", counters=counters) is None
    assert counters == {"normalise/empty_paragraph": 2, "normalise/empty": 1}


def test_share_of_undecodable_characters():
    counters = DropCounter()
    assert stage("x" * 99 + "\ufffd", counters=counters) is not None
    assert stage("x" * 98 + "\ufffd", counters=counters) is None
    assert stage("x" * 49, "x" * 49 + "\ud800", counters=counters) is None
    assert counters == {"normalise/not_decoded": 2}
