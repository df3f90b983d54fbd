"""SentEval's regression of relatedness scores (SICK-R, STS-B) by a softmax over five classes.

Tai et al. (2015): a score of 3.6 is encoded as probability 0.4 of class 3 and 0.6 of class 4; the
prediction is the expected class. The toolkit (`tools/relatedness.py`) minimises the mean squared
error of the probabilities with Adam and keeps the weights with the best Pearson correlation on the
development set.
"""

import numpy as np
from scipy import special, stats
from threadpoolctl import threadpool_limits

from official_cmlm.evaluation.metrics.senteval_classifier import (
    ClassifierConfig,
    Features,
    Loss,
    train,
)

CLASSES = 5


def encode_scores(scores: np.ndarray) -> np.ndarray:
    """Encodes scores as distributions over the classes 1 to 5: float32 `[n, 5]`.

    As in the toolkit, the probabilities of a score below 1 (STS-B has some) sum to less than 1.
    """
    distances = np.abs(np.asarray(scores, np.float64)[:, np.newaxis] - np.arange(1, CLASSES + 1))
    return np.maximum(1 - distances, 0).astype(np.float32)


def compute_squared_error_slope(probabilities: np.ndarray, targets: np.ndarray) -> None:
    """Overwrites softmax probabilities p with the logits' gradient of mean((p - targets)²).

    Both arguments are `[…, 5, batch]`.
    """
    outer = probabilities - targets
    outer *= 2.0 / (CLASSES * probabilities.shape[-1])
    outer *= probabilities
    # softmax' = p (outer - Σ p outer); `outer` has been multiplied by p.
    probabilities *= outer.sum(axis=-2, keepdims=True)
    np.subtract(outer, probabilities, out=probabilities)


def predict_relatedness(
    train_set: tuple[np.ndarray, np.ndarray],
    dev: tuple[np.ndarray, np.ndarray],
    test: np.ndarray,
    seed: int,
    max_epoch: int = 1000,
) -> tuple[float, np.ndarray]:
    """Fits the regression and predicts the test set's scores.

    Args:
      train_set, dev: features float32 `[n, dim]` and scores `[n]`.
      test: features `[m, dim]`.
      seed: of the initial weights and the order of examples.
      max_epoch: training ends at the first evaluation after more epochs than this. Default 1000.

    Returns:
      Pearson's correlation on `dev`, -1 to 1, and float64 scores `[m]`, between 1 and 5.
    """
    config = ClassifierConfig(tenacity=3, epoch_size=50, max_epoch=max_epoch)
    rows, scores = train_set
    part = np.arange(len(rows)), dev, np.random.RandomState(seed)
    loss = Loss(compute_squared_error_slope, _pearson)
    with threadpool_limits(1):
        trained = train(Features(rows), encode_scores(scores), [part], [[0.0]], config, seed, loss)
        return trained[0][0].dev_score, _expect_score(test, trained[0][0].weights)


def _expect_score(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    logits = np.asarray(rows, np.float32) @ weights[:-1] + weights[-1]
    return special.softmax(logits, axis=1).astype(np.float64) @ np.arange(1.0, CLASSES + 1)


def _pearson(rows: np.ndarray, scores: np.ndarray, weights: np.ndarray, blocks: int) -> np.ndarray:
    """Returns Pearson's correlation of the one training, `[1]`; 0 if one side is constant."""
    del blocks
    predicted = _expect_score(rows, weights)
    if np.ptp(predicted) == 0 or np.ptp(scores) == 0:
        return np.zeros(1)
    return np.array([stats.pearsonr(predicted, scores).statistic])
