"""Losses of graded pairs, against loops over pairs and over complex numbers."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.losses.graded_similarity import angles, cosent, cosine_errors

SIZE = 6


def _vectors(seed, rows=5):
    return np.random.default_rng(seed).standard_normal((2, rows, SIZE)).astype(np.float32)


def _loss_of_loops(similarities, scores, scale):
    terms = [
        math.exp(scale * (low - high))
        for high, of_high in zip(similarities, scores)
        for low, of_low in zip(similarities, scores)
        if of_high > of_low
    ]
    return math.log(1 + sum(terms))


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(st.floats(-1, 1), st.sampled_from([0.0, 0.2, 1.0])), min_size=1),
    scale=st.floats(0.1, 30),
)
def test_cosent_is_that_of_loops(pairs, scale):
    similarities, scores = (np.float32(side) for side in zip(*pairs))
    loss = float(cosent(tf.constant(similarities), tf.constant(scores), scale))
    assert loss == pytest.approx(_loss_of_loops(similarities, scores, scale), rel=1e-4, abs=1e-5)


def test_cosent_depends_on_the_order_of_scores_alone():
    similarities = tf.constant([0.3, 0.1, 0.9])
    losses = [float(cosent(similarities, scores, 20.0)) for scores in ([0, 0.1, 0.2], [0, 0.9, 1])]
    assert losses[0] == pytest.approx(losses[1])
    assert float(cosent(similarities, [0.5, 0.5, 0.5], 20.0)) == 0.0


def test_angles_are_those_of_complex_numbers():
    first, second = _vectors(0)
    half = SIZE // 2
    expected = []
    for x, y in zip(first, second):
        z, w = x[:half] + 1j * x[half:], y[:half] + 1j * y[half:]
        quotient = z * w.conj() / (np.linalg.norm(z) * np.linalg.norm(w))
        expected.append(abs(quotient.real.sum() + quotient.imag.sum()))
    np.testing.assert_allclose(angles(first, second), expected, rtol=1e-4)


def test_cosine_errors_vanish_where_the_cosine_is_the_score():
    first, second = _vectors(1)
    cosines = np.array(
        [x @ y / (np.linalg.norm(x) * np.linalg.norm(y)) for x, y in zip(first, second)]
    )
    np.testing.assert_allclose(cosine_errors(first, 3 * second, cosines), 0.0, atol=1e-6)
    np.testing.assert_allclose(cosine_errors(first, second, cosines + 0.5), 0.25, rtol=1e-4)
