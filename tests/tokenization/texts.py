"""Texts that are hard to tokenise, and what several tests do with texts and ids."""

import tensorflow as tf

from official_cmlm.tokenization import build_graph_tokenizer, build_tokenizer

HAND_MADE = [
    *("", " ", "   ", "a", " a", "a ", "two  spaces", "   many     spaces   ", "trailing   "),
    *(
        "tab\there",
        "two\t\ttabs",
        "tab \t and space",
        "\tfirst",
        "last\t",
        "line\nbreak",
        "end\n\n",
    ),
    *("a\r\nb", "no-break\u00a0space", "a \u00a0b", "a\u00a0\u00a0b", "a\u00a0 b", "50\u2009%"),
    *("10\u202f000\u202f€", "a\u202f\u202fb", "全角\u3000空白", "\u3000段落", "a\u00a0"),
    *("zero\u200bwidth", "a \u200b b", "soft\u00adhyphen", "\ufeffmark"),
    *("😀", "I 😀 you", "😀😀", "👩‍👩‍👧‍👦 family", "🇩🇪🇫🇷 flags", "👍🏽 tone 👍🏿", "❤️ and ❤", "1️⃣2️⃣"),
    *(
        "1,000.50 $5 £3 €2",
        "0123456789",
        "3rd 4K x2y",
        "½ ² ٣٤ ५७ 五",
        "1 2  3   4",
        "-1e-10 +49 30",
    ),
    *(
        "it's they're I'd we've I'm you'll",
        "IT'S THEY'RE",
        "'quoted' 's",
        "d'Artagnan l’été rock 'n'",
    ),
    *(
        "' 's ''s 'sup",
        "can 't",
        "cafe\u0301 e\u0301\u0302 \u0301x",
        "Å Å ﬁ ﬀ",
        "कि क्षि षि",
        "ไทยภาษา",
    ),
    *("مُحَمَّد", "שָׁלוֹם", "한국어 문장", "漢字かな交じり文。カタカナ", "Straße İstanbul ΣΊΣΥΦΟΣ πες"),
    *(
        "snake_case CamelCase a/b a-b http://x.y/?z=1&w=%20",
        "...!?!—“”„“‘’«»",
        "<mask> </s> [MASK]",
    ),
    *("x\x07y", "\x7f", "ĠĊ Ġthe Ċ", "_ __ ___ _a_", "中a文1字!", "𝐱𝔘𐍈", "\ufffd"),
    *("#version: 0.2", "supercalifragilistic" * 4),
]
LONG = ["a" * 1000, "ab" * 1000 + " c", "ไทย" * 300, "!" * 500, "9" * 500, "👩‍👧" * 100, "é" * 999]


def ids_of(vocabulary, texts):
    """Returns the ids of Python's tokenizer."""
    return build_tokenizer(vocabulary).tokenize(texts).to_list()


def different(texts, ours, theirs):
    """Lists the texts whose ids differ."""
    return [text for text, a, b in zip(texts, ours, theirs, strict=True) if a != b]


def check_graphs(vocabulary, texts, folder):
    """Ids in tf.data and in a SavedModel are Python's; invalid bytes have ids of entries."""
    tokenizer, expected = build_graph_tokenizer(vocabulary), ids_of(vocabulary, texts)
    rows = tf.data.Dataset.from_tensors(texts).map(tokenizer.tokenize).get_single_element()
    assert rows.to_list() == expected
    assert (rows.dtype, rows.row_splits.dtype) == (tf.int32, tf.int64)
    module = tf.Module()
    module.tokenizer = tokenizer
    module.run = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    tf.saved_model.save(module, str(folder))
    run = tf.saved_model.load(str(folder)).run
    assert run(tf.constant(texts)).to_list() == expected
    invalid = run(tf.constant([b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80 b", b""])).to_list()
    assert invalid[-1] == [] and all(0 <= i < len(vocabulary) for row in invalid for i in row)


def check_joined(vocabulary, texts):
    """Ids of texts joined by a space are those of the texts, so records need no second set."""
    assert not vocabulary.space_changes_ids
    texts = [" ".join(text.split()) for text in texts]
    joined = [f"{a} {b}" for a, b in zip(texts[::2], texts[1::2])]
    rows = ids_of(vocabulary, texts)
    apart = [a + b for a, b in zip(rows[::2], rows[1::2])]
    assert different(joined, ids_of(vocabulary, joined), apart) == []
