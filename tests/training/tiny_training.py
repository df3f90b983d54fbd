"""A training of seconds, for what starts it in processes of its own."""

import json
import os
import signal
import sys

from experiments import registry
from official_cmlm.common.errors import Stopped
from tests.training.helpers import ENCODER

_DATA = {
    "seq_length": 32,
    "bucket_boundaries": [12, 20, 32],
    "global_batch_size": 8,
    "shuffle_sentences": 60,
}


def params(
    records: str,
    checkpoint_interval: int = 2,
    steps: int = 80,
    second: str | None = None,
    steps_per_loop: int = 1,
    optimizer: dict | None = None,
    **runtime,
):
    """Returns CMLM with dropout on one layer × 16, with a checkpoint every second step.

    `optimizer` overrides settings of the optimizer. With `second`, MLM on these other records too,
    in batches of another size.
    """
    task = {
        "encoder": {**ENCODER, "dropout_rate": 0.2},
        "objectives": {"cmlm": {"num_projections": 3}, "quick_thought": None},
        "train_data": {"input_path": records, **_DATA},
    }
    if second:
        own = {"input_path": second, **_DATA, "global_batch_size": 12, "seed": 4}
        task["objectives"]["mlm"] = {"train_data": own}
    trainer = {
        "train_steps": steps,
        "steps_per_loop": steps_per_loop,
        "summary_interval": 100 * steps_per_loop,
        "checkpoint_interval": checkpoint_interval,
        "max_to_keep": 3,
    }
    if optimizer:
        trainer["optimizer_config"] = optimizer
    text = json.dumps(
        {"task": task, "trainer": trainer, "runtime": {"mixed_precision_dtype": None, **runtime}}
    )
    return registry.load("demo", params_override=text)


def _signal_at(piece: int) -> None:
    """Lets this process ask itself to stop after a piece of its loop."""
    from official_cmlm.training.non_finite import FiniteGuard

    original, calls = FiniteGuard.failure, []

    def failure(guard: FiniteGuard) -> object:
        calls.append(guard)
        if len(calls) == piece:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(guard)

    FiniteGuard.failure = failure


def main() -> None:
    """Runs one of several workers, as TF_CONFIG says.

    Args: records, model directory, steps, steps per loop, and after which piece of the loop this
    worker is sent SIGTERM, 0 for never.
    """
    from official_cmlm.training.run import run

    records, model_dir, *numbers = sys.argv[1:]
    steps, steps_per_loop, piece = map(int, numbers)
    if piece:
        _signal_at(piece)
    several = {"distribution_strategy": "multi_worker_mirrored"}
    run(params(records, 4, steps, steps_per_loop=steps_per_loop, **several), "train", model_dir)


if __name__ == "__main__":
    try:
        main()
    except Stopped as stop:
        print(stop)
