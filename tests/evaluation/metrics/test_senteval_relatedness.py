"""The regression of relatedness: the encoding by hand, PyTorch's gradient, a task it can solve."""

import numpy as np
import pytest
from scipy import special, stats

from official_cmlm.evaluation.metrics.senteval_relatedness import (
    compute_squared_error_slope,
    encode_scores,
    predict_relatedness,
)

# Gradients of MSELoss(softmax(x @ weights)) for the test below, printed by torch 2.13.
TORCH_GRADIENT = [
    [-0.02305749, 0.00339798, 0.00227446, 0.00358536, 0.01379969],
    [-0.01347392, -0.00650624, 0.0089205, 0.01830854, -0.00724887],
    [0.00795169, 0.00315422, -0.00465169, -0.00949611, 0.00304189],
    [-0.01810905, 0.00907771, -0.00394303, -0.00942063, 0.022395],
]


def test_scores_become_their_neighbours():
    """3.6 lies between 3 and 4; whole scores are one class; below 1 mass is missing."""
    expected = {
        3.6: [0, 0, 0.4, 0.6, 0],
        5.0: [0, 0, 0, 0, 1],
        1.0: [1, 0, 0, 0, 0],
        0.25: [0.25, 0, 0, 0, 0],
        0.0: [0, 0, 0, 0, 0],
    }
    np.testing.assert_allclose(encode_scores(list(expected)), list(expected.values()), atol=1e-6)


def test_gradient_is_pytorchs():
    """The gradient by weights and bias of the mean squared error of softmax probabilities."""
    rows = np.array([[0.2, -1.0, 0.5, 1.0], [1.0, 0.3, -0.2, 1.0]])
    targets = np.array([[0, 0, 0.4, 0.6, 0], [1.0, 0, 0, 0, 0]])
    weights = np.arange(20).reshape(4, 5) / 10 - 1
    slopes = special.softmax(weights.T @ rows.T, axis=0)
    compute_squared_error_slope(slopes, targets.T)
    np.testing.assert_allclose((slopes @ rows).T, TORCH_GRADIENT, atol=1e-7)


def test_learns_scores():
    """Scores that one direction of the features decides are found on unseen examples."""
    rng = np.random.default_rng(0)

    def draw(count):
        rows = rng.normal(size=[count, 6]).astype(np.float32)
        return rows, np.clip(3 + rows[:, 0], 1, 5)

    train, dev, (test, gold) = draw(400), draw(100), draw(200)
    runs = [predict_relatedness(train, dev, test, seed, max_epoch=150) for seed in (1, 1, 2)]
    (dev_pearson, predicted), (again_pearson, again), (_, other) = runs
    assert stats.pearsonr(predicted, gold).statistic > 0.97
    assert 0.97 < dev_pearson == again_pearson <= 1
    assert 1 <= predicted.min() <= predicted.max() <= 5
    assert np.array_equal(predicted, again)
    assert not np.array_equal(predicted, other)


def test_constant_development_scores_are_no_nan():
    """A development set without any variance keeps the first weights and predicts numbers."""
    rows = np.random.default_rng(0).normal(size=[70, 3]).astype(np.float32)
    train, dev = (rows, np.full(70, 2.5)), (rows[:5], np.full(5, 2.5))
    dev_pearson, predicted = predict_relatedness(train, dev, rows, seed=1, max_epoch=1)
    assert dev_pearson == 0.0
    assert np.isfinite(predicted).all()
    assert predicted.mean() == pytest.approx(2.5, abs=0.5)
