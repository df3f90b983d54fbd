"""Excluded negatives: the losses equal those of a batch without these candidates."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.hashing import row_identity
from official_cmlm.losses.nt_xent import nt_xent
from tests.oracles.contrastive_numpy import cosine

NAMES = list("abcacd")


@pytest.mark.parametrize("both", [False, True])
def test_nt_xent(both):
    """An anchor's candidates, one by one: its positive, and all that are not its text."""
    first, noise = np.random.default_rng(2).normal(size=[2, len(NAMES), 5])
    second, ids = first + noise, tf.constant([[ord(name)] for name in NAMES])
    texts = row_identity(ids, tf.ones_like(ids))
    negatives = "both_views" if both else "other_view"
    losses, hits = nt_xent(first, first, second, temperature=0.3, negatives=negatives, texts=texts)
    left_out = 0
    for i, anchor in enumerate(first):
        negatives = []
        for view in (second, first)[: 1 + both]:
            for j, candidate in enumerate(view):
                similarity = cosine(anchor, candidate)
                if NAMES[i] == NAMES[j]:
                    left_out += j != i
                    continue
                negatives.append(similarity / 0.3)
        positive = cosine(anchor, second[i]) / 0.3
        expected = np.logaddexp.reduce([positive, *negatives]) - positive
        assert float(losses[i]) == pytest.approx(expected, rel=1e-4)
        assert float(hits[i]) == float(positive > max(negatives))
    assert left_out


def test_texts_of_equal_tokens_are_equal_however_far_they_are_padded():
    """Order and length count, padding does not."""
    rows = [[5, 6, 7], [5, 6, 7], [6, 5, 7], [5, 6], [5, 6, 0]]
    ids = tf.ragged.constant(rows)
    lengths = ids.row_lengths()
    both = [
        row_identity(ids.to_tensor(shape=[None, width]), tf.sequence_mask(lengths, width, tf.int32))
        for width in (3, 9)
    ]
    np.testing.assert_array_equal(*both)
    assert len({tuple(row) for row in both[0].numpy()}) == len({tuple(row) for row in rows})
    many = row_identity(tf.range(200_000)[:, tf.newaxis], tf.ones([200_000, 1], tf.int32))
    assert len(np.unique(many.numpy(), axis=0)) == 200_000
