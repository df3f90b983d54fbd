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

OPTIMIZERS = ("adam", "rmsprop")
# Rows scored at a time, since features may be computed on access.
_SCORE_ROWS = 8192
# Features up to this size are copied once, with a column of ones, instead of batch by batch.
_COPIED_BYTES = 2**29
# Folds trained in step, at most.
_FOLDS = 5


class Rows(Protocol):
    """Features by row: an array `[n, dim]`, or an object that computes rows on access."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: np.ndarray) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class ClassifierConfig:
    """How the classifier is trained; the defaults are the toolkit's.

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
    """Weights `[dim + 1, classes]`, the bias last, with their accuracy on the development set."""

    weights: np.ndarray
    dev_accuracy: float

    def predict(self, rows: Rows) -> np.ndarray:
        """Returns the class of each row: int64 `[n]`; ties go to the lower class."""
        return _predict(rows, self.weights, 1)[0]

    def accuracy(self, rows: Rows, labels: np.ndarray) -> float:
        """Returns the share of rows classified correctly, 0 to 1."""
        return float(np.mean(self.predict(rows) == labels))


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


def fit(
    train: tuple[Rows, np.ndarray],
    dev: tuple[Rows, np.ndarray] | None,
    num_classes: int,
    config: ClassifierConfig,
    weight_decays: Sequence[float],
    seed: int,
) -> list[LinearClassifier]:
    """Trains one classifier for each weight decay.

    Args:
      train: features `[n, dim]` and int labels `[n]`, 0 to num_classes - 1.
      dev: the same, for early stopping; None holds out 5 % of `train`, as the toolkit does.
      num_classes: at least 2.
      config: settings of the training.
      weight_decays: L2 coefficients, applied to weights and bias, as in PyTorch.
      seed: of the initial weights, the held-out examples and the order of examples.

    Returns:
      Classifiers in the order of `weight_decays`, each with the weights of its best evaluation.

    Raises:
      ValueError: for labels outside the classes, or fewer than 20 rows to hold 5 % out of.
    """
    labels = _checked(train[1], num_classes)
    rows = train[0]
    everything = np.arange(len(labels))
    # Whoever gives development examples gives none of these rows for that.
    fold = Fold(everything, None if dev is None else everything[:0], weight_decays)
    chosen, apart, order = _parts(fold, seed)
    held_out = (rows[apart], labels[apart]) if dev is None else dev
    # One thread: faster for small products, and results do not depend on the number of threads.
    with threadpool_limits(1):
        features = _Features(rows)
        state = _Trainings([fold.weight_decays], features.width, num_classes, config, seed)
        return _train(features, labels, [chosen], [held_out], state, [order])[0]


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

    Args:
      rows: features, float `[n, dim]`.
      labels: int `[n]`, 0 to num_classes - 1.
      folds: rows and weight decays of each; all with the same number of weight decays.
      num_classes: at least 2.
      config: settings of the trainings.
      seed: of every fold's initial weights, held-out examples and order of examples.
      tick: called with the number of folds just finished.

    Returns:
      Classifiers by fold, each in the order of its weight decays.

    Raises:
      ValueError: as `fit`.
    """
    labels = _checked(labels, num_classes)
    groups = np.array_split(np.arange(len(folds)), 2 * math.ceil(len(folds) / (2 * _FOLDS)))

    def fit_group(group: np.ndarray) -> list[list[LinearClassifier]]:
        parts = [_parts(folds[i], seed) for i in group]
        decays = [folds[i].weight_decays for i in group]
        held_out = [(rows[apart], labels[apart]) for _, apart, _ in parts]
        state = _Trainings(decays, features.width, num_classes, config, seed)
        orders = [order for *_, order in parts]
        return _train(features, labels, [part[0] for part in parts], held_out, state, orders)

    found = []
    with threadpool_limits(1), ThreadPoolExecutor(os.cpu_count()) as threads:
        features = _Features(rows)
        for fitted in threads.map(fit_group, filter(len, groups)):
            found += fitted
            tick(len(fitted))
    return found


def _checked(labels: np.ndarray, num_classes: int) -> np.ndarray:
    labels = np.asarray(labels)
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"labels must be 0 to {num_classes - 1}, got up to {labels.max()}")
    return labels


def _parts(fold: Fold, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.RandomState]:
    """Returns rows to train on, rows for early stopping, and the generator of orders."""
    order = np.random.RandomState(seed)
    if fold.dev is not None:
        return fold.train, fold.dev, order
    permutation = order.permutation(len(fold.train))
    held_out = int(0.05 * len(fold.train))
    if not held_out:
        raise ValueError(f"need at least 20 rows to hold 5 % out of, got {len(fold.train)}")
    return fold.train[permutation[held_out:]], fold.train[permutation[:held_out]], order


class _Features:
    """Rows followed by a column of ones, by batches.

    Attributes:
      width: number of columns, the ones included.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        if isinstance(rows, np.ndarray) and rows.size * 4 <= _COPIED_BYTES:
            self._copy = _with_ones(rows)
            self.width = self._copy.shape[1]
        else:
            self._copy = None
            self.width = rows[np.arange(min(1, len(rows)))].shape[1] + 1

    def take(self, index: np.ndarray, out: np.ndarray) -> None:
        """Writes the rows `index`, `[folds, batch]`, into `out`, `[folds, batch, width]`."""
        if self._copy is not None:
            # Any mode but the default writes without a temporary copy; no index is out of bounds.
            np.take(self._copy, index, axis=0, out=out, mode="clip")
        else:
            out[..., :-1] = self._rows[index.ravel()].reshape(*index.shape, -1)
            out[..., -1] = 1.0


