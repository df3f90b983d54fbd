"""SentEval's classifier: a linear softmax layer trained by mini-batches with early stopping.

The toolkit (Conneau and Kiela 2018, `tools/classifier.py`) trains it in PyTorch. This is the same
in NumPy: the toolkit's order of examples (NumPy's legacy generator, re-seeded for each training),
its optimizers with PyTorch's defaults, and its counting of epochs; only the initial weights come
from another generator. Trainings that differ in weight decay alone see the same batches, so they
run together, as blocks of one weight matrix; those of several folds run in step, as a stack of such
matrices, because a batch's products are so small that calling NumPy takes as long as computing.

scikit-learn cannot replace it. Published SentEval scores depend on this optimizer and its early
stopping on a development set: five seeds of this classifier are within 0.35 points of the toolkit's
figures for the same embeddings, `LogisticRegression` is up to 1.0 point away
(`benchmarks/results/evaluation.md`), and `MLPClassifier` has neither RMSprop, nor a given
development set, nor weight decay on the bias. Where no published protocol asks for it, as in the
suite `amazon`, scikit-learn's `LogisticRegression` is used.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

# Rows scored at a time, since features may be computed on access.
_SCORE_ROWS = 8192
# Features up to this size are copied once, with a column of ones, instead of batch by batch.
_COPIED_BYTES = 2**29
# Most folds that are trained in step.
_FOLDS = 5


class Rows(Protocol):
    """Features by row: an array `[n, dim]`, or an object that computes rows on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: np.ndarray) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class ClassifierConfig:
    """Settings of the classifier's training; the defaults are the toolkit's.

    Attributes:
      optimizer: `adam` (learning rate 0.001) or `rmsprop` (0.01), PyTorch's default values.
      batch_size: examples per step. Default 64.
      tenacity: number of evaluations without improvement that are tolerated; the next one ends the
        training. Default 5.
      epoch_size: epochs between two evaluations. Default 4.
      max_epoch: training ends at the first evaluation after more epochs than this. Default 200.
    """

    optimizer: str = "adam"
    batch_size: int = 64
    tenacity: int = 5
    epoch_size: int = 4
    max_epoch: int = 200


@dataclasses.dataclass(frozen=True)
class LinearClassifier:
    """Weights `[dim + 1, classes]`, the bias last, with their score on the development set."""

    weights: np.ndarray
    dev_score: float

    def predict(self, rows: Rows) -> np.ndarray:
        """Returns the class of each row: int64 `[n]`; ties go to the lower class."""
        return _predict(rows, self.weights, 1)[0]


@dataclasses.dataclass(frozen=True)
class Fold:
    """Rows of one training.

    Attributes:
      train: indices of the rows to train on.
      dev: indices of the rows for early stopping; None holds out 5 % of `train`, as the toolkit
        does.
      weight_decays: L2 coefficients, applied to weights and bias, as in PyTorch. Each is a training
        of its own.
    """

    train: np.ndarray
    dev: np.ndarray | None
    weight_decays: Sequence[float]


Part = tuple[np.ndarray, tuple[Rows, np.ndarray], np.random.RandomState]
"""Indices of rows to train on, features and labels for early stopping, generator of orders."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss of softmax probabilities.

    Attributes:
      slope: overwrites probabilities `[…, classes, batch]` with the gradient with respect to their
        logits; its second argument has the targets, of the same shape.
      scores: (features, labels, weights of several trainings side by side, their number) -> the
        score of each, `[trainings]`, by which it is stopped; higher is better.
    """

    slope: Callable[[np.ndarray, np.ndarray], None]
    scores: Callable[[Rows, np.ndarray, np.ndarray, int], np.ndarray]


def _cross_entropy_slope(probabilities: np.ndarray, targets: np.ndarray) -> None:
    probabilities -= targets
    probabilities /= probabilities.shape[-1]


def _accuracies(rows: Rows, labels: np.ndarray, weights: np.ndarray, blocks: int) -> np.ndarray:
    return (_predict(rows, weights, blocks) == labels).mean(axis=1)


