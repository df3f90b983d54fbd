"""The protocols: what is trained on, what is tested on, which strength is chosen."""

import dataclasses

import numpy as np
import pytest

from official_cmlm.evaluation.metrics.cross_validation import (
    LogisticRegressionSolver,
    MiniBatchSolver,
    Solver,
    inner_kfold,
    kfold,
    train_dev_test,
)
from official_cmlm.evaluation.metrics.senteval_classifier import ClassifierConfig


class Constant:
    """Predicts what the row's second column says if it is as good as its strength allows."""

    def __init__(self, strength):
        self.strength = strength

    def predict(self, rows):
        right, luck = rows[:, 1].astype(int), rows[:, 2]
        return np.where(luck < self.strength, right, 1 - right)


@dataclasses.dataclass(frozen=True)
class FakeSolver(Solver):
    """Records what it is given; a strength is the share of rows that will be right."""

    strengths: tuple[float, ...] = (0.2, 0.9, 0.5)
    fits: list = dataclasses.field(default_factory=list)
    kinds: list = dataclasses.field(default_factory=list)

    def grid(self, kind):
        self.kinds.append(kind)
        return self.strengths

    def fit(self, train, dev, strengths):
        ids = [set(part[0][:, 0].astype(int)) if part else None for part in (train, dev)]
        self.fits.append((*ids, list(strengths)))
        return [Constant(strength) for strength in strengths]


def _task(count=60):
    """Draws rows of (number, label, luck in 0 to 1)."""
    labels = np.arange(count) % 3 == 0
    luck = np.random.default_rng(0).permutation(count) / count
    return np.stack([np.arange(count), labels, luck], axis=1), labels.astype(int)


def test_inner_kfold_never_sees_what_it_tests():
    """Each row is tested once, and no training or choice of its fold has seen it."""
    rows, labels = _task()
    solver, ticks = FakeSolver(3), []
    dev, accuracy = inner_kfold((rows, labels), solver, 5, ticks.append)
    assert solver.kinds == ["inner_kfold"]
    assert sum(ticks) == len(solver.fits) == 30
    tested = []
    for outer in range(5):
        inner, final = solver.fits[5 * outer : 5 * outer + 5], solver.fits[25 + outer]
        fold = set(range(60)) - final[0]
        tested += fold
        assert final[1:] == (None, [0.9])
        assert len(fold) == 12
        assert labels[list(fold)].sum() == 4
        for train, apart, strengths in inner:
            assert not (train | apart) & fold
            assert not train & apart
            assert train | apart == final[0]
            assert strengths == [0.2, 0.9, 0.5]
    assert sorted(tested) == list(range(60))
    assert accuracy == pytest.approx(0.9, abs=1e-9)
    assert dev == pytest.approx(0.9, abs=0.02)


def test_kfold_chooses_on_the_training_set():
    """The folds split the training set; the last training has all of it; the test set is unseen."""
    rows, labels = _task()
    test = rows + [1000, 0, 0]
    solver, ticks = FakeSolver(3), []
    dev, predicted = kfold((rows, labels), test, solver, 4, ticks.append)
    assert sum(ticks) == 5
    assert len(solver.fits) == 4 + 1
    assert all(max(train) < 1000 for train, *_ in solver.fits)
    assert sorted(i for fit in solver.fits[:4] for i in fit[1]) == list(range(60))
    assert solver.fits[4] == (set(range(60)), None, [0.9])
    assert np.mean(predicted == labels) == pytest.approx(0.9)
    assert dev == pytest.approx(0.9, abs=1e-9)


def test_development_accuracy_is_that_of_the_chosen_strength():
    """The mean over folds of the best strength, rounded as in the toolkit; not the test set's."""
    rows, labels = _task()
    lucky = np.array([[1000, label, 0.0] for label in labels])
    dev, predicted = kfold((rows, labels), lucky, FakeSolver(3, (0.35, 0.6)), 5)
    assert np.mean(predicted == labels) == 1.0
    assert dev == pytest.approx(0.6, abs=1e-9)
    odd = (rows[:58], labels[:58])
    dev, _ = kfold(odd, lucky, FakeSolver(3, (0.35, 0.6)), 5)
    assert 100 * dev == pytest.approx(round(100 * dev, 2), abs=1e-9)
    assert dev != pytest.approx(0.6, abs=1e-6)


def test_train_dev_test_keeps_the_best_of_the_development_set():
    """One training; the first of equally good strengths wins."""
    rows, labels = _task()
    solver = FakeSolver(2, (0.3, 0.8, 0.8, 0.1))
    dev = (rows[:30], labels[:30])
    dev_accuracy, predicted = train_dev_test((rows, labels), dev, rows, solver)
    assert len(solver.fits) == 1
    assert np.mean(predicted == labels) == pytest.approx(0.8, abs=0.01)
    assert dev_accuracy == np.mean(predicted[:30] == labels[:30])
    _, only = train_dev_test((rows, labels), (rows, labels), rows, solver, strengths=[0.3])
    assert np.mean(only == labels) == pytest.approx(0.3, abs=0.01)


def test_grids_are_the_toolkits():
    """Weight decays, or C of scikit-learn, which is higher where there is a test set but no dev."""
    assert MiniBatchSolver(1, ClassifierConfig(), 2).grid("split") == [1e-5, 1e-4, 1e-3, 1e-2]
    solver = LogisticRegressionSolver(1)
    assert solver.grid("split") == solver.grid("inner_kfold") == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
    assert solver.grid("kfold") == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


@pytest.mark.parametrize(
    "solver",
    [
        MiniBatchSolver(1, ClassifierConfig("rmsprop", batch_size=16), 2),
        LogisticRegressionSolver(1),
    ],
)
def test_real_solvers_go_through_all_protocols(solver):
    """Separable classes are told apart by either solver in each protocol."""
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    rows = (rng.normal(size=[200, 4]) + 6.0 * labels[:, np.newaxis]).astype(np.float32)
    pairs = (rows, labels)
    assert inner_kfold((rows, labels), solver, 3) == (1.0, 1.0)
    for dev, predicted in (
        kfold(pairs, rows, solver, 3),
        train_dev_test(pairs, pairs, rows, solver),
    ):
        assert dev == 1.0
        assert np.array_equal(predicted, labels)
