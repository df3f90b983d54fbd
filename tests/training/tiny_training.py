"""Trainings of seconds: one that all tests share, and what tests start for themselves."""

import json
import shutil
import sys
from unittest import mock

import numpy as np
import pytest

from experiments import registry
from official_cmlm.common.errors import Stopped
from official_cmlm.objectives.mlm import MlmConfig
from tests.conftest import WORDS

# YAML keys of an encoder of one layer × 16.
ENCODER = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "num_layers": 1,
    "max_position_embeddings": 40,
}
_DATA = {
    "seq_length": 32,
    "bucket_boundaries": [16, 32],
    "global_batch_size": 8,
    "max_bucket_batch_size": 16,
}
TINY = {
    "encoder": ENCODER,
    "train_data": _DATA,
    "validation_data": {**_DATA, "max_examples": 16},
}
# Files beside the model directory of the fixture `trained`.
STS_NAME, FIRST_NAME = "sts-dev.csv", "first.safetensors"
EVERY_STEP = {"steps_per_loop": 1, "summary_interval": 1, "checkpoint_interval": 1}


def tiny_run(records_dir, steps=4, only=None, **trainer):
    """Returns the demo's experiment at a tiny size; tracing both objectives is most of a run."""
    values = json.loads(json.dumps(TINY))
    if only:
        values["objectives"] = {n: None for n in ("cmlm", "quick_thought") if n != only}
    for split in ("train_data", "validation_data"):
        values[split]["input_path"] = str(records_dir)
    trainer = {
        "train_steps": steps,
        "steps_per_loop": 2,
        "summary_interval": 2,
        "checkpoint_interval": 2,
        "validation_interval": steps,
    } | trainer
    runtime = {"mixed_precision_dtype": None}
    text = json.dumps({"task": values, "trainer": trainer, "runtime": runtime})
    return registry.load("demo", params_override=text)


def run_for_all(records_dir, folder, steps=2):
    """Returns the experiment of the fixture `trained`, whose `folder` holds the scored pairs."""
    best = {"export_subdir": "best", "eval_metric": "sts_spearman", "metric_comp": "higher"}
    best = {f"best_checkpoint_{name}": value for name, value in best.items()}
    params = tiny_run(records_dir, steps, validation_interval=1, **EVERY_STEP, **best)
    return params.replace(task={"sts_file": str(folder / STS_NAME)})


def write_sts(path) -> None:
    """Writes random scored pairs in STS-B's columns."""
    rng = np.random.default_rng(0)
    pairs = [[" ".join(rng.choice(WORDS, 5)) for _ in range(2)] for _ in range(20)]
    lines = [f"g\tf\ty\t{i}\t{rng.uniform(0, 5):.2f}\t{a}\t{b}" for i, (a, b) in enumerate(pairs)]
    path.write_text("\n".join(lines) + "\n")


def train_for_all(records_dir, folder) -> None:
    """Writes the files of the fixture `trained` into a new folder."""
    from official_cmlm.training import run as training
    from tests.training.quick_runs import quick_runs

    folder.mkdir()
    write_sts(folder / STS_NAME)

    class Recorder(training.Controller):
        def __init__(self, *, after_saving, **options):
            def keep_first(manager):
                after_saving(manager)
                if not (folder / FIRST_NAME).exists():
                    shutil.copy(folder / "model" / "weights.safetensors", folder / FIRST_NAME)

            super().__init__(after_saving=keep_first, **options)

    with quick_runs(), mock.patch.object(training, "Controller", Recorder):
        training.run(run_for_all(records_dir, folder), "train_and_eval", str(folder / "model"))


def params(
    records: str,
    checkpoint_interval: int = 2,
    steps: int = 80,
    second: str | None = None,
    steps_per_loop: int = 1,
    optimizer: dict | None = None,
    **runtime,
):
    """Returns CMLM with dropout and a checkpoint every second step.

    `optimizer` overrides settings of the optimizer. With `second`, MLM on these other records too,
    in batches of another size.
    """
    made = tiny_run(
        records,
        steps,
        "cmlm",
        steps_per_loop=steps_per_loop,
        summary_interval=100 * steps_per_loop,
        checkpoint_interval=checkpoint_interval,
        max_to_keep=3,
        **({"optimizer_config": optimizer} if optimizer else {}),
    )
    task = {
        "encoder": {"dropout_rate": 0.2},
        "objectives": {"cmlm": {"num_projections": 3}},
        "train_data": {
            "bucket_boundaries": [12, 20, 32],
            "max_bucket_batch_size": 0,
            "shuffle_sentences": 60,
        },
        "validation_data": {"input_path": ""},
    }
    made = made.replace(task=task, runtime=runtime)
    if second:
        own = made.task.train_data.replace(input_path=second, global_batch_size=12, seed=4)
        made.task.objectives.mlm = MlmConfig(train_data=own)
    return made


def main() -> None:
    """Runs one of several workers, as TF_CONFIG says.

    Args: records, model directory, steps, steps per loop, and after which piece of the loop this
    worker is sent SIGTERM, 0 for never.
    """
    from official_cmlm.training.non_finite import FiniteGuard
    from official_cmlm.training.run import run
    from tests.training.quick_runs import ask_to_stop, at_call

    records, model_dir, *numbers = sys.argv[1:]
    steps, steps_per_loop, piece = map(int, numbers)
    if piece:
        at_call(pytest.MonkeyPatch(), FiniteGuard, "failure", piece, ask_to_stop)
    several = {"distribution_strategy": "multi_worker_mirrored"}
    run(params(records, 4, steps, steps_per_loop=steps_per_loop, **several), "train", model_dir)


if __name__ == "__main__":
    try:
        main()
    except Stopped as stop:
        print(stop)