CROSS_ENTROPY = Loss(_cross_entropy_slope, _accuracies)


def fit(
    train_set: tuple[Rows, np.ndarray],
    dev: tuple[Rows, np.ndarray] | None,
    num_classes: int,
    config: ClassifierConfig,
    weight_decays: Sequence[float],
    seed: int,
) -> list[LinearClassifier]:
    """Trains one classifier for each weight decay; each has the weights of its best evaluation.

    Args:
      train_set: features `[n, dim]` and int labels `[n]`, 0 to num_classes - 1.
      dev: the same; see `Fold`.
      num_classes: at least 2.
      config: settings of the training.
      weight_decays: see `Fold`.
      seed: of the initial weights, the held-out examples and the order of examples.

    Raises:
      ValueError: for labels outside the classes, or fewer than 20 rows to hold 5 % out of.
    """
    rows, labels = train_set
    targets = _targets(labels, num_classes)
    part = _part(np.arange(len(labels)), dev, rows, labels, seed)
    # One thread is faster for small products, and makes results independent of the number of cores.
    with threadpool_limits(1):
        return train(Features(rows), targets, [part], [weight_decays], config, seed)[0]


def fit_folds(
    rows: np.ndarray,
    labels: np.ndarray,
    folds: Sequence[Fold],
    num_classes: int,
    config: ClassifierConfig,
    seed: int,
    tick: Callable[[int], None] = lambda done: None,
) -> list[list[LinearClassifier]]:
    """Trains the classifiers of several folds of the same rows, each as `fit` would.

    Groups of folds are trained in step by stacked matrix products, groups on threads of their own.
    The groups depend on the number of folds alone, so the result does not depend on the machine.
    All folds have the same number of weight decays; `tick` is called with the number of folds just
    finished.
    """
    targets = _targets(labels, num_classes)
    groups = np.array_split(np.arange(len(folds)), 2 * math.ceil(len(folds) / (2 * _FOLDS)))

    def fit_group(group: np.ndarray) -> list[list[LinearClassifier]]:
        parts, decays = [], []
        for fold in (folds[i] for i in group):
            dev = None if fold.dev is None else (rows[fold.dev], labels[fold.dev])
            parts.append(_part(fold.train, dev, rows, labels, seed))
            decays.append(fold.weight_decays)
        return train(features, targets, parts, decays, config, seed)

    classifiers = []
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as threads:
        features = Features(rows)
        for fitted in threads.map(fit_group, filter(len, groups)):
            classifiers += fitted
            tick(len(fitted))
    return classifiers


def _targets(labels: np.ndarray, num_classes: int) -> np.ndarray:
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"labels must be 0 to {num_classes - 1}, got up to {labels.max()}")
    return np.eye(num_classes, dtype=np.float32)[labels]


def _part(
    chosen: np.ndarray,
    dev: tuple[Rows, np.ndarray] | None,
    rows: Rows,
    labels: np.ndarray,
    seed: int,
) -> Part:
    order = np.random.RandomState(seed)
    if dev is None:
        mixed = chosen[order.permutation(len(chosen))]
        held_out = int(0.05 * len(chosen))
        if not held_out:
            raise ValueError(f"need at least 20 rows to hold 5 % out of, got {len(chosen)}")
        chosen, apart = mixed[held_out:], mixed[:held_out]
        dev = rows[apart], labels[apart]
    return chosen, dev, order


