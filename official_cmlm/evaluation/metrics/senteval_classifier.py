"""SentEval's classifier: a linear softmax layer trained by mini-batches with early stopping.

The toolkit (Conneau and Kiela 2018, `tools/classifier.py`) trains it in PyTorch. This is the same
in NumPy: the toolkit's order of examples (NumPy's legacy generator, re-seeded for each training),
its optimizers with PyTorch's defaults, and its counting of epochs; only the initial weights come
from another generator. Trainings that differ in weight decay alone see the same batches, so they
run together, as column blocks of one weight matrix.

scikit-learn cannot replace it. Published SentEval scores depend on this optimizer and its early
stopping on a development set: five seeds of this classifier are within 0.35 points of the toolkit's
figures for the same embeddings, `LogisticRegression` is up to 1.0 point away
(`benchmarks/results/evaluation.md`), and `MLPClassifier` has neither RMSprop, nor a given
development set, nor weight decay on the bias. Where no published protocol asks for it, as in the
suite `amazon`, scikit-learn's `LogisticRegression` is used.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from threadpoolctl import threadpool_limits

OPTIMIZERS = ("adam", "rmsprop")
# Rows scored at a time, since features may be computed on access.
_SCORE_ROWS = 8192


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

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise ValueError(f"optimizer must be one of {known}, got {self.optimizer!r}")
        for name in ("batch_size", "epoch_size", "max_epoch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


@dataclasses.dataclass(frozen=True)
class LinearClassifier:
    """Weights `[dim + 1, classes]`, the bias last, with their accuracy on the development set."""

    weights: np.ndarray
    dev_accuracy: float

    def predict(self, rows: Rows) -> np.ndarray:
        """The class of each row: int64 `[n]`; ties go to the lower class."""
        return _predict(rows, self.weights, 1)[0]

    def accuracy(self, rows: Rows, labels: np.ndarray) -> float:
        """Share of rows classified correctly, 0 to 1."""
        return float(np.mean(self.predict(rows) == labels))


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
    rows, labels = train[0], np.asarray(train[1])
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"labels must be 0 to {num_classes - 1}, got up to {labels.max()}")
    order = np.random.RandomState(seed)
    chosen = np.arange(len(labels))
    if dev is None:
        permutation = order.permutation(len(labels))
        held_out = int(0.05 * len(labels))
        if not held_out:
            raise ValueError(f"need at least 20 rows to hold 5 % out of, got {len(labels)}")
        chosen, apart = permutation[held_out:], permutation[:held_out]
        dev = rows[apart], labels[apart]
    # One thread: faster for small products, and results do not depend on the number of threads.
    with threadpool_limits(1):
        return _train(rows, labels, chosen, dev, num_classes, config, weight_decays, seed, order)


def _train(
    rows: Rows,
    labels: np.ndarray,
    chosen: np.ndarray,
    dev: tuple[Rows, np.ndarray],
    num_classes: int,
    config: ClassifierConfig,
    weight_decays: Sequence[float],
    seed: int,
    order: np.random.RandomState,
) -> list[LinearClassifier]:
    dim = rows[chosen[:1]].shape[1]
    bound = 1.0 / np.sqrt(dim)
    initial = np.random.default_rng(seed).uniform(-bound, bound, [dim + 1, num_classes])
    state = _Trainings(initial.astype(np.float32), np.asarray(weight_decays, np.float32), config)
    epoch = 0
    while state.running and epoch <= config.max_epoch:
        for _ in range(config.epoch_size):
            mixed = chosen[order.permutation(len(chosen))]
            for start in range(0, len(mixed), config.batch_size):
                batch = mixed[start : start + config.batch_size]
                state.step(_with_ones(rows[batch]), labels[batch])
        epoch += config.epoch_size
        state.evaluate(*dev)
    return state.best


class _Trainings:
    """Trainings in parallel: column block r of the weights belongs to the r-th still running."""

    def __init__(
        self, initial: np.ndarray, weight_decays: np.ndarray, config: ClassifierConfig
    ) -> None:
        self.classes = initial.shape[1]
        self.running = list(range(len(weight_decays)))
        self.best: list[LinearClassifier] = [LinearClassifier(initial, -1.0)] * len(weight_decays)
        self._config = config
        self._waited = [0] * len(weight_decays)
        self._decay = np.repeat(weight_decays, self.classes)
        self._weights = np.tile(initial, len(weight_decays))
        self._first = np.zeros_like(self._weights)
        self._second = np.zeros_like(self._weights)
        self._steps = 0

    def step(self, rows: np.ndarray, labels: np.ndarray) -> None:
        """One update by the mean cross-entropy of a batch, float32 `[n, dim + 1]` and labels."""
        logits = (rows @ self._weights).reshape(len(rows), -1, self.classes)
        logits -= logits.max(axis=2, keepdims=True)
        errors = np.exp(logits, out=logits)
        errors /= errors.sum(axis=2, keepdims=True)
        errors[np.arange(len(rows)), :, labels] -= 1.0
        gradient = rows.T @ errors.reshape(len(rows), -1)
        gradient /= len(rows)
        gradient += self._decay * self._weights
        self._steps += 1
        update = adam if self._config.optimizer == "adam" else rmsprop
        update(self._weights, gradient, self._first, self._second, self._steps)

    def evaluate(self, rows: Rows, labels: np.ndarray) -> None:
        """Keeps weights that improved; ends trainings that have not improved for too long."""
        predicted = _predict(rows, self._weights, len(self.running))
        accuracies = np.mean(predicted == labels, axis=1)
        continuing = []
        for block, (training, accuracy) in enumerate(zip(self.running, accuracies)):
            if accuracy > self.best[training].dev_accuracy:
                columns = slice(block * self.classes, (block + 1) * self.classes)
                kept = self._weights[:, columns].copy()
                self.best[training] = LinearClassifier(kept, float(accuracy))
            else:
                if self._waited[training] >= self._config.tenacity:
                    continue
                self._waited[training] += 1
            continuing.append(block)
        if len(continuing) < len(self.running):
            self._keep(continuing)

    def _keep(self, blocks: list[int]) -> None:
        columns = [b * self.classes + c for b in blocks for c in range(self.classes)]
        self.running = [self.running[b] for b in blocks]
        self._decay = self._decay[columns]
        for name in ("_weights", "_first", "_second"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, columns]))


def adam(
    weights: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: int,
    learning_rate: float = 1e-3,
) -> None:
    """Kingma and Ba (2015) with PyTorch's defaults, in place; `step` counts from 1."""
    first += 0.1 * (gradient - first)
    second *= 0.999
    second += 0.001 * gradient * gradient
    scale = np.sqrt(second / (1.0 - 0.999**step))
    scale += 1e-8
    weights -= (learning_rate / (1.0 - 0.9**step)) * first / scale


def rmsprop(
    weights: np.ndarray,
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    step: int,
    learning_rate: float = 1e-2,
) -> None:
    """Tieleman and Hinton (2012) with PyTorch's defaults, in place."""
    del first, step
    second *= 0.99
    second += 0.01 * gradient * gradient
    scale = np.sqrt(second)
    scale += 1e-8
    weights -= learning_rate * gradient / scale


def _with_ones(rows: np.ndarray) -> np.ndarray:
    extended = np.empty([len(rows), rows.shape[1] + 1], np.float32)
    extended[:, :-1] = rows
    extended[:, -1] = 1.0
    return extended


def _predict(rows: Rows, weights: np.ndarray, blocks: int) -> np.ndarray:
    """Classes by each of the column blocks: int64 `[blocks, n]`."""
    parts = []
    for start in range(0, len(rows), _SCORE_ROWS):
        chunk = rows[np.arange(start, min(start + _SCORE_ROWS, len(rows)))]
        logits = chunk @ weights[:-1] + weights[-1]
        parts.append(logits.reshape(len(chunk), blocks, -1).argmax(axis=2).T)
    return np.concatenate(parts, axis=1) if parts else np.zeros([blocks, 0], np.int64)
