"""The multi-similarity loss and its mining against plain loops over triplets."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.multi_similarity import multi_similarity
from tests.oracles.contrastive_numpy import cosine


def _views(rows=7, noise=1.0, seed=2):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=[rows, 5])
    return first.astype(np.float32), (first + noise * rng.normal(size=[rows, 5])).astype(np.float32)


def _unit(vector):
    return np.asarray(vector, np.float64) / np.linalg.norm(vector)


def _compute(anchor, i, own_view, other_view, alpha, beta, base, margin):
    """Returns one anchor's loss, and how many negatives were mined."""
    positive = other_view[i]
    to_positive = np.linalg.norm(_unit(anchor) - _unit(positive))
    mined = [
        candidate
        for view in (own_view, other_view)
        for j, candidate in enumerate(view)
        if j != i and np.linalg.norm(_unit(anchor) - _unit(candidate)) - to_positive <= margin
    ]
    if not mined:
        return 0.0, 0
    pull = math.log1p(math.exp(-alpha * (cosine(anchor, positive) - base))) / alpha
    push = sum(math.exp(beta * (cosine(anchor, other) - base)) for other in mined)
    return pull + math.log1p(push) / beta, len(mined)


@pytest.mark.parametrize(
    ("alpha", "beta", "base", "margin"),
    [(1.0, 60.0, 0.5, 0.2), (2.0, 5.0, 0.1, 0.0), (1.0, 10.0, 0.5, 2.0)],
)
def test_loss_equals_the_reference(alpha, beta, base, margin):
    """Some negatives are mined, some are not, with 2.0 all."""
    first, second = _views()
    settings = {"alpha": alpha, "beta": beta, "base": base, "mining_margin": margin}
    counts = []
    for anchors, other in ((first, second), (second, first)):
        losses, hits = multi_similarity(anchors, anchors, other, **settings)
        for i, anchor in enumerate(anchors):
            expected, count = _compute(anchor, i, anchors, other, alpha, beta, base, margin)
            counts.append(count)
            assert float(losses[i]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
            others = [
                cosine(anchor, c) for v in (anchors, other) for j, c in enumerate(v) if j != i
            ]
            assert float(hits[i]) == float(cosine(anchor, other[i]) > max(others))
    if margin < 2.0:
        assert 0 < sum(counts) < len(counts) * 12
    else:
        assert set(counts) == {12}


def test_offset():
    first, second = _views()
    settings = {"alpha": 1.0, "beta": 60.0, "base": 0.5, "mining_margin": 0.2}
    losses, hits = multi_similarity(first, first, second, **settings)
    part = multi_similarity(first[3:], first, second, 3, **settings)
    np.testing.assert_allclose(part[0], losses[3:], rtol=1e-6)
    np.testing.assert_array_equal(part[1], hits[3:])


def test_easy_anchors_have_no_loss_and_gradients_are_finite():
    """Views that are nearly equal, also exactly equal ones."""
    first, _ = _views()
    first, second = tf.constant(first), tf.constant(first)
    settings = {"alpha": 1.0, "beta": 60.0, "base": 0.5, "mining_margin": 0.0}
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        losses, _ = multi_similarity(first, first, second, **settings)
    np.testing.assert_array_equal(losses, 0.0)
    for gradient in tape.gradient(losses, [first, second]):
        assert np.isfinite(gradient).all()
