"""Signals of quality against plain loops, and by hand."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.stages.quality_signals import (
    STOP_WORDS,
    Lines,
    Words,
    has_end_mark,
    sentence_ends,
    stop_words,
    symbol_ratios,
)

TEXT = st.lists(st.text(st.sampled_from("abé1# \n\u3000…-")), max_size=4)
REPETITIVE = st.lists(st.sampled_from(["a", "bb", "ccc", "d1"]), max_size=40)


def top(words, n):
    """Computes the share of the most frequent n-gram: characters times count."""
    counts = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
    most = max(counts.values(), default=0)
    if most < 2:
        return 0
    longest = max(len("".join(gram)) for gram, count in counts.items() if count == most)
    return most * longest / len("".join(words))


def duplicate(words, n):
    """Characters in n-grams seen before, each word once."""
    seen, covered = set(), set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            covered.update(range(i, i + n))
        seen.add(gram)
    return sum(len(words[i]) for i in covered) / max(len("".join(words)), 1)


@given(TEXT)
@settings(max_examples=200, deadline=None)
def test_words_are_those_of_split(paragraphs):
    words = Words(paragraphs)
    expected = " ".join(paragraphs).split()
    assert [words.text[i:j] for i, j in zip(words.starts, words.ends)] == expected
    assert len(words) == len(expected)
    assert words.characters == len("".join(expected))
    assert words.mean_length == len("".join(expected)) / max(len(expected), 1)
    with_letter = [word for word in expected if any(c.isalpha() for c in word)]
    assert words.alphabetic == len(with_letter) / max(len(expected), 1)


@given(REPETITIVE)
@settings(max_examples=200, deadline=None)
def test_repetition_against_loops(drawn):
    words = Words([" ".join(drawn)])
    for n in range(2, 11):
        assert words.top(n) == pytest.approx(top(drawn, n))
        assert words.duplicate(n) == pytest.approx(duplicate(drawn, n))
        assert words.top_at_most(n) >= max(words.top(shorter) for shorter in range(2, n + 1))
    shares = [words.duplicate(n) for n in range(2, 11)]
    assert shares == sorted(shares, reverse=True)


def test_hashes_are_equal_where_the_text_is():
    rng = random.Random(0)
    drawn = [rng.choice(["one", "two", "three", "één"]) for _ in range(3000)]
    words = Words([" ".join(drawn)])
    for n in (1, 2, 3):
        grams = [tuple(drawn[i : i + n]) for i in range(len(drawn) - n + 1)]
        assert len(set(words.hashes(n).tolist())) == len(set(grams))
        assert len(set(zip(grams, words.hashes(n).tolist()))) == len(set(grams))
    text = words.text
    parts = [text[i : i + 3] for i in range(len(text) - 2)]
    assert len(set(zip(parts, words.character_hashes(3).tolist()))) == len(set(parts))
    assert len(set(words.character_hashes(3).tolist())) == len(set(parts))
    assert len(Words(["ab"]).character_hashes(5)) == 0
    # Hashes do not depend on the text before, and go beyond the first table of powers.
    far = Words(["x " * 70_000 + "one two"])
    assert far.hashes(2)[-1] == Words(["one two"]).hashes(2)[0]
    assert far.character_hashes(5)[-1] == Words(["one two"]).character_hashes(5)[-1]


@pytest.mark.parametrize("paragraphs", [[], [""], [" "], ["x"], ["\ud800 a"]])
def test_little_or_no_text(paragraphs):
    words = Words(paragraphs)
    assert [words.top(2), words.duplicate(5), words.top_at_most(4)] == [0, 0, 0]
    assert 0 <= words.alphabetic <= 1 and max(symbol_ratios(words)) == 0
    assert Lines.of(paragraphs).ellipsis == 0


@pytest.mark.parametrize(
    ("text", "ends"),
    [("So.", True), ("So!", True), ("So?”", True), ("(So.)", True), ("(So)", False), ("So", False),
     ("So:", False), ("«So»", True), ("那么。", True), ("तो।", True), ("ماذا؟", True), ("", False),
     ("So…", True), ('"So"', True)],
)  # fmt: skip
def test_end_marks(text, ends):
    assert has_end_mark(text) is ends


def test_sentence_ends():
    text = ["One. Two! Three?!", "No 3.5 nor e.g this", "«Four.» Five… (Six.)", "一。二！三？"]
    assert [sentence_ends([one]) for one in text] == [3, 0, 3, 3]
    assert sentence_ends(text) == 9
    assert sentence_ends(text, 4) == 4


def test_function_words():
    assert stop_words("en-GB") == frozenset("the be to of and that have with".split())
    assert stop_words("xx") == frozenset()
    assert not any(word != word.lower() for words in STOP_WORDS.values() for word in words)
    words = Words(["(The cat) sat, TO be; of"])
    assert words.has(STOP_WORDS["en"], 4) and not words.has(STOP_WORDS["en"], 5)
    assert not Words(["theory bets"]).has(STOP_WORDS["en"], 1)
    assert Words(["the cat of the house of"]).share(STOP_WORDS["en"]) == 4 / 6
