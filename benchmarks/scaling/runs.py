"""Measures training here: kernels, steps of a calibration model, and the runs to be predicted.

Everything happens in one process that is pinned to some cores, in alternating rounds, so that what
else the machine does falls on all alike.
"""

import dataclasses
import os
import statistics
import time
from typing import Any

import tensorflow as tf

from benchmarks.scaling.cost_model import (
    BatchShape,
    KernelCosts,
    calibrated,
    kernel_seconds,
    step_seconds,
)
from benchmarks.scaling.inputs import packed_cpu_seconds, real_tokens, token_cpu_seconds
from benchmarks.scaling.kernels import costs_of, kernels, seconds_a_unit
from benchmarks.scaling.training import Training

# (layers, hidden); the constants come from the first, the runs of the others are predicted.
CALIBRATION = (3, 192)
PREDICTED = ((2, 128), (4, 256))
# Other lengths than those of the runs, so that nothing is predicted from itself.
_CALIBRATION_BUCKETS = [24, 48, 96, 128]
_BUCKETS = [16, 32, 64, 128]
_TINY = 2
_KERNEL_SECONDS = 0.12


@dataclasses.dataclass(frozen=True)
class Run:
    """Steps of one training, and what the cost model says about them.

    Attributes:
      model: layers × hidden.
      cores: that it had.
      steps, pairs, tokens: computed; tokens with padding.
      measured, predicted: seconds of all steps, waiting for inputs included.
    """

    model: str
    cores: int
    steps: int
    pairs: int
    tokens: int
    measured: float
    predicted: float


@dataclasses.dataclass(frozen=True)
class Side:
    """What one process measured.

    Attributes:
      cores: that it had.
      costs: the machine's constants, calibrated.
      runs: of every model and round.
      shares: model -> kind of kernel -> share of the predicted step.
      input_cpu_seconds: CPU seconds of the input pipeline a token, padding not counted.
      packed_cpu_seconds: CPU seconds a pair with the paper's own inputs, packed to 256 tokens.
      packed_serial_seconds: of these, what one thread of a stream does: reading and grouping.
    """

    cores: int
    costs: KernelCosts
    runs: list[Run]
    shares: dict[str, dict[str, float]]
    input_cpu_seconds: float
    packed_cpu_seconds: float
    packed_serial_seconds: float


def pin(cores: int) -> None:
    """Keeps this process on so many cores; called before TensorFlow starts its threads."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(cores)


class Samples:
    """Everything that is timed, and the times of each round."""

    def __init__(self, records: str) -> None:
        self.base = Training(CALIBRATION, records, _CALIBRATION_BUCKETS)
        self.trainings = [Training(size, records, _BUCKETS) for size in PREDICTED]
        self.widths = sorted({hidden for _, hidden in (CALIBRATION, *PREDICTED)})
        self._kernels = kernels(self.widths, self.base.shape.vocab)
        self._update, self._parameters = _update(self.base)
        self._usual = _one_of_each_length(self.base)
        shortest = min(self._usual, key=_length_of)
        self._tiny = tf.nest.map_structure(lambda tensor: tensor[:_TINY], shortest)
        self._by_kernel: dict[str, list[float]] = {kernel.name: [] for kernel in self._kernels}
        self._updates: list[float] = []
        self._by_batch: list[list[float]] = [[] for _ in [self._tiny, *self._usual]]
        self.runs: list[tuple[Training, list[BatchShape], int, float]] = []

    def warm_up(self) -> None:
        """A step of every bucket, so that memory, threads and graphs are there."""
        for training in self.trainings:
            for batch in _one_of_each_length(training):
                training.seconds(batch)
        for batch in [*self._usual, self._tiny]:
            self.base.seconds(batch)

    def round(self, steps: int) -> None:
        """Times everything once more."""
        for kernel in self._kernels:
            self._by_kernel[kernel.name].append(seconds_a_unit(kernel, _KERNEL_SECONDS))
        self._updates += [_seconds(self._update) for _ in range(3)]
        for times, batch in zip(self._by_batch, [self._tiny, *self._usual]):
            times += [self.base.seconds(batch) for _ in range(2)]
        for training in self.trainings:
            self.runs.append((training, *_run(training, steps)))

    def costs(self) -> KernelCosts:
        """The machine's constants by all rounds."""
        medians = {name: statistics.median(times) for name, times in self._by_kernel.items()}
        update = statistics.median(self._updates) / self._parameters
        tiny, *usual = (
            (self.base.batch_shape(batch), statistics.median(times))
            for batch, times in zip([self._tiny, *self._usual], self._by_batch)
        )
        return calibrated(costs_of(medians, self.widths, update), self.base.shape, tiny, usual)


