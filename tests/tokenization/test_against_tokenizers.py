"""Ids on real text, against the library `tokenizers` and between Python and graphs.

For WordPiece a table lists each cause of differences with texts that show it; nothing else may
differ. Byte-level BPE has none, but that a graph drops U+0000.
"""

import dataclasses
import random
import re
import unicodedata

import pytest
import tensorflow as tf
import tokenizers

from official_cmlm.tokenization import build_graph_tokenizer, load_vocabulary
from tests.tokenization.texts import HAND_MADE, LONG, different, ids_of

ODD_SPACES = "\u00a0\u2009\u202f\u3000"
# Spaces at the end, before other spaces and before a sign.
HARD_TO_SPLIT = ["\u205f's", "a \u00a0", "a\u00a0\u00a0", "a \u2009", "  \u2009 "]


@pytest.fixture(scope="module", params=[7, pytest.param(1, marks=pytest.mark.long)])
def lines(request, data_dir, news):
    """Returns every seventh line, or every one, of news, Tatoeba and MultiNLI in many languages."""
    result = [*HAND_MADE, *news]
    for path in sorted((data_dir / "tatoeba" / "v1").iterdir()):
        if path.suffix != ".eng":
            result += path.read_text("utf-8").split("\n")[:500]
    for path in sorted((data_dir / "multinli_translated").glob("*.tsv")):
        for row in path.read_text("utf-8").split("\n")[1:251]:
            result += row.split("\t")[:2]
    assert len(result) > 30_000
    return [*HAND_MADE, *result[len(HAND_MADE) :: request.param]]


@pytest.fixture(scope="module")
def roberta(data_dir):
    return load_vocabulary(data_dir / "vocab" / "roberta")


@pytest.fixture(scope="module")
def graph_ids(roberta):
    """Builds a function from texts to the ids of the graph."""
    tokenizer = build_graph_tokenizer(roberta)

    def ids(texts):
        batches = [texts[i : i + 500] for i in range(0, len(texts), 500)]
        return [row for b in batches for row in tokenizer.tokenize(tf.constant(b)).to_list()]

    return ids


def _byte_level_bpe(data_dir, texts, **options):
    folder = data_dir / "vocab" / "roberta"
    files = (str(folder / "vocab.json"), str(folder / "merges.txt"))
    library = tokenizers.ByteLevelBPETokenizer.from_file(*files, **options)
    return [encoding.ids for encoding in library.encode_batch(texts)]


def test_byte_pair_ids_equal_the_librarys(data_dir, roberta, lines):
    """On every line, and on very long words."""
    texts = [*lines, *LONG]
    assert different(texts, ids_of(roberta, texts), _byte_level_bpe(data_dir, texts)) == []


def test_graph_ids_equal_pythons(roberta, news, graph_ids):
    """On every 49th line of ten languages."""
    texts = [*HAND_MADE, *HARD_TO_SPLIT, *news[::49]]
    assert different(texts, graph_ids(texts), ids_of(roberta, texts)) == []


@pytest.mark.parametrize("text", LONG)
def test_graph_ids_equal_pythons_on_very_long_words(roberta, graph_ids, text):
    """Hundreds of merges of one word, among them pairs that overlap."""
    assert graph_ids([text]) == ids_of(roberta, [text])


def test_graph_ids_equal_pythons_on_random_texts(roberta, graph_ids):
    """The texts are hard to split."""
    rng = random.Random(0)
    parts = [*" \n", *" \n\t\r\v\f\x85", *ODD_SPACES, "\u2003", "\u2028", "\u200b", "\u096c"]
    parts += ["a", "B", "1", "!", "'s", "'", "é", "न", "中", "👩", "\u200d", "\u0301", " x"] * 2
    texts = ["".join(rng.choices(parts, k=rng.randint(1, 8))) for _ in range(1500)]
    assert different(texts, graph_ids(texts), ids_of(roberta, texts)) == []


def test_graph_drops_only_nul(roberta, graph_ids):
    texts = ["\0", "a\0", "a\0b", "the first\0 the rest of the text"]
    assert graph_ids(texts) == ids_of(roberta, [text.replace("\0", "") for text in texts])


def _fold(text):
    """Normalises as tensorflow-text does before it lower-cases: NFKC with case folding."""
    return _mend(unicodedata.normalize("NFKC", text).casefold(), "Cc")


def _mend(text, *categories):
    """Replaces characters of these categories by spaces and U+FFFD by an unknown letter."""
    text = text.replace("\ufffd", "𐎀")
    return "".join(" " if unicodedata.category(c) in categories else c for c in text)


