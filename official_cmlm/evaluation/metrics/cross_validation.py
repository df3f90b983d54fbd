"""SentEval's three protocols of training, model selection and testing (`tools/validation.py`).

Each works with either of two solvers: `MiniBatchSolver`, the toolkit's PyTorch classifier, whose
scores are the published ones; and `LogisticRegressionSolver`, the toolkit's option without PyTorch.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from official_cmlm.evaluation.metrics import senteval_classifier
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig, Fold, Rows

Part = tuple[Rows, np.ndarray]
"""Features by row and int labels."""

# The toolkit fixes the seed of the folds of tasks without a test set.
_FOLD_SEED = 1111


Tick = Callable[[int], None]
"""Called with the number of trainings just finished."""


class Predictor(Protocol):
    """A trained classifier."""

    def predict(self, rows: Rows) -> np.ndarray: ...


class Solver(abc.ABC):
    """Trains one classifier for each of several regularisation strengths."""

    @abc.abstractmethod
    def grid(self, kind: str) -> Sequence[float]:
        """Returns the strengths to try in the protocol `inner_kfold`, `kfold` or `split`."""

    @abc.abstractmethod
    def fit(
        self, train: Part, dev: Part | None, num_classes: int, strengths: Sequence[float], seed: int
    ) -> list[Predictor]:
        """Returns a classifier for each strength; `dev` is for early stopping."""

    def fit_folds(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        folds: Sequence[Fold],
        num_classes: int,
        seed: int,
        tick: Tick,
    ) -> list[list[Predictor]]:
        """Fits each fold by `fit`; ticks for each."""
        found = []
        for fold in folds:
            train = rows[fold.train], labels[fold.train]
            dev = None if fold.dev is None else (rows[fold.dev], labels[fold.dev])
            found.append(self.fit(train, dev, num_classes, fold.weight_decays, seed))
            tick(1)
        return found


@dataclasses.dataclass(frozen=True)
class MiniBatchSolver(Solver):
    """The toolkit's PyTorch classifier without a hidden layer."""

    config: ClassifierConfig

    def grid(self, kind: str) -> Sequence[float]:
        """Returns weight decays."""
        del kind
        return [1e-5, 1e-4, 1e-3, 1e-2]

    def fit(
        self, train: Part, dev: Part | None, num_classes: int, strengths: Sequence[float], seed: int
    ) -> list[Predictor]:
        """Fits by `senteval_classifier.fit`."""
        return senteval_classifier.fit(train, dev, num_classes, self.config, strengths, seed)

    def fit_folds(
        self,
        rows: np.ndarray,
        labels: np.ndarray,
        folds: Sequence[Fold],
        num_classes: int,
        seed: int,
        tick: Tick,
    ) -> list[list[Predictor]]:
        """Fits all folds side by side; see `senteval_classifier.fit_folds`."""
        return senteval_classifier.fit_folds(
            rows, labels, folds, num_classes, self.config, seed, tick
        )


@dataclasses.dataclass(frozen=True)
class LogisticRegressionSolver(Solver):
    """The toolkit without PyTorch (`usepytorch: False`): scikit-learn's logistic regression."""

    max_iter: int = 1000

    def grid(self, kind: str) -> Sequence[float]:
        """Returns values of scikit-learn's C; as in the toolkit, larger ones for `kfold`."""
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


