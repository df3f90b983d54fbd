"""BERT's pairs of segments: what follows what, from where random segments come, token types."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs.next_sentence import (
    IS_NEXT,
    IS_RANDOM,
    FirstTokenBeforeSlots,
    NextSentencePairs,
    SegmentTypes,
)
from tests.inputs.blocks import DOCUMENTS, SLOW, SPECIAL, make_block
from tests.oracles.cmlm_numpy import pair_segments


def _parts(document, segment, limit):
    runs = [[i] for i in range(len(document))]
    if segment == "packed":
        runs = pair_segments([len(sentence) for sentence in document], limit)
    return [[t for i in run for t in document[i]][:limit] for run in runs]


def _examples(view, block):
    examples = view(block)
    keys = examples["key"].numpy().tolist()
    assert len(set(keys)) == len(keys)
    assert examples["label"].dtype == examples["first_length"].dtype == tf.int32
    rows = []
    for ids, label, length in zip(
        examples["pair"].to_list(), examples["label"].numpy(), examples["first_length"].numpy()
    ):
        first, second = ids[:length], ids[length:]
        assert (first[0], first[-1], second[-1]) == (SPECIAL.cls, SPECIAL.sep, SPECIAL.sep)
        rows.append((first[1:-1], second[:-1], int(label)))
    return rows


@SLOW
@given(
    documents=DOCUMENTS,
    segment=st.sampled_from(["sentence", "packed"]),
    seq_length=st.integers(5, 40),
    probability=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_each_neighbour_once_with_what_follows_or_a_segment_of_another_document(
    documents, segment, seq_length, probability
):
    """A of each pair of neighbours in order; B by the label; never longer than the sequence."""
    view = NextSentencePairs(segment, seq_length, probability, SPECIAL)
    parts = [_parts(document, segment, (seq_length - 3) // 2) for document in documents]
    pairs = _examples(view, make_block(documents))
    owners = [d for d, rows in enumerate(parts) for _ in rows[1:]]
    expected = [pair for rows in parts for pair in zip(rows, rows[1:])]
    assert [first for first, _, _ in pairs] == [first for first, _ in expected]
    for (first, second, label), (_, after), owner in zip(pairs, expected, owners):
        assert 3 + len(first) + len(second) <= seq_length
        elsewhere = [row for d, rows in enumerate(parts) if d != owner for row in rows]
        if label == IS_NEXT:
            assert second == after and (probability < 1 or not elsewhere)
        else:
            assert second in elsewhere and probability > 0


@pytest.mark.long
def test_random_segments_are_uniform_over_the_other_documents():
    """Half of the pairs are random, and each segment of the other documents is as likely."""
    documents = [[[10 + 10 * d + s] for s in range(n)] for d, n in enumerate((4, 1, 6, 2))]
    view = NextSentencePairs("sentence", 9, 0.5, SPECIAL)
    counts, labels = np.zeros([4, 100]), []
    for start in range(400):
        keys = range(4 * start, 4 * start + 4)
        for first, second, label in _examples(view, make_block(documents, keys=keys)):
            labels.append(label)
            if label == IS_RANDOM:
                counts[first[0] // 10 - 1, second[0]] += 1
    assert abs(np.mean(labels) - 0.5) < 5 * np.sqrt(0.25 / len(labels))
    for owner in (0, 2, 3):
        others = [s[0] for d, rows in enumerate(documents) if d != owner for s in rows]
        drawn = counts[owner]
        assert drawn[others].sum() == drawn.sum() > 100
        mean = drawn.sum() / len(others)
        assert np.abs(drawn[others] - mean).max() < 5 * np.sqrt(mean)


def test_records_of_one_document_give_no_random_segments():
    """Neighbours or not: a long document has several records in a block."""
    records, owners = [[[10 + 10 * r + s] for s in range(3)] for r in range(5)], [7, 2, 7, 4, 2]
    view, met = NextSentencePairs("sentence", 9, 1.0, SPECIAL), set()
    for start in range(0, 250, 5):
        block = make_block(records, keys=range(start, start + 5), owners=owners)
        met |= {(a[0] // 10 - 1, b[0]) for a, b, _ in _examples(view, block)}
    others = {
        (record, sentence[0])
        for record, own in enumerate(owners)
        for other, owner in zip(records, owners)
        if owner != own
        for sentence in other
    }
    assert met == others
    alone = _examples(view, make_block(records[:2], owners=[3, 3]))
    assert {label for *_, label in alone} == {IS_NEXT}


def test_an_examples_draw_does_not_depend_on_its_neighbours():
    """The label is a function of the example's key."""
    documents = [[[10 + i] for i in range(9)], [[30], [31]], [[50], [51], [52]]]
    view = NextSentencePairs("sentence", 9, 0.5, SPECIAL)
    whole = _examples(view, make_block(documents, keys=[7, 8, 9]))
    part = _examples(view, make_block(documents[1:], keys=[8, 9]))
    assert [label for *_, label in whole[8:]] == [label for *_, label in part]


@pytest.mark.parametrize("length", [8, 10])
def test_types_and_output_positions(length):
    """A with its special tokens has type 0, B with its end type 1, padding 0."""
    ids = np.array([[3, 9, 9, 4, 8, 4, 0, 0], [3, 9, 4, 8, 8, 8, 8, 4]])
    ids = np.pad(ids, [[0, 0], [0, length - 8]])
    mask = np.array([[1] * 6 + [0] * (length - 6), [1] * 8 + [0] * (length - 8)])
    slots = tf.constant([[1, 4], [5, 0]])
    batch = {
        "pair": {"input_word_ids": ids, "input_mask": tf.constant(mask, tf.int32)},
        "pair_masked": {"masked_lm_positions": slots},
        "first_length": tf.constant([4, 3]),
    }
    types = SegmentTypes()(batch)["pair"]["input_type_ids"].numpy().tolist()
    rest = [0] * (length - 8)
    assert types == [[0, 0, 0, 0, 1, 1, 0, 0, *rest], [0, 0, 0, 1, 1, 1, 1, 1, *rest]]
    positions = FirstTokenBeforeSlots("pair_masked")(batch)["pair_masked"]["output_positions"]
    assert positions.numpy().tolist() == [[0, 1, 4], [0, 5, 0]]
