"""The vocabulary and the tokenizer: errors, settings, and ids equal to Model Garden's."""

import json
import unicodedata

import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import (
    WordPieceVocabulary,
    build_tokenizer,
    load_vocabulary,
)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _write(folder, entries, settings=None, end="\n"):
    path = folder / "vocab.txt"
    path.write_bytes(end.join([*entries, ""]).encode())
    if settings is not None:
        path.with_suffix(".json").write_text(json.dumps(settings))
    return path


def _check_refused(path, message, **arguments):
    with pytest.raises(UserError, match=message) as caught:
        load_vocabulary(path, **({"lower_case": True} | arguments))
    assert str(path.parent) in str(caught.value)


def test_entries_and_ids(tmp_path):
    """A line's index is its id, whatever the line ends and white-space characters inside."""
    entries = ["a", *SPECIALS[::-1], "##b", "é", "\u2028", "\x85", "\u3000"]
    for end in ("\n", "\r\n"):
        vocabulary = load_vocabulary(_write(tmp_path, entries, end=end), lower_case=False)
        assert vocabulary.tokens == tuple(entries) and len(vocabulary) == len(entries)
        ids = {"mask": 1, "sep": 2, "cls": 3, "unknown": 4, "pad": 5}
        assert vocabulary.special_ids == ids
    path = tmp_path / "vocab.txt"
    path.write_bytes(path.read_bytes().removesuffix(b"\r\n"))
    assert load_vocabulary(path, lower_case=False).tokens == tuple(entries)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        *(
            ([token for token in SPECIALS if token != missing],
             rf"4 entries but no \{missing[:-1]}\]; add a line")
            for missing in SPECIALS
        ),
        (["a", "b"], r"2 entries but no \[PAD\] .*\[MASK\]"),
        ([], r"0 entries but no \[PAD\] .*\[MASK\]"),
        ([*SPECIALS, "x", "y", "x"], "'x' stands on lines 6 and 8"),
        ([*SPECIALS, "", "y"], "line 6 is empty"),
        ([*SPECIALS, "y", ""], "line 7 is empty"),
    ],
)  # fmt: skip
def test_invalid_entries_are_refused(tmp_path, entries, message):
    """Missing tokens are named; line numbers count from one, of a duplicate both are named."""
    _check_refused(_write(tmp_path, entries), message)


def test_invalid_vocabulary_files_are_refused(tmp_path):
    """Not UTF-8, empty, and not there."""
    path = tmp_path / "vocab.txt"
    advice = "name a vocabulary; cmlm build-vocab"
    for content, message in (
        (None, f"no such file; {advice}"),
        (b"[PAD]\n\xff\n", "not UTF-8 at byte 6"),
        (b"", "0 entries"),
    ):
        if content is not None:
            path.write_bytes(content)
        _check_refused(path, message)


def test_casing(tmp_path):
    """Neither told nor saved is an error; told beats saved."""
    path = _write(tmp_path, SPECIALS)
    _check_refused(path, "casing unknown; pass --lower_case", lower_case=None)
    _write(tmp_path, SPECIALS, {"lower_case": False, "max_bytes_per_word": 77})
    assert load_vocabulary(path).settings() == {"lower_case": False, "max_bytes_per_word": 77}
    told = load_vocabulary(path, lower_case=True, max_bytes_per_word=5)
    assert told.settings() == {"lower_case": True, "max_bytes_per_word": 5}
    _write(tmp_path, SPECIALS, {"lower_case": False})
    assert load_vocabulary(path).max_bytes_per_word == 1000


@pytest.mark.parametrize(
    "settings",
    ["{", "[]", "3", '{"lower_case": "false"}', '{"lower_case": 1, "max_bytes_per_word": "x"}'],
)
def test_damaged_settings(tmp_path, settings):
    """The settings file is named; a word in quotes is not taken for a truth value."""
    path = _write(tmp_path, SPECIALS)
    path.with_suffix(".json").write_text(settings)
    _check_refused(path, "vocab.json", lower_case=None)


def test_round_trip(tmp_path):
    """A saved vocabulary is read back with its hash."""
    vocabulary = WordPieceVocabulary((*SPECIALS, "ä", "##語", "\u2028"), False, 123)
    vocabulary.save(tmp_path)
    loaded = load_vocabulary(tmp_path / "vocab.txt")
    assert loaded == vocabulary and loaded.hash == vocabulary.hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vocab.json", "vocab.txt"]


