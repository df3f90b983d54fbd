"""SentEval's three protocols of training, model selection and testing (`tools/validation.py`).

Each works with either of two solvers: `MiniBatchSolver`, the toolkit's PyTorch classifier, whose
scores are the published ones; and `LogisticRegressionSolver`, the toolkit's option without PyTorch.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

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


@dataclasses.dataclass(frozen=True)
class Solver:
    """A trainer of classifiers with a method `predict`, one for each regularisation strength.

    Attributes:
      seed: seed of the trainings.
    """

    seed: int

    def grid(self, kind: str) -> Sequence[float]:
        """Returns the strengths to try in the protocol `inner_kfold`, `kfold` or `split`."""
        raise NotImplementedError

    def fit(self, train: Part, dev: Part | None, strengths: Sequence[float]) -> list[Any]:
        """Returns a classifier for each strength; `dev` is for early stopping."""
        raise NotImplementedError

    def fit_folds(self, train: Part, folds: Sequence[Fold], tick: Tick) -> list[list[Any]]:
        """Fits each fold of rows and labels by `fit`; calls `tick(1)` after each."""
        classifiers, (rows, labels) = [], train
        for fold in folds:
            parts = [
                None if part is None else (rows[part], labels[part])
                for part in (fold.train, fold.dev)
            ]
            classifiers.append(self.fit(*parts, fold.weight_decays))
            tick(1)
        return classifiers


@dataclasses.dataclass(frozen=True)
class MiniBatchSolver(Solver):
    """The toolkit's PyTorch classifier without a hidden layer; strengths are weight decays."""

    config: ClassifierConfig
    num_classes: int

    def grid(self, kind: str) -> Sequence[float]:
        del kind
        return [1e-5, 1e-4, 1e-3, 1e-2]

    def fit(self, train: Part, dev: Part | None, strengths: Sequence[float]) -> list[Any]:
        return senteval_classifier.fit(
            train, dev, self.num_classes, self.config, strengths, self.seed
        )

    def fit_folds(self, train: Part, folds: Sequence[Fold], tick: Tick) -> list[list[Any]]:
        return senteval_classifier.fit_folds(
            *train, folds, self.num_classes, self.config, self.seed, tick
        )


@dataclasses.dataclass(frozen=True)
class LogisticRegressionSolver(Solver):
    """The toolkit without PyTorch (`usepytorch: False`): scikit-learn's logistic regression."""

    max_iter: int = 1000

    def grid(self, kind: str) -> Sequence[float]:
        """Returns values of scikit-learn's C; as in the toolkit, larger ones for `kfold`."""
        first, last = (-1, 6) if kind == "kfold" else (-2, 4)
        return [2.0**power for power in range(first, last)]

    def fit(self, train: Part, dev: Part | None, strengths: Sequence[float]) -> list[Any]:
        """Fits to all of `train`, without early stopping."""
        del dev
        rows, labels = train
        models = [
            LogisticRegression(C=c, max_iter=self.max_iter, random_state=self.seed)
            for c in strengths
        ]
        with threadpool_limits(1):
            return [model.fit(rows[np.arange(len(rows))], labels) for model in models]


def inner_kfold(
    train: Part, solver: Solver, folds: int, tick: Tick = lambda done: None
) -> tuple[float, float]:
    """Returns the accuracy of tasks with a training set only: MR, CR, SUBJ, MPQA.

    The cross-validation is nested: each fold is classified by a classifier trained on the other
    folds, whose strength is chosen by cross-validation within these. The result is the mean over
    folds.
    There are folds * (folds + 1) trainings; the seed of the folds is fixed, as in the toolkit.

    Returns:
      Accuracy on development sets, by which strengths were chosen, and on test sets, 0 to 1.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=_FOLD_SEED)
    outer = list(split.split(*train))
    parts, strengths = [others for others, _ in outer], solver.grid("inner_kfold")
    chosen, dev = _best(train, parts, solver, strengths, split, tick)
    finals = [Fold(others, None, [best]) for others, best in zip(parts, chosen)]
    fitted = solver.fit_folds(train, finals, tick)
    accuracies = [
        _accuracy(classifier, train, fold) for (classifier,), (_, fold) in zip(fitted, outer)
    ]
    return float(np.mean(dev)), float(np.mean(accuracies))


def kfold(
    train: Part, test_rows: Rows, solver: Solver, folds: int, tick: Tick = lambda done: None
) -> tuple[float, np.ndarray]:
    """Predicts tasks with a training and a test set: TREC, MRPC.

    The strength is chosen by cross-validation on the training set. There are folds + 1 trainings.

    Returns:
      Accuracy of that cross-validation, 0 to 1, and predicted classes, int `[m]`.
    """
    split = StratifiedKFold(folds, shuffle=True, random_state=solver.seed)
    parts, strengths = [np.arange(len(train[1]))], solver.grid("kfold")
    (strength,), (dev,) = _best(train, parts, solver, strengths, split, tick)
    (classifier,) = solver.fit(train, None, [strength])
    tick(1)
    return dev, classifier.predict(test_rows)


def train_dev_test(
    train: Part,
    dev: Part,
    test_rows: Rows,
    solver: Solver,
    strengths: Sequence[float] | None = None,
) -> tuple[float, np.ndarray]:
    """Predicts tasks with all three sets: SST, SICK-E, SNLI, probing.

    The strength is chosen by the accuracy on `dev`, by default from the solver's grid. The toolkit
    then trains again with the chosen strength and the same seed; that gives the same classifier, so
    it is not repeated here.

    Returns:
      Accuracy on `dev`, 0 to 1, and predicted classes of the test set, int `[m]`.
    """
    strengths = solver.grid("split") if strengths is None else strengths
    classifier = best_on_dev(train, dev, solver, strengths)
    return _accuracy(classifier, dev), classifier.predict(test_rows)


def best_on_dev(train: Part, dev: Part, solver: Solver, strengths: Sequence[float]) -> Any:
    """Returns the classifier with the best accuracy on `dev`, rounded to 0.01 % as in the toolkit.

    Ties go to the first strength.
    """
    classifiers = solver.fit(train, dev, strengths)
    scores = [round(100 * _accuracy(c, dev), 2) for c in classifiers]
    return classifiers[int(np.argmax(scores))]


def _best(
    train: Part,
    parts: Sequence[np.ndarray],
    solver: Solver,
    strengths: Sequence[float],
    split: StratifiedKFold,
    tick: Tick,
) -> tuple[list[float], list[float]]:
    """Returns the best strength for each of several parts of the rows, and its accuracy, 0 to 1.

    The accuracy is the mean over the folds of the part, rounded to 0.01 % as in the toolkit.
    """
    rows, labels = train
    folds = [
        Fold(part[others], part[fold], strengths)
        for part in parts
        for others, fold in split.split(rows[part], labels[part])
    ]
    fitted = solver.fit_folds(train, folds, tick)
    scores = [
        [_accuracy(classifier, train, fold.dev) for classifier in classifiers]
        for classifiers, fold in zip(fitted, folds)
    ]
    means = np.reshape(scores, [len(parts), -1, len(strengths)]).mean(axis=1)
    means = np.round(100 * means, 2)
    chosen = [strengths[int(best)] for best in means.argmax(axis=1)]
    return chosen, (means.max(axis=1) / 100).tolist()


def _accuracy(classifier: Any, part: Part, chosen: np.ndarray | None = None) -> float:
    """Returns the accuracy on some rows, by default on all."""
    rows, labels = part
    chosen = np.arange(len(rows)) if chosen is None else chosen
    return float(np.mean(classifier.predict(rows[chosen]) == labels[chosen]))
