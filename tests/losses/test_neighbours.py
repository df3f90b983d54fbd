"""QuickThought's loss on runs of sentences: losses, gradients and hits against plain loops."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.neighbours import neighbour_cross_entropy
from tests.oracles.contrastive_numpy import quick_thought_run

# (record, place): two whole runs, a hole, and a sentence whose record has no other in the batch.
PLACES = [(5, 0), (5, 1), (5, 2), (8, 1), (8, 2), (8, 4), (9, 3)]


@pytest.mark.parametrize("distance", [1, 2])
def test_losses_and_hits(distance):
    """Anchors from row 2 on; both neighbours share one target, the sentence itself scores 0."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(size=[2, len(PLACES), 5]).astype(np.float32)
    places = tf.constant([[record, 1.0, place] for record, place in PLACES])
    anchors = tf.constant(first[2:])
    with tf.GradientTape() as tape:
        tape.watch(anchors)
        losses, hits = neighbour_cross_entropy(
            anchors,
            tf.constant(second),
            2,
            places=places,
            distance=distance,
            logit_scale=1.0,
            normalize=False,
        )
    expected = quick_thought_run(first, second, PLACES, distance)[2:]
    np.testing.assert_allclose(losses, [term or 0.0 for term in expected], rtol=1e-5)
    for row, (record, place) in enumerate(PLACES[2:]):
        scores = second @ first[row + 2]
        scores[row + 2] = -np.inf
        there = PLACES[int(scores.argmax())]
        assert bool(hits[row]) == (there[0] == record and abs(there[1] - place) <= distance)
    # A sentence without a neighbour moves nothing.
    lonely = [term is None for term in expected]
    assert any(lonely)
    moved = np.abs(tape.gradient(losses, anchors)).max(axis=1) > 1e-6
    assert moved.tolist() == [not each for each in lonely]


def test_scale_and_cosines():
    """With `normalize`, the vectors' lengths do not matter."""
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=[2, len(PLACES), 5])
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (first, second)]
    places = tf.constant([[record, 1.0, place] for record, place in PLACES])
    losses, _ = neighbour_cross_entropy(
        first, 3 * second, places=places, distance=1, logit_scale=7.0, normalize=True
    )
    expected = quick_thought_run(7.0 * unit[0], unit[1], PLACES)
    np.testing.assert_allclose(losses, [term or 0.0 for term in expected], rtol=1e-5)