def test_hash():
    """Everything that changes an id changes the hash."""
    tokens = (*SPECIALS, "a", "b", "ab")
    vocabularies = [
        WordPieceVocabulary(tokens, True, 1000),
        WordPieceVocabulary(tokens, False, 1000),
        WordPieceVocabulary(tokens, True, 100),
        WordPieceVocabulary((*tokens, "c"), True, 1000),
        WordPieceVocabulary(tokens[:-1], True, 1000),
        WordPieceVocabulary((*SPECIALS, "b", "a", "ab"), True, 1000),
        WordPieceVocabulary((*SPECIALS, "aa", "b", "ab"), True, 1000),
        WordPieceVocabulary((*SPECIALS, "a", "ba", "b"), True, 1000),
    ]
    assert len({vocabulary.hash for vocabulary in vocabularies}) == len(vocabularies)
    assert WordPieceVocabulary(tokens, True, 1000).hash == vocabularies[0].hash
    assert len(vocabularies[0].hash) == 16 and int(vocabularies[0].hash, 16)


def test_long_words():
    """A clause without spaces is [UNK] if it is longer than allowed, else it has its pieces."""
    # 60 Thai letters of three bytes each.
    clause = "กขค" * 20
    tokens = (*SPECIALS, "ก", "##ก", "##ข", "##ค", "ok")
    # The limit itself is still allowed.
    for most, pieces in ((100, [1]), (179, [1]), (180, [5, *([7, 8, 6] * 20)[:59]])):
        ids = _ids(WordPieceVocabulary(tokens, False, most), [f"ok {clause} ok"])
        assert ids == [[9, *pieces, 9]]


def _ids(vocabulary, lines):
    return build_tokenizer(vocabulary).tokenize(lines).to_list()


# Scripts and signs that normalisers treat in different ways.
HARD_LINES = [
    "Café CAFÉ Cafe\u0301 naïve Ångström ÅNGSTRÖM Straße STRASSE İstanbul ΣΊΣΥΦΟΣ ǅ ﬁne",
    "漢字かな交じり文。カタカナ、ﾊﾝｶｸ 한국어 문장 ไทยภาษา हिन्दी العربية עברית",
    "Hello,world!it's(a)test…—“quoted”‘single’ 1,000.50$ €5 £3 x²+y³=½",
    "tabs\tand\xa0no-break\u2003em\u200bzero\u00adsoft\ufeffbom a\x00b \x07bell \ufffd",
    "emoji 😀👩‍👩‍👧 flags 🇩🇪 maths 𝐱𝔘 snake_case CamelCase don't [MASK] [UNK] ##x",
    "",
    "   ",
    "a" * 150,
]


def _model_garden(path, lines, lower_case):
    """Returns our ids and Model Garden's of each line, with its own limit on words."""
    from official.nlp.modeling.layers import BertTokenizer

    vocabulary = load_vocabulary(path, lower_case=lower_case, max_bytes_per_word=100)
    theirs = BertTokenizer(vocab_file=str(path), lower_case=lower_case)(tf.constant(lines))
    return list(zip(_ids(vocabulary, lines), theirs.merge_dims(1, 2).to_list(), strict=True))


@pytest.mark.parametrize("lower_case", [True, pytest.param(False, marks=pytest.mark.long)])
def test_ids_of_every_character(tmp_path, lower_case):
    """Model Garden's ids with any character inside a word, but for white space beyond ASCII.

    There we split words, as BERT's first tokenizer did and Model Garden's does not everywhere.
    """
    characters = [chr(c) for c in range(1, 0x10000) if not 0xD800 <= c < 0xE000]
    lines = [f"ab{character}cd" for character in characters]
    path = _write(tmp_path, [*SPECIALS, "ab", "cd", "abcd", "##cd", "##c", "##d", "é", "語"])
    pairs = _model_garden(path, lines, lower_case)
    for character, (ours, theirs) in zip(characters, pairs):
        if character.isspace() and character > "\x85":
            assert ours == [5, 6]
        elif unicodedata.category(character) != "Cn":
            assert ours == theirs, hex(ord(character))


@pytest.mark.parametrize("lower_case", [True, False])
def test_ids_of_hard_lines(tmp_path, lower_case):
    """Line by line the ids of Model Garden's tokenizer, with all characters as entries."""
    text = "".join(HARD_LINES)
    letters = sorted({c for c in text + text.lower() if c.isprintable() and c != " "})
    words = sorted({word.lower() for line in HARD_LINES for word in line.split() if word.isalpha()})
    pieces = [f"##{letter}" for letter in letters if letter.isalnum()]
    path = _write(tmp_path, dict.fromkeys([*SPECIALS, *letters, *words, *pieces]))
    # As the readers do; see `test_ids_of_every_character`.
    lines = [" ".join(line.split()) for line in HARD_LINES]
    pairs = _model_garden(path, lines, lower_case)
    assert [ours for ours, _ in pairs] == [theirs for _, theirs in pairs]
