"""What random batches cost against those of similar length: `python -m benchmarks.random_batches`.

    CMLM_DATA_DIR=… python -m benchmarks.random_batches --work_dir=work/methods

SimCSE's single sentences of at most 32 tokens, and QuickThought's neighbours in books of at most
128, each with a 2 × 128 encoder and equally many examples a step on both sides. Random batches
(`bucket_boundaries: []`) are padded to their longest sequence.
"""

import json
import statistics
from pathlib import Path

from absl import flags

from benchmarks.real_text import Side
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


def _overrides(records: Path, size: int, buckets: list[int]) -> str:
    data = {
        "input_path": str(records),
        "global_batch_size": size,
        "max_bucket_batch_size": size,
        "bucket_boundaries": buckets,
    }
    return json.dumps({"task": {"init_checkpoint": "", "train_data": data}})


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    cli.quiet_tensorflow()
    from benchmarks.methods_data import prepare

    folders = prepare(Path(FLAGS.work_dir))
    lines = []
    for experiment, (records, size, buckets) in _TRAININGS.items():
        sides = {
            name: Side(experiment, _overrides(folders[records], size, boundaries))
            for name, boundaries in (("random", []), ("buckets", buckets))
        }
        for side in sides.values():
            # Each meets all of its shapes before the clock runs.
            side.examples_per_second(FLAGS.seconds)
        speeds: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(1, FLAGS.rounds + 1):
            for name, side in sides.items():
                speeds[name].append(side.examples_per_second(FLAGS.seconds))
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
