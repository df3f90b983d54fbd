"""Trains every objective in float32 and in bfloat16: `python -m benchmarks.mixed_precision`.

    CMLM_DATA_DIR=… python -m benchmarks.mixed_precision --work_dir=work/mixed_precision

Small encoders (2 layers × 64) on the real text of `benchmarks.methods`, from random weights, for
some hundred steps with several seeds of data, weights and dropout. Printed are the validation
losses at the end. bfloat16 reaches float32's loss if its mean over the seeds is not above the
largest of float32's losses. A finished training is not repeated.
"""

import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.processes import run_module
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
DTYPES = ("float32", "bfloat16")
_ENCODER = {
    "vocab_size": 0,
    "hidden_size": 64,
    "num_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 143,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """One objective.

    Attributes:
      settings: of the objective.
      records: of `methods_data`.
      buckets: whether batches have examples of similar length; false where they are compared.
      seq_length: tokens.
      batch_size: examples of `seq_length` tokens.
    """

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    records: str = "books"
    buckets: bool = False
    seq_length: int = 48
    batch_size: int = 32


_AUXILIARY = {"lexical_layers": 1, "fusion_layers": 1}
CASES = {
    "mlm": Case(buckets=True),
    "cmlm": Case(buckets=True),
    "nsp": Case(buckets=True),
    "quick_thought": Case(),
    "bitext_retrieval": Case(records="pairs"),
    "nli": Case(records="inferences", buckets=True),
    "contrastive": Case(),
    "cmlm_cse": Case(_AUXILIARY),
    "diff_cse": Case(_AUXILIARY),
    "declutr": Case({"min_span_length": 8, "max_span_length": 32}, seq_length=128, batch_size=8),
}


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("work_dir", "work/mixed_precision", "Folder for records and trainings.")
    flags.DEFINE_list("objectives", list(CASES), "Objectives to train by.")
    flags.DEFINE_list("seeds", ["1", "2", "3"], "Seeds of each precision.")
    flags.DEFINE_integer("steps", 200, "Steps of a training.", lower_bound=1)
    flags.DEFINE_string("output", "", "Markdown file for the table. Default: print only.")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if unknown := [name for name in FLAGS.objectives if name not in CASES]:
        raise UserError(f"--objectives={unknown[0]}: there are {', '.join(CASES)}")
    if len(set(FLAGS.seeds)) < 2 or not all(seed.isdecimal() for seed in FLAGS.seeds):
        raise UserError(f"--seeds={','.join(FLAGS.seeds)}: give two different numbers or more")
    from benchmarks.methods_data import prepare

    work_dir = Path(FLAGS.work_dir)
    folders = prepare(work_dir)
    lines = [
        "| objective | float32: mean (spread) | bfloat16: mean (spread) | difference | within |",
        "|---|---|---|---|---|",
    ]
    within = 0
    for name in FLAGS.objectives:
        losses = {
            dtype: [_loss(name, dtype, int(seed), work_dir, folders) for seed in FLAGS.seeds]
            for dtype in DTYPES
        }
        line, inside = row(name, *losses.values())
        within += inside
        lines.append(line)
        print(line, flush=True)
    table = "\n".join(lines)
    print(f"\n{table}\n\nfigure bfloat16_within_spread {within} of {len(FLAGS.objectives)}")
    if FLAGS.output:
        Path(FLAGS.output).write_text(table + "\n", encoding="utf-8")


def row(name: str, single: list[float], half: list[float]) -> tuple[str, bool]:
    """A line of the table, and whether bfloat16 is within the spread.

    Args:
      name: the objective.
      single: float32's losses, one a seed.
      half: bfloat16's.
    """
    difference = statistics.mean(half) - statistics.mean(single)
    spreads = [max(losses) - min(losses) for losses in (single, half)]
    # Less than float32's loss is no failure.
    inside = statistics.mean(half) <= max(single)
    cells = [
        f"`{name}`",
        f"{statistics.mean(single):.4f} ({spreads[0]:.4f})",
        f"{statistics.mean(half):.4f} ({spreads[1]:.4f})",
        f"{difference:+.4f}",
        "yes" if inside else "no",
    ]
    return f"| {' | '.join(cells)} |", inside


def _loss(name: str, dtype: str, seed: int, work_dir: Path, folders: dict[str, Path]) -> float:
    """The validation loss at the end of a training, which is run if it is not there."""
    model_dir = work_dir / f"{name}.{dtype}.{seed}.{FLAGS.steps}"
    history = model_dir / "history.jsonl"
    known = [json.loads(x) for x in history.read_text().splitlines()] if history.exists() else []
    if not any(line["split"] == "validation" for line in known):
        run_module(
            *("experiments.train", "--experiment=mlm/english_base", "--mode=train_and_eval"),
            f"--params_override={json.dumps(_overrides(name, dtype, seed, folders))}",
            f"--model_dir={model_dir}",
        )
        known = [json.loads(line) for line in history.read_text().splitlines()]
    return [line for line in known if line["split"] == "validation"][-1]["validation_loss"]


def _overrides(name: str, dtype: str, seed: int, folders: dict[str, Path]) -> dict[str, Any]:
    case = CASES[name]
    length, size = case.seq_length, case.batch_size
    data = {
        "seq_length": length,
        "segment": "packed" if name == "nsp" else "sentence",
        "global_batch_size": size,
        "max_bucket_batch_size": 2 * size,
        "bucket_boundaries": [length // 3, length // 2, length] if case.buckets else [],
        "seed": seed,
    }
    # The same for all seeds: the spread is that of the trainings.
    held_out = {"max_examples": 1000, "drop_remainder": True, "seed": 0}
    unseen = folders[f"{case.records}_held_out"]
    return {
        "task": {
            "encoder": _ENCODER,
            "objectives": {"mlm": None, name: {**case.settings}},
            "train_data": {**data, "input_path": str(folders[case.records])},
            "validation_data": {**data, **held_out, "input_path": str(unseen)},
        },
        "trainer": {
            "train_steps": FLAGS.steps,
            "steps_per_loop": 100,
            "summary_interval": 100,
            "checkpoint_interval": FLAGS.steps,
            "validation_interval": FLAGS.steps,
            "best_checkpoint_export_subdir": "",
            "schedule": {"type": "linear", "peak": 1e-3, "warmup_share": 0.1},
            "optimizer_config": {
                "optimizer": {"type": "adamw", "adamw": {"weight_decay_rate": 0.01}}
            },
        },
        "runtime": {"distribution_strategy": "one_device", "mixed_precision_dtype": dtype},
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
