"""What random batches cost against those of similar length: `python -m benchmarks.random_batches`.

    CMLM_DATA_DIR=… python -m benchmarks.random_batches --work_dir=work/methods

SimCSE's single sentences of at most 32 tokens, and QuickThought's neighbours in books of at most
128, each with a 2 × 128 encoder and equally many examples a step on both sides. Random batches
(`bucket_boundaries: []`) are padded to their longest sequence.
"""

import statistics
import time
from pathlib import Path

from absl import flags

from official_cmlm import cli

FLAGS = flags.FLAGS
# Experiment -> records of `methods_data`, examples a step, the buckets it is compared with.
_TRAININGS = {
    "simcse/tiny": ("sentences", 64, [16, 24, 32]),
    "quick_thought/tiny": ("books", 128, [16, 24, 32, 48, 64, 96, 128]),
}


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("work_dir", "work/methods", "Folder for texts and records.")
    flags.DEFINE_integer("rounds", 5, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_float("seconds", 10.0, "Seconds of each side in a round.", lower_bound=0.1)


class Side:
    """One training: its pipeline and its compiled step."""

    def __init__(self, experiment: str, records: Path, size: int, buckets: list[int]) -> None:
        import tensorflow as tf

        from experiments import registry
        from official_cmlm.training.task import SentenceEncoderTask

        data = {
            "input_path": str(records),
            "global_batch_size": size,
            "max_bucket_batch_size": size,
            "bucket_boundaries": buckets,
        }
        override = {"task": {"init_checkpoint": "", "train_data": data}}
        params = registry.load(experiment, params_override=str(override))
        task = SentenceEncoderTask(params.task)
        model = task.build_model()
        optimizer = task.create_optimizer(params.trainer.optimization())
        dataset = task.build_inputs(params.task.train_data)
        self._iterator = iter(dataset)
        self._step = tf.function(
            lambda batch: task.train_step(batch, model, optimizer)["loss"],
            input_signature=[dataset.element_spec],
        )

    def run(self, seconds: float) -> float:
        """Trains for about so many seconds; returns examples a second."""
        examples, started = 0, time.monotonic()
        while time.monotonic() - started < seconds:
            batch = next(self._iterator)
            float(self._step(batch))
            examples += sum(int(features["key"].shape[0]) for features in batch.values())
        return examples / (time.monotonic() - started)


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    cli.quiet_tensorflow()
    from benchmarks.methods_data import prepare

    folders = prepare(Path(FLAGS.work_dir))
    lines = []
    for experiment, (records, size, buckets) in _TRAININGS.items():
        sides = {
            name: Side(experiment, folders[records], size, boundaries)
            for name, boundaries in (("random", []), ("buckets", buckets))
        }
        for side in sides.values():
            # Each meets all of its shapes before the clock runs.
            side.run(FLAGS.seconds)
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(1, FLAGS.rounds + 1):
            for name, side in sides.items():
                speeds[name].append(side.run(FLAGS.seconds))
                print(f"round {number}, {experiment}, {name}: {speeds[name][-1]:.0f}", flush=True)
        for name, values in speeds.items():
            median = statistics.median(values)
            lines.append(f"figure {experiment}_{name}_examples_per_second {median:.0f}")
        ratios = [a / b for a, b in zip(speeds["random"], speeds["buckets"])]
        lines.append(f"ratio {experiment}_random_to_buckets {statistics.median(ratios):.2f}")
    print("\n".join(lines))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
