"""Measures training here: kernels, steps of a calibration model, and the runs to be predicted.

Everything happens in one process that is pinned to some cores, in alternating rounds, so that what
else the machine does falls on all alike.
"""

import dataclasses
import json
import os
import statistics
import time
from typing import Any

import tensorflow as tf

from experiments import registry
from experiments.cost_model import (
    BatchShape,
    KernelCosts,
    calibrated,
    kernel_seconds,
    step_seconds,
)
from experiments.scaling_kernels import costs_of, kernels, seconds_a_unit
from experiments.scaling_training import Training
from official_cmlm.tasks.sentence_encoder import SentenceEncoderTask

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
      packed_serial_seconds: the same without masking: reading, pairing, shuffling, bucketing.
      vocab: entries of the vocabulary that the runs had.
    """

    cores: int
    costs: KernelCosts
    runs: list[Run]
    shares: dict[str, dict[str, float]]
    input_cpu_seconds: float
    packed_cpu_seconds: float
    packed_serial_seconds: float
    vocab: int


def pin(cores: int) -> None:
    """Keeps this process on so many cores; called before TensorFlow starts its threads."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    tf.config.threading.set_intra_op_parallelism_threads(cores)
    tf.config.threading.set_inter_op_parallelism_threads(cores)


def measure(records: str, cores: int, rounds: int, steps: int) -> Side:
    """Measures and predicts on so many cores.

    Args:
      records: folder of documents records.
      cores: to pin to.
      rounds: of which medians are taken.
      steps: of each run in a round.
    """
    pin(cores)
    base = Training(CALIBRATION, records, _CALIBRATION_BUCKETS)
    trainings = [Training(size, records, _BUCKETS) for size in PREDICTED]
    widths = sorted({hidden for _, hidden in (CALIBRATION, *PREDICTED)})
    timed = kernels(widths, base.shape.vocab)
    update, parameters = _update(base)
    usual = _one_of_each_length(base)
    tiny = tf.nest.map_structure(lambda tensor: tensor[:_TINY], min(usual, key=_length_of))
    for training in trainings:
        # A step of every bucket before anything is timed: memory, threads and the graph are there.
        for batch in [*_one_of_each_length(training), training.next_batch()]:
            training.seconds(batch)
    for batch in [*usual, tiny]:
        base.seconds(batch)
    inputs = _input_cpu_seconds(base.dataset)
    by_kernel: dict[str, list[float]] = {kernel.name: [] for kernel in timed}
    updates: list[float] = []
    by_batch: list[list[float]] = [[] for _ in [tiny, *usual]]
    runs: list[tuple[Training, list[BatchShape], int, float]] = []
    for _ in range(rounds):
        for kernel in timed:
            by_kernel[kernel.name].append(seconds_a_unit(kernel, _KERNEL_SECONDS))
        updates += [_seconds(update) for _ in range(3)]
        for times, batch in zip(by_batch, [tiny, *usual]):
            times += [base.seconds(batch) for _ in range(2)]
        for training in trainings:
            runs.append((training, *_run(training, steps)))
    costs = calibrated(
        costs_of(
            {name: statistics.median(found) for name, found in by_kernel.items()},
            widths,
            statistics.median(updates) / parameters,
        ),
        base.shape,
        (base.batch_shape(tiny), statistics.median(by_batch[0])),
        [(base.batch_shape(b), statistics.median(t)) for b, t in zip(usual, by_batch[1:])],
    )
    described = [
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
        for training, shapes, real, seconds in runs
    ]
    return Side(
        cores,
        costs,
        described,
        _shares(runs, costs),
        inputs,
        _packed_cpu_seconds(records, "cmlm"),
        # The same pairs; nothing is added to them.
        _packed_cpu_seconds(records, "quick_thought"),
        base.shape.vocab,
    )


def _run(training: Training, steps: int) -> tuple[list[BatchShape], int, float]:
    """Trains; returns what each step computed, real tokens, and seconds with the input pipeline."""
    batches = []
    began = time.perf_counter()
    for _ in range(steps):
        batches.append(training.next_batch())
        training.step(batches[-1]).numpy()
    seconds = time.perf_counter() - began
    return [training.batch_shape(b) for b in batches], sum(map(_real_tokens, batches)), seconds


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


def _real_tokens(batch: dict) -> int:
    features = batch["cmlm"]
    return sum(int(tf.reduce_sum(features[name]["input_mask"])) for name in ("first", "second"))


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _update(training: Training) -> tuple[Any, int]:
    """A call of the optimizer alone, clipping included, and the weights that it updates."""
    from official_cmlm.tasks import gradients

    variables = training.model.trainable_variables
    given = [tf.fill(variable.shape, 1e-6) for variable in variables]

    @tf.function
    def apply() -> tf.Tensor:
        clipped, norm = gradients.clipped(given, gradients.clip_norm_of(training.optimizer))
        gradients.apply_summed(training.optimizer, clipped, variables)
        return norm

    apply()
    return lambda: apply().numpy(), sum(v.shape.num_elements() for v in variables)


def _input_cpu_seconds(dataset: tf.data.Dataset, batches: int = 150) -> float:
    """CPU seconds of the input pipeline a real token, the work of its start included."""
    used, drawn = _cpu_seconds(dataset, batches)
    return used / sum(map(_real_tokens, drawn))


def _packed_cpu_seconds(records: str, objective: str, pairs: int = 8192) -> float:
    """CPU seconds a pair of the paper's own inputs: packed to 256 tokens, in its buckets."""
    batch = 64
    values = {
        "encoder": {"vocab_size": 0},
        "objectives": {"cmlm": None, objective: {}},
        "train_data": {
            "input_path": records,
            "global_batch_size": batch,
            "max_bucket_batch_size": batch,
        },
        "validation_data": {"input_path": ""},
    }
    params = registry.load("cmlm/english_base", params_override=json.dumps({"task": values}))
    dataset = SentenceEncoderTask(params.task).build_inputs(params.task.train_data)
    return _cpu_seconds(dataset, pairs // batch)[0] / pairs


def _cpu_seconds(dataset: tf.data.Dataset, batches: int) -> tuple[float, list[dict]]:
    """CPU seconds of this process for a dataset's first batches, and these."""
    began = time.process_time()
    iterator = iter(dataset)
    drawn = [next(iterator) for _ in range(batches)]
    return time.process_time() - began, drawn
