"""Excluded negatives: the losses equal those of a batch without these candidates."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.hashing import row_identity
from official_cmlm.losses.nt_xent import nt_xent
from tests.oracles.contrastive_numpy import cosine

NAMES = list("abcacd")


def _vectors(rows=len(NAMES), seed=2):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=[rows, 5])
    return first.astype(np.float32), (first + rng.normal(size=[rows, 5])).astype(np.float32)


def _texts(names):
    """Returns the rows of `row_identity`, equal for equal names."""
    ids = tf.constant([[ord(name), 7, 0] for name in names])
    return row_identity(ids, tf.constant([[1, 1, 0]] * len(names)))


def _cross_entropy(positive, negatives):
    return -positive + np.logaddexp.reduce([positive, *negatives])


@pytest.mark.parametrize("both", [False, True])
def test_nt_xent(both):
    """An anchor's candidates, one by one: its positive, and all that are not its text."""
    first, second = _vectors()
    losses, hits = nt_xent(
        first,
        first,
        second,
        temperature=0.3,
        negatives="both_views" if both else "other_view",
        texts=_texts(NAMES),
    )
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
        assert float(losses[i]) == pytest.approx(_cross_entropy(positive, negatives), rel=1e-4)
        assert float(hits[i]) == float(positive > max(negatives))
    assert left_out


def test_no_gradient_pushes_an_equal_text_away():
    """It is as if the candidate were not there."""
    first, second = (tf.constant(v) for v in _vectors())
    with tf.GradientTape() as tape:
        tape.watch(second)
        losses, _ = nt_xent(
            first,
            first,
            second,
            temperature=0.3,
            negatives="other_view",
            texts=_texts(list("abcdea")),
        )
        loss = losses[0]
    gradient = tape.gradient(loss, second).numpy()
    assert np.abs(gradient[5]).max() == 0 < np.abs(gradient[4]).max()


def test_texts_of_equal_tokens_are_equal_however_far_they_are_padded():
    """Order and length count, padding does not."""
    rows = [[5, 6, 7], [5, 6, 7], [6, 5, 7], [5, 6], [5, 6, 0]]
    ids = tf.ragged.constant(rows)
    lengths = ids.row_lengths()
    found = [
        row_identity(ids.to_tensor(shape=[None, width]), tf.sequence_mask(lengths, width, tf.int32))
        for width in (3, 9)
    ]
    np.testing.assert_array_equal(*found)
    assert len({tuple(row) for row in found[0].numpy()}) == len({tuple(row) for row in rows})
    many = row_identity(tf.range(200_000)[:, tf.newaxis], tf.ones([200_000, 1], tf.int32))
    assert len(np.unique(many.numpy(), axis=0)) == 200_000
