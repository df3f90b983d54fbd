"""Finds the weights of the main-content classifier, and measures it.

Logistic regression on what `data_prep.stages.quality_classifier` sees of a document.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from official_cmlm.errors import UserError

from ..readers import Document
from .quality_classifier import Features, QualityModel, signals, standardised
from .quality_signals import Words

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Training:
    """How the weights are found; values of our own.

    Attributes:
      l2: what half the squared length of the weights costs, beside the mean loss of an example.
        The bias is free. More of it makes phrases that were never seen easier to tell, and the
        order of words harder.
      max_steps: of L-BFGS, which ends earlier at the optimum.
    """

    l2: float = 1e-5
    max_steps: int = 200


def train(
    kept: list[Document],
    dropped: list[Document],
    features: Features | None = None,
    training: Training | None = None,
) -> QualityModel:
    """The classifier that best tells `kept` from `dropped`; no random numbers are involved.

    Raises:
      UserError: one of the two is empty.
    """
    if not kept or not dropped:
        what = "to keep" if not kept else "to drop"
        raise UserError(f"no example of text {what} is left to learn from; give more text")
    features, training = features or Features(), training or Training()
    documents = [*kept, *dropped]
    labels = np.repeat([1.0, 0.0], [len(kept), len(dropped)])
    ngrams, values = vectors(documents, features)
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    means = np.where(known, values, 0.0).sum(axis=0) / count
    scales = np.sqrt(np.where(known, (values - means) ** 2, 0.0).sum(axis=0) / count)
    # A signal that never changes says nothing, and must not divide by 0.
    scales = np.where(scales > 1e-9, scales, 1.0)
    weights, signal_weights, bias = fit(
        ngrams, standardised(values, means, scales), labels, training
    )
    return QualityModel(
        features, weights.astype(np.float32), signal_weights, means, scales, float(bias)
    )


def vectors(documents: Iterable[Document], features: Features) -> tuple["csr_matrix", np.ndarray]:
    """[documents, 2^bits] float64, n-grams by the root of how many there are; [documents, signals].

    The signals are as measured, with NaN where there is none.
    """
    from scipy.sparse import csr_matrix

    columns, data, bounds, rows = [], [], [0], []
    for document in documents:
        words = Words(document.paragraphs)
        found, counts = np.unique(features.buckets(words), return_counts=True)
        columns.append(found.astype(np.int32))
        data.append(counts / np.sqrt(max(counts.sum(), 1)))
        bounds.append(bounds[-1] + len(found))
        rows.append(signals(document.paragraphs, words, document.language))
    shape = (len(rows), 1 << features.bits)
    matrix = csr_matrix((np.concatenate(data), np.concatenate(columns), bounds), shape)
    return matrix, np.stack(rows)


def fit(
    ngrams: "csr_matrix", dense: np.ndarray, labels: np.ndarray, training: Training
) -> tuple[np.ndarray, np.ndarray, float]:
    """Weights of [examples, a] n-grams and [examples, b] signals, and the bias.

    Minimises the mean log loss of the 0/1 `labels` and `training.l2` / 2 times the squared length
    of the weights, by L-BFGS from 0.
    """
    from scipy.optimize import minimize

    split = ngrams.shape[1]
    start = np.zeros(split + dense.shape[1] + 1)
    options = {"maxiter": training.max_steps, "ftol": 1e-10, "gtol": 1e-7}
    loss = objective(ngrams, dense, labels, training.l2)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return found[:split], found[split:-1], float(found[-1])


def objective(
    ngrams: "csr_matrix", dense: np.ndarray, labels: np.ndarray, l2: float
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """What `fit` minimises: [a + b + 1] weights and bias -> the loss and its gradient."""
    split = ngrams.shape[1]
    transposed = ngrams.T.tocsr()

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights = parameters[:-1]
        logits = ngrams @ weights[:split] + dense @ weights[split:] + parameters[-1]
        signed = np.where(labels > 0, logits, -logits)
        # log(1 + exp(-x)) without overflow.
        value = np.logaddexp(0, -signed).mean() + l2 / 2 * (weights @ weights)
        error = (_sigmoid(logits) - labels) / len(labels)
        gradient = np.concatenate([transposed @ error, dense.T @ error, [error.sum()]])
        gradient[:-1] += l2 * weights
        return value, gradient

    return loss


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -logits))


def precision_recall(kept_scores: np.ndarray, dropped_scores: np.ndarray) -> list[dict[str, float]]:
    """For each of `THRESHOLDS` the precision and recall of what is kept.

    `precision` is the share of what is kept that should be, `recall` the share of what should be
    kept that is, `dropped` the share of what should be dropped that is.
    """
    table = []
    for threshold in THRESHOLDS:
        right = int((kept_scores >= threshold).sum())
        wrong = int((dropped_scores >= threshold).sum())
        table.append(
            {
                "threshold": threshold,
                "precision": right / max(right + wrong, 1),
                "recall": right / max(len(kept_scores), 1),
                "dropped": 1 - wrong / max(len(dropped_scores), 1),
            }
        )
    return table


def scores(model: QualityModel, documents: Iterable[Document]) -> np.ndarray:
    """[documents] float64, the model's score of each."""
    return np.array([model.score(one.paragraphs, one.language) for one in documents])


def format_table(table: list[dict[str, float]]) -> str:
    """The table of `precision_recall` in Markdown."""
    lines = ["| threshold | precision of what is kept | recall | dropped rightly |"]
    lines.append("|---|---|---|---|")
    for row in table:
        lines.append(
            f"| {row['threshold']:g} | {row['precision']:.1%} | {row['recall']:.1%} "
            f"| {row['dropped']:.1%} |"
        )
    return "\n".join(lines)