def _is_compatible(c):
    return unicodedata.normalize("NFKD", c) != unicodedata.normalize("NFD", c)


_DROPPED = {"BERT drops U+FFFD": (lambda c: c == "\ufffd", ["\ufffd", "ab\ufffdcd"])}
# Cause -> (is it a character's?, texts that differ).
UNCASED_DIFFERENCES = _DROPPED | {
    "ß becomes ss": (lambda c: c == "ß", ["Straße", "groß"]),
    "final sigma becomes sigma": (lambda c: c == "ς", ["πες", "ς"]),
    "NFKC replaces compatible signs": (
        _is_compatible,
        ["…", "，", "４", "½", "ﾑ", "5.ª", "x²", "ﬁne"],
    ),
    "a control character splits a word": (lambda c: unicodedata.category(c) == "Cc", ["ab\x07cd"]),
}
CASED_DIFFERENCES = _DROPPED | {
    "a format or control character splits a word": (
        lambda c: unicodedata.category(c) in ("Cf", "Cc"),
        ["tr\u00adường", "কাজ\u200cই", "उम्\u200dमीद", "zero\u200bwidth", "ab\x07cd"],
    ),
}


@pytest.mark.parametrize("lower_case", [True, pytest.param(False, marks=pytest.mark.long)])
def test_wordpiece_ids_differ_only_for_the_listed_causes(data_dir, lines, lower_case):
    """With the cause removed from its input the library has our ids, line by line."""
    path = data_dir / "vocab" / f"bert_{'uncased' if lower_case else 'multilingual_cased'}.txt"
    vocabulary = load_vocabulary(path, lower_case=lower_case, max_bytes_per_word=300)
    causes = UNCASED_DIFFERENCES if lower_case else CASED_DIFFERENCES
    shown = [text for _, texts in causes.values() for text in texts]
    texts = [*lines, *shown]
    ours = ids_of(vocabulary, texts)
    unequal = different(texts, ours, _wordpiece(vocabulary, texts))
    for text in unequal:
        assert any(is_cause(c) for c in text for is_cause, _ in causes.values()), text
    assert set(shown) <= set(unequal)
    sharp = {text for text in lines if re.search("[ßς]", text)}
    assert len(sharp) > 50 and (sharp <= set(unequal)) == lower_case
    mended = [_fold(t) if lower_case else _mend(t, "Cf", "Cc") for t in texts]
    assert different(texts, ours, _wordpiece(vocabulary, mended)) == []


@pytest.mark.parametrize("lower_case", [pytest.param(True, marks=pytest.mark.long), False])
def test_wordpiece_ids_of_imports_equal_the_librarys(data_dir, lines, lower_case):
    """With BERT's own normalisation nothing differs, on any line."""
    name = "bert_uncased.txt" if lower_case else "bert_multilingual_cased.txt"
    loaded = load_vocabulary(
        data_dir / "vocab" / name, lower_case=lower_case, max_bytes_per_word=300
    )
    vocabulary = dataclasses.replace(loaded, normalization="bert")
    causes = (UNCASED_DIFFERENCES | CASED_DIFFERENCES).values()
    texts = [*lines, *(text for _, shown in causes for text in shown)]
    assert different(texts, ids_of(vocabulary, texts), _wordpiece(vocabulary, texts)) == []


def test_wordpiece_counts_bytes_of_long_words_where_the_library_counts_characters(data_dir):
    path = data_dir / "vocab" / "bert_uncased.txt"
    vocabulary = load_vocabulary(path, lower_case=True, max_bytes_per_word=300)
    unknown = [[vocabulary.special_ids["unknown"]]]
    for word, ours, theirs in [("a" * 100, True, True), ("a" * 101, True, False)]:
        assert (ids_of(vocabulary, [word]) != unknown) == ours
        assert (_wordpiece(vocabulary, [word]) != unknown) == theirs
    assert ids_of(vocabulary, ["a" * 301]) == unknown


def _wordpiece(vocabulary, texts):
    """Returns the library's ids by BERT's own rules."""
    entries = {token: i for i, token in enumerate(vocabulary.tokens)}
    model = tokenizers.models.WordPiece(entries, unk_token="[UNK]", max_input_chars_per_word=100)
    library = tokenizers.Tokenizer(model)
    library.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=vocabulary.lower_case)
    library.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return [encoding.ids for encoding in library.encode_batch_fast(texts, add_special_tokens=False)]
