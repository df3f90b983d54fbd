"""SentEval's three protocols of training, model selection and testing (`tools/validation.py`).

Each works with either of two solvers: `MiniBatchSolver`, the toolkit's PyTorch classifier, whose
scores are the published ones; and `LogisticRegressionSolver`, the toolkit's option without PyTorch.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from official_cmlm.evaluation.metrics import senteval_classifier
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig, Rows

Part = tuple[Rows, np.ndarray]
"""Features by row and int labels."""

# The toolkit fixes the seed of the folds of tasks without a test set.
_FOLD_SEED = 1111


class Predictor(Protocol):
    """A trained classifier."""

    def predict(self, rows: Rows) -> np.ndarray: ...


class Solver(Protocol):
    """Trains one classifier for each of several regularisation strengths."""

    def grid(self, kind: str) -> Sequence[float]:
        """The strengths to try in the protocol `inner_kfold`, `kfold` or `split`."""

    def fit(
        self, train: Part, dev: Part | None, num_classes: int, strengths: Sequence[float], seed: int
    ) -> list[Predictor]:
        """A classifier for each strength; `dev` is for early stopping."""


@dataclasses.dataclass(frozen=True)
class MiniBatchSolver:
    """The toolkit's PyTorch classifier without a hidden layer."""

    config: ClassifierConfig

    def grid(self, kind: str) -> Sequence[float]:
        """Weight decays."""
        del kind
        return [1e-5, 1e-4, 1e-3, 1e-2]

    def fit(
        self, train: Part, dev: Part | None, num_classes: int, strengths: Sequence[float], seed: int
    ) -> list[Predictor]:
        """See `senteval_classifier.fit`."""
        return senteval_classifier.fit(train, dev, num_classes, self.config, strengths, seed)


@dataclasses.dataclass(frozen=True)
class LogisticRegressionSolver:
    """The toolkit without PyTorch (`usepytorch: False`): scikit-learn's logistic regression."""

    max_iter: int = 1000

    def grid(self, kind: str) -> Sequence[float]:
        """Values of scikit-learn's C; as in the toolkit, larger ones for `kfold`."""
        first, last = (-1, 6) if kind == "kfold" else (-2, 4)
        return [2.0**power for power in range(first, last)]

    def fit(
        self, train: Part, dev: Part | None, num_classes: int, strengths: Sequence[float], seed: int
    ) -> list[Predictor]:
        """Fits to all of `train`, without early stopping."""
        del dev, num_classes
        rows, labels = train
        rows = rows[np.arange(len(rows))]
        fitted = []
        for strength in strengths:
            model = LogisticRegression(C=strength, max_iter=self.max_iter, random_state=seed)
            with threadpool_limits(1):
                fitted.append(model.fit(rows, labels))
        return fitted


Tick = Callable[[int], None]


def inner_kfold(
    rows: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    solver: Solver,
    folds: int,
    seed: int,
    tick: Tick = lambda done: None,
) -> float:
    """Accuracy, 0 to 1, of tasks with a training set only: MR, CR, SUBJ, MPQA.

    Nested cross-validation: each fold is classified by a classifier trained on the other folds,
    whose strength is chosen by cross-validation within those. The result is the mean over folds.

    Args:
      rows: float `[n, dim]`.
      labels: int `[n]`.
      num_classes: number of classes.
      solver: trains the classifiers.
      folds: number of outer and of inner folds.
      seed: of the trainings; the seed of the folds is fixed, as in the toolkit.
      tick: called with 1 after each outer fold.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=_FOLD_SEED)
    accuracies = []
    for others, fold in split.split(rows, labels):
        train = rows[others], labels[others]
        strength = _best(train, num_classes, solver, "inner_kfold", split, seed)
        (classifier,) = solver.fit(train, None, num_classes, [strength], seed)
        accuracies.append(_accuracy(classifier, rows[fold], labels[fold]))
        tick(1)
    return float(np.mean(accuracies))


def kfold(
    train: tuple[np.ndarray, np.ndarray],
    test_rows: np.ndarray,
    num_classes: int,
    solver: Solver,
    folds: int,
    seed: int,
) -> np.ndarray:
    """Predicted classes, int `[m]`, of tasks with a training and a test set: TREC, MRPC.

    The strength is chosen by cross-validation on the training set.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    strength = _best(train, num_classes, solver, "kfold", split, seed)
    (classifier,) = solver.fit(train, None, num_classes, [strength], seed)
    return classifier.predict(test_rows)


def train_dev_test(
    train: Part,
    dev: Part,
    test_rows: Rows,
    num_classes: int,
    solver: Solver,
    seed: int,
    strengths: Sequence[float] | None = None,
) -> np.ndarray:
    """Predicted classes, int `[m]`, of tasks with all three sets: SST, SICK-E, SNLI, probing.

    The strength is chosen by the accuracy on `dev`. The toolkit then trains again with the chosen
    strength and the same seed; that gives the same classifier, so it is not repeated here.

    Args:
      train, dev: features and labels.
      test_rows: features.
      num_classes: number of classes.
      solver: trains the classifiers.
      seed: of the trainings.
      strengths: the strengths to choose from. Default: the solver's grid.
    """
    strengths = solver.grid("split") if strengths is None else strengths
    return best_on_dev(train, dev, num_classes, solver, seed, strengths).predict(test_rows)


def best_on_dev(
    train: Part,
    dev: Part,
    num_classes: int,
    solver: Solver,
    seed: int,
    strengths: Sequence[float],
) -> Predictor:
    """The classifier with the best accuracy on `dev`, rounded to 0.01 % as in the toolkit.

    Ties go to the first strength.
    """
    classifiers = solver.fit(train, dev, num_classes, strengths, seed)
    scores = [round(100 * _accuracy(c, *dev), 2) for c in classifiers]
    return classifiers[int(np.argmax(scores))]


def _best(
    train: tuple[np.ndarray, np.ndarray],
    num_classes: int,
    solver: Solver,
    kind: str,
    split: StratifiedKFold,
    seed: int,
) -> float:
    """The strength with the best mean accuracy over folds, rounded to 0.01 % as in the toolkit."""
    rows, labels = train
    strengths = solver.grid(kind)
    scores = []
    for others, fold in split.split(rows, labels):
        held_out = rows[fold], labels[fold]
        fitted = solver.fit((rows[others], labels[others]), held_out, num_classes, strengths, seed)
        scores.append([_accuracy(classifier, *held_out) for classifier in fitted])
    means = np.round(100 * np.mean(scores, axis=0), 2)
    return strengths[int(np.argmax(means))]


def _accuracy(classifier: Predictor, rows: Rows, labels: np.ndarray) -> float:
    return float(np.mean(classifier.predict(rows[np.arange(len(rows))]) == labels))