def _train(
    features: _Features,
    labels: np.ndarray,
    chosen: Sequence[np.ndarray],
    held_out: Sequence[tuple[Rows, np.ndarray]],
    state: "_Trainings",
    orders: Sequence[np.random.RandomState],
) -> list[list[LinearClassifier]]:
    """Trains all of `state`: its f-th fold on the rows `chosen[f]`."""
    config, epoch = state.config, 0
    targets = np.eye(state.classes, dtype=np.float32)[labels]
    while state.folds and epoch <= config.max_epoch:
        for _ in range(config.epoch_size):
            mixed = [chosen[f][orders[f].permutation(len(chosen[f]))] for f in state.folds]
            whole = min(map(len, mixed)) // config.batch_size * config.batch_size
            together = np.array([order[:whole] for order in mixed])
            for start in range(0, whole, config.batch_size):
                batch = together[:, start : start + config.batch_size]
                state.step(slice(None), batch, features, targets)
            # The rest has another length in each fold.
            for place, order in enumerate(mixed):
                for start in range(whole, len(order), config.batch_size):
                    batch = order[np.newaxis, start : start + config.batch_size]
                    state.step(slice(place, place + 1), batch, features, targets)
        epoch += config.epoch_size
        state.evaluate(held_out)
    return state.best


