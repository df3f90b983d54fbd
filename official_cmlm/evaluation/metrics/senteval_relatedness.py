"""SentEval's regression of relatedness scores (SICK-R, STS-B) by a softmax over five classes.

Tai et al. (2015): a score of 3.6 is encoded as probability 0.4 of class 3 and 0.6 of class 4; the
prediction is the expected class. The toolkit (`tools/relatedness.py`) minimises the mean squared
error of the probabilities with Adam and keeps the weights with the best Pearson correlation on the
development set.
"""

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from official_cmlm.evaluation.metrics.senteval_classifier import adam

CLASSES = 5
_BATCH_SIZE = 64
_EPOCHS_PER_EVALUATION = 50
_MAX_EPOCH = 1000
_TENACITY = 3


def encode_scores(scores: np.ndarray) -> np.ndarray:
    """Scores as distributions over the classes 1 to 5: float32 `[n, 5]`.

    As in the toolkit, the probabilities of a score below 1 (STS-B has some) sum to less than 1.
    """
    scores = np.asarray(scores, np.float64)
    below = np.floor(scores).astype(int)
    encoded = np.zeros([len(scores), CLASSES], np.float32)
    for rows, classes, mass in (
        (np.arange(len(scores)), below - 1, below - scores + 1),
        (np.arange(len(scores)), below, scores - below),
    ):
        inside = (classes >= 0) & (classes < CLASSES)
        encoded[rows[inside], classes[inside]] += mass[inside]
    return encoded


def predict_relatedness(
    train: tuple[np.ndarray, np.ndarray],
    dev: tuple[np.ndarray, np.ndarray],
    test: np.ndarray,
    seed: int,
    max_epoch: int = _MAX_EPOCH,
) -> tuple[float, np.ndarray]:
    """Fits the regression and predicts the test set's scores.

    Args:
      train, dev: features float32 `[n, dim]` and scores `[n]`.
      test: features `[m, dim]`.
      seed: of the initial weights and the order of examples.
      max_epoch: training ends at the first evaluation after more epochs than this. Default 1000.

    Returns:
      Pearson's correlation on `dev`, -1 to 1, and float64 scores `[m]`, between 1 and 5.
    """
    with threadpool_limits(1):
        weights, dev_pearson = _fit(train, dev, seed, max_epoch)
        return dev_pearson, _expected(test, weights)


def _fit(
    train: tuple[np.ndarray, np.ndarray],
    dev: tuple[np.ndarray, np.ndarray],
    seed: int,
    max_epoch: int,
) -> tuple[np.ndarray, float]:
    """Fits weights `[dim + 1, 5]`, the bias last, with their development correlation."""
    rows, targets = np.asarray(train[0], np.float32), encode_scores(train[1])
    rows = np.concatenate([rows, np.ones([len(rows), 1], np.float32)], axis=1)
    bound = 1.0 / np.sqrt(rows.shape[1] - 1)
    weights = np.random.default_rng(seed).uniform(-bound, bound, [rows.shape[1], CLASSES])
    # Classes first, so that what is done for each class runs along the rows of a batch.
    weights = np.ascontiguousarray(weights.T, np.float32)
    first, second = np.zeros_like(weights), np.zeros_like(weights)
    order = np.random.RandomState(seed)
    best, best_pearson, waited, step, epoch = weights.T.copy(), -1.0, 0, 0, 0
    batch_rows = np.empty([_BATCH_SIZE, rows.shape[1]], np.float32)
    while epoch <= max_epoch:
        for _ in range(_EPOCHS_PER_EVALUATION):
            mixed = order.permutation(len(rows))
            mixed_targets = targets[mixed].T.copy()
            for start in range(0, len(mixed), _BATCH_SIZE):
                batch = mixed[start : start + _BATCH_SIZE]
                step += 1
                chosen = batch_rows[: len(batch)]
                # Any mode but the default writes without a temporary copy.
                np.take(rows, batch, axis=0, out=chosen, mode="clip")
                wanted = mixed_targets[:, start : start + _BATCH_SIZE]
                gradient = squared_error_gradient(chosen, wanted, weights)
                adam(weights, gradient, first, second, step)
        epoch += _EPOCHS_PER_EVALUATION
        pearson = _pearson(_expected(dev[0], weights.T), dev[1])
        if pearson > best_pearson:
            best, best_pearson = weights.T.copy(), pearson
        elif waited >= _TENACITY:
            break
        else:
            waited += 1
    return best, best_pearson


def squared_error_gradient(
    rows: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Returns the gradient of mean((softmax(weights @ rowsᵀ) - targets)²) with respect to weights.

    Args:
      rows: `[n, dim]`.
      targets: `[5, n]`.
      weights: `[5, dim]`.
    """
    probabilities = weights @ rows.T
    probabilities -= probabilities.max(axis=0)
    np.exp(probabilities, out=probabilities)
    probabilities /= probabilities.sum(axis=0)
    outer = probabilities - targets
    outer *= 2.0 / targets.size
    outer *= probabilities
    # softmax' = p (outer - Σ p outer); `outer` has been multiplied by p.
    probabilities *= outer.sum(axis=0)
    outer -= probabilities
    return outer @ rows


def _expected(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    probabilities = _softmax(np.asarray(rows, np.float32) @ weights[:-1] + weights[-1])
    return probabilities.astype(np.float64) @ np.arange(1.0, CLASSES + 1)


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def _pearson(predicted: np.ndarray, scores: np.ndarray) -> float:
    """Returns Pearson's correlation, 0 if one side is constant."""
    if np.ptp(predicted) == 0 or np.ptp(scores) == 0:
        return 0.0
    return float(stats.pearsonr(predicted, scores).statistic)
