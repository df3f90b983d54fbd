"""WordPiece by the Rust library: the ids of tensorflow-text."""

import dataclasses
import unicodedata

import pytest

from official_cmlm.tokenization.wordpiece import RustWordPiece, WordPieceVocabulary
from tests.checkpoints.helpers import TEXTS

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = [
    chr(code)
    for code in [*range(0x2E00), *range(0x3000, 0xA6A0), *range(0xAC00, 0xD800)]
    if unicodedata.category(chr(code)) not in ("Cn", "Cs")
]


def vocabulary(lower_case, normalization):
    """Builds a vocabulary with every letter below, so that `[UNK]` hides no difference."""
    letters = [c for c in LETTERS if unicodedata.category(c)[0] in "LNSP"]
    tokens = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    return WordPieceVocabulary(tuple(tokens), lower_case, 1000, normalization)


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("normalization", ["tensorflow_text", "bert"])
def test_ids_equal_those_of_tensorflow_text(lower_case, normalization):
    """The texts are real lines in many scripts, and nearly every character between letters.

    A few hundred rare characters differ, as the libraries have other versions of Unicode.
    """
    entries = vocabulary(lower_case, normalization)
    ours, theirs = RustWordPiece(entries), entries.tokenizer()
    lines = [*TEXTS, "ΟΔΟΣ ὁδός ᾳ", "Straße ﬁn … ﷼", "so­ft zero‍width\x00\x85", "[MASK] [CLS]", ""]
    assert ours.tokenize(lines).to_list() == theirs.tokenize(lines).to_list()
    texts = [f"a{letter}b" for letter in LETTERS]
    pairs = zip(LETTERS, ours.tokenize(texts).to_list(), theirs.tokenize(texts).to_list())
    different = [letter for letter, mine, other in pairs if mine != other]
    names = {unicodedata.name(letter, "").partition(" ")[0] for letter in different}
    assert len(different) < len(LETTERS) / 100
    assert not names & {"LATIN", "GREEK", "HEBREW", "DEVANAGARI", "THAI", "HANGUL", "HIRAGANA"}


def test_no_special_token_is_read_in_a_text():
    """`[MASK]` in a text is four tokens of plain text."""
    entries = vocabulary(True, "bert")
    (row,) = RustWordPiece(entries).tokenize(["[MASK]"]).to_list()
    assert not set(row) & set(entries.special_ids.values()) and len(row) > 3


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("normalization", ["tensorflow_text", "bert"])
def test_the_longest_word_is_counted_in_bytes(lower_case, normalization):
    """After normalisation: a letter may become several, an accent none."""
    entries = vocabulary(lower_case, normalization)
    entries = dataclasses.replace(entries, max_bytes_per_word=400)
    ours, theirs = RustWordPiece(entries), entries.tokenizer()
    words = ["\u0e01" * 200, "a" * 401, "\ufdfa" * 13]
    for letter in (
        "a",
        "\u00e9",
        "\u0431",
        "\u0e01",
        "\u0e01\u0e34",
        "\uac00",
        "\u1ec7",
        "\ufb01",
        "\u0130",
    ):
        size = len(letter.encode())
        words += [letter * count for count in range(400 // size - 2, 400 // size + 3)]
        words.append("a" + letter * (400 // size))
    lines = [
        *words,
        f"a {words[0]} b, {words[0]}!\u4e2d{words[0]}\u0e01",
        f"{words[0]}\u200b\u0e01",
        "a\u00e9",
    ]
    got, expected = ours.tokenize(lines).to_list(), theirs.tokenize(lines).to_list()
    for line, mine, other in zip(lines, got, expected):
        assert mine == other, (line[:3], len(line))
    assert got[0] == [entries.special_ids["unknown"]]
    assert [len(row) for row in got[-1:]] == [2]