def measure(records: str, cores: int, rounds: int, steps: int) -> Side:
    """Measures and predicts on so many cores.

    Args:
      records: folder of documents records.
      cores: to pin to.
      rounds: of which medians are taken.
      steps: of each run in a round.
    """
    pin(cores)
    samples = Samples(records)
    samples.warm_up()
    inputs = token_cpu_seconds(samples.base.dataset)
    for _ in range(rounds):
        samples.round(steps)
    costs = samples.costs()
    runs = [
        Run(
            training.shape.name,
            cores,
            len(shapes),
            sum(shape.pairs for shape in shapes),
            sum(2 * shape.pairs * shape.length for shape in shapes),
            seconds,
            sum(step_seconds(training.shape, shape, costs) for shape in shapes)
            + inputs * real / cores,
        )
        for training, shapes, real, seconds in samples.runs
    ]
    return Side(
        cores,
        costs,
        runs,
        _shares(samples.runs, costs),
        inputs,
        *packed_cpu_seconds(records),
    )


def _run(training: Training, steps: int) -> tuple[list[BatchShape], int, float]:
    """Trains; returns what each step computed, real tokens, and seconds with the input pipeline."""
    batches = []
    began = time.perf_counter()
    for _ in range(steps):
        batches.append(training.next_batch())
        training.step(batches[-1]).numpy()
    seconds = time.perf_counter() - began
    return [training.batch_shape(b) for b in batches], sum(map(real_tokens, batches)), seconds


def _shares(
    runs: list[tuple[Training, list[BatchShape], int, float]], costs: KernelCosts
) -> dict[str, dict[str, float]]:
    shares: dict[str, dict[str, float]] = {}
    for training, shapes, _, _ in runs:
        seconds = shares.setdefault(training.shape.name, {})
        for shape in shapes:
            for kind, value in kernel_seconds(training.shape, shape, costs).items():
                seconds[kind] = seconds.get(kind, 0.0) + costs.factor * value
            overhead = costs.layer_overhead * (training.shape.layers + 1)
            seconds["overhead"] = seconds.get("overhead", 0.0) + overhead
    return {
        name: {kind: value / sum(seconds.values()) for kind, value in seconds.items()}
        for name, seconds in shares.items()
    }


def _one_of_each_length(training: Training, tries: int = 40) -> list[dict]:
    """A batch of every bucket that the first batches show."""
    found = {}
    for _ in range(tries):
        batch = training.next_batch()
        found.setdefault(_length_of(batch), batch)
    return [found[length] for length in sorted(found)]


def _length_of(batch: dict) -> int:
    return batch["cmlm"]["first"]["input_word_ids"].shape[1]


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _update(training: Training) -> tuple[Any, int]:
    """A call of the optimizer alone, clipping included, and the weights that it updates."""
    from official_cmlm.training import step

    variables = training.model.trainable_variables
    given = [tf.fill(variable.shape, 1e-6) for variable in variables]

    @tf.function
    def apply() -> tf.Tensor:
        clipped, norm = step.clipped(given, step.clip_norm_of(training.optimizer))
        step.apply_summed(training.optimizer, clipped, variables)
        return norm

    apply()
    return lambda: apply().numpy(), sum(v.shape.num_elements() for v in variables)