class Features:
    """Rows followed by a column of ones, by batches; `width` columns, the ones included."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._copy = rows, None
        if isinstance(rows, np.ndarray) and rows.size * 4 <= _COPIED_BYTES:
            ones = np.ones([len(rows), 1], np.float32)
            self._copy = np.concatenate([rows, ones], axis=1, dtype=np.float32)
        self.width = rows[np.arange(min(1, len(rows)))].shape[1] + 1

    def take(self, index: np.ndarray, out: np.ndarray) -> None:
        """Writes the rows `index`, `[folds, batch]`, into `out`, `[folds, batch, width]`."""
        if self._copy is not None:
            # Any mode but the default writes without a temporary copy; no index is out of bounds.
            np.take(self._copy, index, axis=0, out=out, mode="clip")
        else:
            out[..., :-1] = self._rows[index.ravel()].reshape(*index.shape, -1)
            out[..., -1] = 1.0


def train(
    features: Features,
    targets: np.ndarray,
    parts: Sequence[Part],
    weight_decays: Sequence[Sequence[float]],
    config: ClassifierConfig,
    seed: int,
    loss: Loss = CROSS_ENTROPY,
) -> list[list[LinearClassifier]]:
    """Trains several folds in step, with a classifier for each of a fold's weight decays.

    `features` has all n rows, `targets` is float32 `[n, classes]`; `parts` and `weight_decays` have
    an item for each fold, with equally many weight decays. `seed` determines the initial weights.
    """
    state = _Trainings(weight_decays, features.width, targets.shape[1], config, seed, loss)
    epoch, size = 0, config.batch_size
    while len(state.folds) and epoch <= config.max_epoch:
        for _ in range(config.epoch_size):
            orders = [(parts[f][0], parts[f][2]) for f in state.folds]
            mixed = [chosen[order.permutation(len(chosen))] for chosen, order in orders]
            whole = min(map(len, mixed)) // size * size
            together = np.array([order[:whole] for order in mixed])
            for start in range(0, whole, size):
                batch = together[:, start : start + size]
                state.step(slice(None), batch, features, targets)
            # The number of remaining examples differs between folds.
            for place, order in enumerate(mixed):
                for start in range(whole, len(order), size):
                    batch = order[np.newaxis, start : start + size]
                    state.step(slice(place, place + 1), batch, features, targets)
        epoch += config.epoch_size
        state.evaluate([held_out for _, held_out, _ in parts])
    return state.best


class _Trainings:
    """Trainings side by side: of several folds, and for each of them of several weight decays.

    The weights `[folds, decays * classes, width]` have the folds and the decays of which at least
    one training still runs. Trainings of such a fold and such a decay that have ended are still
    computed, without effect.

    Attributes:
      folds: int, numbers of the folds with a training that still runs.
      best: fold -> weight decay -> the best classifier so far.
    """

    def __init__(
        self,
        weight_decays: Sequence[Sequence[float]],
        width: int,
        classes: int,
        config: ClassifierConfig,
        seed: int,
        loss: Loss,
    ) -> None:
        self._config, self._loss, self._classes = config, loss, classes
        decay = np.repeat(np.asarray(weight_decays, np.float32), classes, axis=1)
        self._decay, self._decays_weights = decay[..., np.newaxis], bool(decay.any())
        shape = np.shape(weight_decays)
        bound = 1.0 / np.sqrt(width - 1)
        initial = np.random.default_rng(seed).uniform(-bound, bound, [width, classes])
        initial = initial.astype(np.float32)
        self.folds, self._decays = (np.arange(count) for count in shape)
        self.best = [[LinearClassifier(initial, -1.0)] * shape[1] for _ in self.folds]
        self._running, self._waited = np.ones(shape, bool), np.zeros(shape, int)
        self._weights = np.tile(initial.T, (*shape, 1))
        self._first = np.zeros_like(self._weights)
        self._second = np.zeros_like(self._weights)
        self._steps = np.zeros([shape[0], 1, 1])
        self._rows = np.empty([shape[0], config.batch_size, width], np.float32)
        self._gradient = np.empty_like(self._weights)

    def step(
        self, places: slice, batch: np.ndarray, features: Features, targets: np.ndarray
    ) -> None:
        """Updates the weights by the loss of a batch: rows `[places, size]` of some of `folds`."""
        size = batch.shape[1]
        rows, weights = self._rows[places, :size], self._weights[places]
        if size < self._rows.shape[1]:
            rows = np.empty([len(batch), size, rows.shape[2]], np.float32)
        features.take(batch, rows)
        errors = weights @ rows.transpose(0, 2, 1)
        by_class = errors.reshape(len(batch), -1, self._classes, size)
        by_class -= by_class.max(axis=2, keepdims=True)
        np.exp(by_class, out=by_class)
        by_class /= by_class.sum(axis=2, keepdims=True)
        self._loss.slope(by_class, targets[batch].transpose(0, 2, 1)[:, np.newaxis])
        gradient = np.matmul(errors, rows, out=self._gradient[places])
        if self._decays_weights:
            gradient += self._decay[places] * weights
        self._steps[places] += 1
        update = adam if self._config.optimizer == "adam" else rmsprop
        update(weights, gradient, self._first[places], self._second[places], self._steps[places])

    def evaluate(self, held_out: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Keeps weights that improved; ends trainings that have not improved for too long."""
        for fold, weights in zip(self.folds, self._weights):
            scores = self._loss.scores(*held_out[fold], weights.T, len(self._decays))
            for block, (decay, score) in enumerate(zip(self._decays, scores.tolist())):
                if not self._running[fold, decay]:
                    continue
                if score > self.best[fold][decay].dev_score:
                    lines = slice(block * self._classes, (block + 1) * self._classes)
                    self.best[fold][decay] = LinearClassifier(weights[lines].T.copy(), score)
                elif self._waited[fold, decay] >= self._config.tenacity:
                    self._running[fold, decay] = False
                else:
                    self._waited[fold, decay] += 1
        self._drop_ended()

    def _drop_ended(self) -> None:
        """Drops folds whose trainings have all ended, and decays that have ended in all folds."""
        running = self._running[np.ix_(self.folds, self._decays)]
        places, blocks = running.any(axis=1), running.any(axis=0)
        if places.all() and blocks.all():
            return
        self.folds, self._decays = self.folds[places], self._decays[blocks]
        lines = np.repeat(blocks, self._classes)
        for name in ("_weights", "_first", "_second", "_decay"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[places][:, lines]))
        self._steps = self._steps[places]
        self._rows = self._rows[: len(self.folds)]
        self._gradient = np.empty_like(self._weights)


