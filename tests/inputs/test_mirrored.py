"""The second view of a segment: as the first, with tokens repeated, or with one left out."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from official_cmlm.inputs.mirrored import AUGMENTATIONS, Mirrored, reorder_words
from tests.inputs.blocks import DOCUMENTS, SLOW, make_block


# Ids up to 99, as the blocks have them; every third of the added entries continues a word.
@pytest.fixture(scope="module")
def vocabulary(vocabulary):
    size = len(vocabulary)
    more = (f"##{i}" if i % 3 == 0 else f"w{i}" for i in range(size, 100))
    return dataclasses.replace(vocabulary, tokens=(*vocabulary.tokens, *more))


# Without `span_mask`, which needs text.
_ON_TOKENS = tuple(name for name in AUGMENTATIONS if name != "span_mask")
_SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=12)


def _view(vocabulary, augmentation, seq_length=100, rate=0.32, segment="sentence"):
    return Mirrored(segment, seq_length, augmentation, 5, 30, rate, rate, vocabulary)


def _inner(vocabulary, rows):
    """Removes the special tokens that must be around the rows."""
    cls, sep = vocabulary.special_ids["cls"], vocabulary.special_ids["sep"]
    rows = rows.to_list()
    assert all((row[0], row[-1]) == (cls, sep) for row in rows)
    return [row[1:-1] for row in rows]


def _views(view, block):
    """Lists (first, second) of each example, without special tokens."""
    examples = view(block)
    assert examples["second"].dtype == examples["first"].dtype == tf.int32
    first, second = (_inner(view.vocabulary, examples[name]) for name in view.sequences)
    return list(zip(first, second, strict=True))


def _sentences(sizes):
    """Builds one document of sentences of so many tokens, no token twice in one."""
    return [[list(range(10, 10 + size)) for size in sizes]]


@SLOW
@given(sizes=_SIZES, rate=st.floats(0.01, 1.0), key=st.integers(-(2**63), 2**63 - 1))
def test_repetition(vocabulary, sizes, rate, key):
    """round(rate · n) of n tokens occur twice, each copy right after its original."""
    view = _view(vocabulary, "word_repetition", rate=rate)
    documents = _sentences(sizes)
    pairs = _views(view, make_block(documents, keys=[key]))
    assert [first for first, _ in pairs] == documents[0]
    for first, second in pairs:
        times = collections.Counter(second)
        assert second == [token for token in first for _ in range(times[token])]
        assert set(times.values()) <= {1, 2}
        assert len(second) - len(first) == round(rate * len(first))


@SLOW
@given(sizes=_SIZES, key=st.integers(-(2**63), 2**63 - 1))
def test_deletion(vocabulary, sizes, key):
    """One token is left out where there are several; a single one stays."""
    documents = _sentences(sizes)
    pairs = _views(_view(vocabulary, "word_deletion"), make_block(documents, keys=[key]))
    assert [first for first, _ in pairs] == documents[0]
    for first, second in pairs:
        if len(first) == 1:
            assert second == first
        else:
            assert second in [first[:i] + first[i + 1 :] for i in range(len(first))]


def test_every_token_is_as_likely_to_be_deleted(vocabulary):
    """The first and the last too."""
    pairs = _views(_view(vocabulary, "word_deletion"), make_block(_sentences([9]) * 2000))
    missing = [set(first) - set(second) for first, second in pairs]
    counts = np.bincount([token - 10 for (token,) in missing], minlength=9)
    assert stats.chisquare(counts).pvalue > 1e-3


def _words(vocabulary, tokens):
    """Groups the tokens by words, a list of lists."""
    words = []
    for token in tokens:
        if words and vocabulary.tokens[token].startswith("##"):
            words[-1].append(token)
        else:
            words.append([token])
    return words


@SLOW
@given(documents=DOCUMENTS, rate=st.floats(0.01, 1.0), key=st.integers(-(2**63), 2**63 - 1))
def test_masked_tokens_and_words(vocabulary, documents, rate, key):
    """round(rate · n) of n tokens, or of n words as a whole, at least one; the rest stays."""
    keys, mask = range(key, key + len(documents)), vocabulary.special_ids["mask"]
    block = make_block(documents, keys=[k - (k >= 2**63) * 2**64 for k in keys])
    for name in ("token_mask", "whole_word_mask"):
        for first, second in _views(_view(vocabulary, name, rate=rate), block):
            assert len(first) == len(second)
            units = [[t] for t in first] if name == "token_mask" else _words(vocabulary, first)
            masked, place = 0, 0
            for unit in units:
                part = second[place : place + len(unit)]
                assert part in (unit, [mask] * len(unit))
                masked += part != unit
                place += len(unit)
            assert masked == max(1, round(rate * len(units)))


@SLOW
@given(documents=DOCUMENTS, rate=st.floats(0.01, 1.0), key=st.integers(0, 2**62))
def test_reordered_words(vocabulary, documents, rate, key):
    """The same words; no more than round(rate · n), at least two, are at another place."""
    block = make_block(documents, keys=range(key, key + len(documents)))
    for first, second in _views(_view(vocabulary, "word_reordering", rate=rate), block):
        before = _words(vocabulary, first)
        # A first token that continues no word may now do so: words are found by their tokens.
        assert sorted(first) == sorted(second)
        moved = [i for i, (a, b) in enumerate(zip(first, second)) if a != b]
        if not any(vocabulary.tokens[t].startswith("##") for t in first):
            assert len(moved) <= max(2, round(rate * len(before)))


def test_any_order_of_three_words_is_as_likely(vocabulary):
    """All six, when all words may move."""
    pairs = _views(
        _view(vocabulary, "word_reordering", rate=1.0), make_block(_sentences([3]) * 3000)
    )
    counts = collections.Counter(tuple(second) for _, second in pairs)
    assert len(counts) == 6 and stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_words_move_as_a_whole(vocabulary):
    """Pieces stay after the beginning of their word."""
    pieces = [i for i, token in enumerate(vocabulary.tokens) if token.startswith("##")]
    sentence = [10, pieces[0], pieces[1], 11, 12, pieces[2]]
    pairs = _views(_view(vocabulary, "word_reordering", rate=1.0), make_block([[sentence]] * 200))
    words = {(10, pieces[0], pieces[1]), (11,), (12, pieces[2])}
    assert all({tuple(w) for w in _words(vocabulary, second)} == words for _, second in pairs)
    assert len({tuple(second) for _, second in pairs}) == 6


def test_a_fixed_first_word():
    """For vocabularies that have other ids for a word after a space."""
    words = tf.ragged.constant([[[7], [8, 9], [10], [11]], [[7]]] * 100, inner_shape=None)
    words = tf.cast(words, tf.int32)
    moved = reorder_words(words, tf.range(200, dtype=tf.int64), 1.0, fixed=1).to_list()
    assert all(row[0] == 7 for row in moved)
    assert {tuple(sorted(row)) for row in moved} == {(7,), (7, 8, 9, 10, 11)}
    assert len({tuple(row) for row in moved}) == 7


@SLOW
@given(
    documents=DOCUMENTS,
    segment=st.sampled_from(["sentence", "packed"]),
    limit=st.integers(1, 20),
    augmentation=st.sampled_from(_ON_TOKENS),
)
def test_views_fit_into_the_sequence_length(vocabulary, documents, segment, limit, augmentation):
    """Also where repeated tokens make a segment longer: what does not fit is cut off."""
    view = _view(vocabulary, augmentation, limit + 2, 1.0, segment)
    pairs = _views(view, make_block(documents))
    plain = _views(_view(vocabulary, "none", limit + 2, segment=segment), make_block(documents))
    assert [first for first, _ in pairs] == [first for first, _ in plain]
    for first, second in pairs:
        assert 1 <= len(first) <= limit and 1 <= len(second) <= limit
        if augmentation == "word_repetition":
            assert second == [token for token in first for _ in range(2)][:limit]
