"""Views of pairs: which hypothesis goes with a premise, and what travels along."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from official_cmlm.inputs.pair_views import InferencePairs, TaughtTriples, TextPairs, TextTriples
from official_cmlm.records.pairs import PairBlock
from tests.inputs.blocks import SLOW, SPECIAL, wrap

_TEXT = st.lists(st.integers(6, 99), min_size=1, max_size=12)
_PAIRS = st.lists(st.tuples(_TEXT, _TEXT), max_size=8)


def _block(pairs, labels=None, keys=None):
    """Builds a block of pairs of lists of ids."""
    size = len(pairs)
    first, second = (
        tf.RaggedTensor.from_row_lengths(
            tf.constant([t for pair in pairs for t in pair[side]], tf.int32),
            tf.constant([len(pair[side]) for pair in pairs], tf.int64),
        )
        for side in (0, 1)
    )
    return PairBlock(
        first=first,
        second=second,
        languages=tf.fill([size, 2], "en"),
        labels=tf.constant(labels or [-1] * size, tf.int32),
        rows=tf.range(size, dtype=tf.int64),
        keys=tf.constant(list(range(size) if keys is None else keys), tf.int64),
    )


def _rows(number, row_size, keys=None):
    """Rows of one token each: 1000 + row · 10 + language the premise, 5000 + … the hypothesis."""
    places = [10 * row + language for row in range(number) for language in range(row_size)]
    return _block([([1000 + p], [5000 + p]) for p in places], [p % 3 for p in places], keys)


def _inference(row_size, hypothesis_language="different", seq_length=14):
    return InferencePairs(seq_length, hypothesis_language, row_size, SPECIAL)


def _languages(examples):
    """Lists (row, language) of every premise and of its hypothesis."""
    first, second = (examples[name][:, 1:-1].flat_values.numpy() for name in ("first", "second"))
    return np.divmod(first - 1000, 10), np.divmod(second - 5000, 10)


@SLOW
@given(pairs=_PAIRS, limit=st.integers(1, 13))
def test_text_pairs(pairs, limit):
    """Both texts in their order, cut to the sequence length, with the record's key."""
    examples = TextPairs(limit + 2, SPECIAL)(_block(pairs, keys=range(7, 7 + len(pairs))))
    assert set(examples) == {"first", "second", "key"}
    assert examples["first"].to_list() == [wrap(first[:limit]) for first, _ in pairs]
    assert examples["second"].to_list() == [wrap(second[:limit]) for _, second in pairs]
    assert examples["first"].dtype == examples["second"].dtype == tf.int32
    assert examples["key"].numpy().tolist() == list(range(7, 7 + len(pairs)))


@SLOW
@given(pairs=st.lists(st.tuples(_TEXT, _TEXT, _TEXT | st.just([])), max_size=8))
def test_text_triples(pairs):
    """As text pairs, and the third text, cut too; where there is none, `has_negative` is 0."""
    block = _block(pairs)
    third = tf.ragged.constant([third for *_, third in pairs], tf.int32, ragged_rank=1)
    view = TextTriples(7, SPECIAL)
    examples = view(dataclasses.replace(block, negative=third))
    expected = TextPairs(7, SPECIAL)(block)
    assert set(examples) == {*expected, "negative", "has_negative"}
    assert {*view.sequences, *view.scalars, "key"} == set(examples)
    for name in ("first", "second"):
        assert examples[name].to_list() == expected[name].to_list()
    assert examples["negative"].to_list() == [wrap(third[:5]) for *_, third in pairs]
    assert examples["has_negative"].numpy().tolist() == [int(bool(third)) for *_, third in pairs]
    stored = tf.cast(tf.reshape(tf.range(4 * len(pairs)), [-1, 2, 2]), tf.float16)
    view = TaughtTriples(7, SPECIAL, vector_size=2)
    taught = view(dataclasses.replace(block, negative=third, vectors=stored))
    assert {*view.sequences, *view.scalars, "key"} == set(taught)
    for name, side in (("first_vector", 0), ("second_vector", 1)):
        assert taught[name].numpy().tolist() == stored[:, side].numpy().tolist()
    for name in view.sequences:
        assert taught[name].to_list() == examples[name].to_list()


@SLOW
@given(pairs=_PAIRS, limit=st.integers(1, 13), data=st.data())
def test_hypothesis_in_the_same_language(pairs, limit, data):
    """`same`: the unchanged pair, with its label."""
    size = {"min_size": len(pairs), "max_size": len(pairs)}
    labels = data.draw(st.lists(st.integers(0, 2), **size))
    examples = _inference(2, "same", limit + 2)(_block(pairs, labels))
    assert set(examples) == {"first", "second", "key", "label"}
    assert examples["first"].to_list() == [wrap(first[:limit]) for first, _ in pairs]
    assert examples["second"].to_list() == [wrap(second[:limit]) for _, second in pairs]
    assert examples["label"].numpy().tolist() == labels
    assert InferencePairs.scalars == ("label",)


@SLOW
@given(
    row_size=st.integers(2, 6),
    number=st.integers(0, 6),
    key=st.integers(-(2**63), 2**63 - 1),
)
def test_hypothesis_in_another_language(row_size, number, key):
    """`different` (§4.3): of the same row, never of the premise's language; each premise once."""
    size = row_size * number
    keys = [(key + i * 77_777_777_777 + 2**63) % 2**64 - 2**63 for i in range(size)]
    block = _rows(number, row_size, keys)
    examples = _inference(row_size)(block)
    (rows, languages), (other_rows, other_languages) = _languages(examples)
    assert rows.tolist() == other_rows.tolist() == np.repeat(range(number), row_size).tolist()
    assert languages.tolist() == list(range(row_size)) * number
    assert (languages != other_languages).all() and (other_languages < row_size).all()
    assert examples["label"].numpy().tolist() == block.labels.numpy().tolist()
    assert examples["key"].numpy().tolist() == keys


@pytest.mark.parametrize("row_size", [2, 3, 5])
def test_every_other_language_is_as_likely(row_size):
    """Each language meets each of the others about equally often."""
    (_, languages), (_, others) = _languages(_inference(row_size)(_rows(900, row_size)))
    for language in range(row_size):
        counts = np.bincount(others[languages == language], minlength=row_size)
        assert counts[language] == 0 and counts.sum() == 900
        counts = np.delete(counts, language)
        assert row_size == 2 or stats.chisquare(counts).pvalue > 1e-3


def test_hypotheses_depend_on_row_and_key_alone():
    """A row gives the same examples in any block."""
    together = _languages(_inference(4)(_rows(5, 4, range(20))))[1][1]
    alone = [
        _languages(_inference(4)(_rows(1, 4, range(4 * i, 4 * i + 4))))[1][1] for i in range(5)
    ]
    assert together.tolist() == np.concatenate(alone).tolist()


def test_pairs_of_two_languages_are_different_as_they_are():
    """Where a row has one pair, its own hypothesis is the one in another language."""
    examples = _inference(1)(_rows(6, 1))
    premises, hypotheses = _languages(examples)
    np.testing.assert_array_equal(premises, hypotheses)