def inner_kfold(
    rows: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    solver: Solver,
    folds: int,
    seed: int,
    tick: Tick = lambda done: None,
) -> tuple[float, float]:
    """Returns the accuracy of tasks with a training set only: MR, CR, SUBJ, MPQA.

    Nested cross-validation: each fold is classified by a classifier trained on the other folds,
    whose strength is chosen by cross-validation within those. The result is the mean over folds.

    Args:
      rows: float `[n, dim]`.
      labels: int `[n]`.
      num_classes: number of classes.
      solver: trains the classifiers.
      folds: number of outer and of inner folds.
      seed: of the trainings; the seed of the folds is fixed, as in the toolkit.
      tick: called with the numbers of trainings; there are folds * (folds + 1).

    Returns:
      Accuracy on development sets, by which strengths were chosen, and on test sets, 0 to 1.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=_FOLD_SEED)
    outer = list(split.split(rows, labels))
    strengths = solver.grid("inner_kfold")
    chosen, dev = _best(
        rows,
        labels,
        [others for others, _ in outer],
        num_classes,
        solver,
        strengths,
        split,
        seed,
        tick,
    )
    finals = [Fold(others, None, [best]) for (others, _), best in zip(outer, chosen)]
    fitted = solver.fit_folds(rows, labels, finals, num_classes, seed, tick)
    accuracies = [
        _accuracy(classifier, rows[fold], labels[fold])
        for (classifier,), (_, fold) in zip(fitted, outer)
    ]
    return float(np.mean(dev)), float(np.mean(accuracies))


def kfold(
    train: tuple[np.ndarray, np.ndarray],
    test_rows: np.ndarray,
    num_classes: int,
    solver: Solver,
    folds: int,
    seed: int,
    tick: Tick = lambda done: None,
) -> tuple[float, np.ndarray]:
    """Predicts tasks with a training and a test set: TREC, MRPC.

    The strength is chosen by cross-validation on the training set. There are folds + 1 trainings.

    Returns:
      Accuracy of that cross-validation, 0 to 1, and predicted classes, int `[m]`.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=seed)
    rows, labels = train
    everything = np.arange(len(labels))
    (strength,), (dev,) = _best(
        rows, labels, [everything], num_classes, solver, solver.grid("kfold"), split, seed, tick
    )
    (classifier,) = solver.fit(train, None, num_classes, [strength], seed)
    tick(1)
    return dev, classifier.predict(test_rows)


def train_dev_test(
    train: Part,
    dev: Part,
    test_rows: Rows,
    num_classes: int,
    solver: Solver,
    seed: int,
    strengths: Sequence[float] | None = None,
) -> tuple[float, np.ndarray]:
    """Predicts tasks with all three sets: SST, SICK-E, SNLI, probing.

    The strength is chosen by the accuracy on `dev`. The toolkit then trains again with the chosen
    strength and the same seed; that gives the same classifier, so it is not repeated here.

    Args:
      train, dev: features and labels.
      test_rows: features.
      num_classes: number of classes.
      solver: trains the classifiers.
      seed: of the trainings.
      strengths: the strengths to choose from. Default: the solver's grid.

    Returns:
      Accuracy on `dev`, 0 to 1, and predicted classes of the test set, int `[m]`.
    """
    strengths = solver.grid("split") if strengths is None else strengths
    classifier = best_on_dev(train, dev, num_classes, solver, seed, strengths)
    return _accuracy(classifier, *dev), classifier.predict(test_rows)


def best_on_dev(
    train: Part,
    dev: Part,
    num_classes: int,
    solver: Solver,
    seed: int,
    strengths: Sequence[float],
) -> Predictor:
    """Returns the classifier with the best accuracy on `dev`, rounded to 0.01 % as in the toolkit.

    Ties go to the first strength.
    """
    classifiers = solver.fit(train, dev, num_classes, strengths, seed)
    scores = [round(100 * _accuracy(c, *dev), 2) for c in classifiers]
    return classifiers[int(np.argmax(scores))]


def _best(
    rows: np.ndarray,
    labels: np.ndarray,
    parts: Sequence[np.ndarray],
    num_classes: int,
    solver: Solver,
    strengths: Sequence[float],
    split: StratifiedKFold,
    seed: int,
    tick: Tick,
) -> tuple[list[float], list[float]]:
    """Returns the best strength for each of several parts of the rows, and its accuracy, 0 to 1.

    That is the mean over folds of the part, rounded to 0.01 % as in the toolkit.
    """
    folds = [
        Fold(part[others], part[fold], strengths)
        for part in parts
        for others, fold in split.split(rows[part], labels[part])
    ]
    fitted = solver.fit_folds(rows, labels, folds, num_classes, seed, tick)
    scores = [
        [_accuracy(classifier, rows[fold.dev], labels[fold.dev]) for classifier in classifiers]
        for classifiers, fold in zip(fitted, folds)
    ]
    means = np.reshape(scores, [len(parts), -1, len(strengths)]).mean(axis=1)
    means = np.round(100 * means, 2)
    chosen = [strengths[int(best)] for best in means.argmax(axis=1)]
    return chosen, (means.max(axis=1) / 100).tolist()


def _accuracy(classifier: Predictor, rows: Rows, labels: np.ndarray) -> float:
    return float(np.mean(classifier.predict(rows[np.arange(len(rows))]) == labels))