class _Trainings:
    """Trainings side by side: of several folds, and for each of them of several weight decays.

    The weights `[places, blocks * classes, width]` belong, place by place, to `folds`; block b of a
    place belongs to the training `_blocks[place][b]` of its fold. Folds end at different times:
    blocks that have ended are kept, and computed for nothing, only while another fold has as many.

    Attributes:
      config: settings of the trainings.
      classes: number of classes.
      folds: those with a training that still runs.
      best: fold -> weight decay -> the best classifier so far.
    """

    def __init__(
        self,
        weight_decays: Sequence[Sequence[float]],
        width: int,
        classes: int,
        config: ClassifierConfig,
        seed: int,
    ) -> None:
        self.config, self.classes = config, classes
        self.folds = list(range(len(weight_decays)))
        count = len(weight_decays[0])
        bound = 1.0 / np.sqrt(width - 1)
        initial = np.random.default_rng(seed).uniform(-bound, bound, [width, classes])
        initial = initial.astype(np.float32)
        self.best = [[LinearClassifier(initial, -1.0)] * count for _ in self.folds]
        self._blocks = [list(range(count)) for _ in self.folds]
        self._running = [[True] * count for _ in self.folds]
        self._waited = [[0] * count for _ in self.folds]
        decay = np.repeat(np.asarray(weight_decays, np.float32), classes, axis=1)
        self._decay = decay[..., np.newaxis]
        self._weights = np.tile(initial.T, (len(self.folds), count, 1))
        self._first = np.zeros_like(self._weights)
        self._second = np.zeros_like(self._weights)
        self._steps = np.zeros([len(self.folds), 1, 1])
        self._rows = np.empty([len(self.folds), config.batch_size, width], np.float32)
        self._gradient = np.empty_like(self._weights)

    def step(
        self, places: slice, batch: np.ndarray, features: _Features, targets: np.ndarray
    ) -> None:
        """Updates the weights by the mean cross-entropy of a batch.

        Args:
          places: the folds to update, as places in `folds`.
          batch: row indices, `[places, size]`.
          features: rows.
          targets: 1 at the label of each row, float32 `[n, classes]`.
        """
        size = batch.shape[1]
        rows, weights = self._rows[places, :size], self._weights[places]
        if size < self._rows.shape[1]:
            rows = np.empty([len(batch), size, rows.shape[2]], np.float32)
        features.take(batch, rows)
        errors = weights @ rows.transpose(0, 2, 1)
        by_class = errors.reshape(len(batch), -1, self.classes, size)
        by_class -= by_class.max(axis=2, keepdims=True)
        np.exp(by_class, out=by_class)
        by_class /= by_class.sum(axis=2, keepdims=True)
        by_class -= targets[batch].transpose(0, 2, 1)[:, np.newaxis]
        by_class /= size
        gradient = np.matmul(errors, rows, out=self._gradient[places])
        gradient += self._decay[places] * weights
        self._steps[places] += 1
        update = adam if self.config.optimizer == "adam" else rmsprop
        update(weights, gradient, self._first[places], self._second[places], self._steps[places])

    def evaluate(self, held_out: Sequence[tuple[Rows, np.ndarray]]) -> None:
        """Keeps weights that improved; ends trainings that have not improved for too long.

        Args:
          held_out: features and labels of each fold.
        """
        ended = False
        for fold, blocks, weights in zip(self.folds, self._blocks, self._weights):
            rows, labels = held_out[fold]
            predicted = _predict(rows, weights.T, len(blocks))
            for block, training in enumerate(blocks):
                if not self._running[fold][training]:
                    continue
                accuracy = float(np.mean(predicted[block] == labels))
                if accuracy > self.best[fold][training].dev_accuracy:
                    lines = slice(block * self.classes, (block + 1) * self.classes)
                    kept = LinearClassifier(weights[lines].T.copy(), accuracy)
                    self.best[fold][training] = kept
                elif self._waited[fold][training] >= self.config.tenacity:
                    self._running[fold][training] = False
                    ended = True
                else:
                    self._waited[fold][training] += 1
        if ended:
            self._keep_running()

    def _keep_running(self) -> None:
        """Drops folds that have ended, and blocks that no fold needs."""
        running = {f: sum(self._running[f]) for f in self.folds if any(self._running[f])}
        places = [place for place, fold in enumerate(self.folds) if fold in running]
        blocks = max(running.values(), default=0)
        kept = [
            # Blocks that still run first.
            np.argsort(
                [not self._running[self.folds[p]][t] for t in self._blocks[p]], kind="stable"
            )
            for p in places
        ]
        kept = np.array([order[:blocks] for order in kept], int).reshape(len(places), blocks)
        self._blocks = [[self._blocks[p][b] for b in order] for p, order in zip(places, kept)]
        self.folds = [self.folds[p] for p in places]
        lines = (kept[..., np.newaxis] * self.classes + np.arange(self.classes)).reshape(
            len(places), blocks * self.classes, 1
        )
        for name in ("_weights", "_first", "_second", "_decay"):
            setattr(self, name, np.take_along_axis(getattr(self, name)[places], lines, axis=1))
        self._steps = self._steps[places]
        self._rows = self._rows[: len(places)]
        self._gradient = np.empty_like(self._weights)


def adam(
    weights: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: float | np.ndarray,
    learning_rate: float = 1e-3,
) -> None:
    """Updates in place as Kingma and Ba (2015), PyTorch's defaults; overwrites `gradient`.

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
    gradient *= np.asarray(learning_rate / (1.0 - 0.9**step), weights.dtype)
    weights -= gradient


def rmsprop(
    weights: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: float | np.ndarray,
    learning_rate: float = 1e-2,
) -> None:
    """Updates in place as Tieleman and Hinton (2012), PyTorch's defaults; overwrites `gradient`."""
    del first, step
    squared = gradient * gradient
    squared *= 0.01
    second *= 0.99
    second += squared
    np.sqrt(second, out=squared)
    squared += 1e-8
    gradient /= squared
    gradient *= learning_rate
    weights -= gradient


def _with_ones(rows: np.ndarray) -> np.ndarray:
    extended = np.empty([len(rows), rows.shape[1] + 1], np.float32)
    extended[:, :-1] = rows
    extended[:, -1] = 1.0
    return extended


def _predict(rows: Rows, weights: np.ndarray, blocks: int) -> np.ndarray:
    """Predicts classes by each of the column blocks: int64 `[blocks, n]`."""
    parts = []
    for start in range(0, len(rows), _SCORE_ROWS):
        chunk = rows[np.arange(start, min(start + _SCORE_ROWS, len(rows)))]
        logits = chunk @ weights[:-1] + weights[-1]
        parts.append(logits.reshape(len(chunk), blocks, -1).argmax(axis=2).T)
    return np.concatenate(parts, axis=1) if parts else np.zeros([blocks, 0], np.int64)