def adam(
    weights: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: float | np.ndarray,
) -> None:
    """Updates in place by Adam (Kingma and Ba 2015), PyTorch's defaults; overwrites `gradient`.

    `step` counts from 1; an array has the steps of stacked trainings.
    """
    change = gradient - first
    change *= 0.1
    first += change
    gradient *= gradient
    gradient *= 0.001
    second *= 0.999
    second += gradient
    np.divide(second, np.asarray(1.0 - 0.999**step, weights.dtype), out=gradient)
    np.sqrt(gradient, out=gradient)
    gradient += 1e-8
    np.divide(first, gradient, out=gradient)
    gradient *= np.asarray(1e-3 / (1.0 - 0.9**step), weights.dtype)
    weights -= gradient


def rmsprop(
    weights: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: float | np.ndarray,
) -> None:
    """Updates in place by RMSprop (Tieleman and Hinton 2012), PyTorch's defaults.

    It overwrites `gradient`.
    """
    del first, step
    squared = gradient * gradient
    squared *= 0.01
    second *= 0.99
    second += squared
    np.sqrt(second, out=squared)
    squared += 1e-8
    gradient /= squared
    gradient *= 1e-2
    weights -= gradient


def _predict(rows: Rows, weights: np.ndarray, blocks: int) -> np.ndarray:
    """Predicts classes by each of the column blocks: int64 `[blocks, n]`."""
    classes = np.empty([blocks, len(rows)], np.int64)
    for start in range(0, len(rows), _SCORE_ROWS):
        chunk = rows[np.arange(start, min(start + _SCORE_ROWS, len(rows)))]
        logits = (chunk @ weights[:-1] + weights[-1]).reshape(len(chunk), blocks, -1)
        classes[:, start : start + _SCORE_ROWS] = logits.argmax(axis=2).T
    return classes
