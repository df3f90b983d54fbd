"""A tiny training of `bitext/s3`, as one of several hosts or on one device: a script of a test."""

import json
import math
import os
import signal
import sys

from experiments import registry
from official_cmlm.training import trainer as trainer_module
from official_cmlm.training.progress import TrainingProgress
from official_cmlm.training.run import run
from tests.training.tiny_training import ENCODER

STEPS, INTERVAL = 200, 50
# One bucket: the hosts' steps, which XLA cannot compile, have the shapes of the compiled one.
_DATA = {
    "seq_length": 16,
    "global_batch_size": 16,
    "shuffle_sentences": 60,
    "bucket_boundaries": [16],
}


def _params(documents: str, pairs: str, strategy: str):
    """`bitext/s3` on one layer × 16, with dropout, in chunks of 2 examples, of four streams.

    XLA compiles the step of one device. That of hosts with CPUs it cannot compile; shapes are as
    static.
    """
    task = {
        "init_checkpoint": "",
        "chunk_size": 2,
        "encoder": {
            **ENCODER,
            "vocab_size": 0,
            "max_position_embeddings": 24,
            "dropout_rate": 0.2,
            "remat": "blocks",
        },
        "objectives": {
            "cmlm": {"num_projections": 3, "max_predictions": 4, "vocabulary_block_size": 40},
            "bitext_retrieval": {
                "train_data": {**_DATA, "input_path": pairs, "streams": 4},
                "validation_data": {**_DATA, "input_path": pairs, "bucket_boundaries": []},
            },
        },
        "train_data": {**_DATA, "input_path": documents, "streams": 4},
        "validation_data": {**_DATA, "input_path": documents, "bucket_boundaries": []},
    }
    trainer = {
        "train_steps": STEPS,
        "steps_per_loop": INTERVAL,
        "summary_interval": INTERVAL,
        "checkpoint_interval": INTERVAL,
        "max_to_keep": 3,
    }
    runtime = {"distribution_strategy": strategy, "enable_xla": strategy == "one_device"}
    text = json.dumps({"task": task, "trainer": trainer, "runtime": runtime})
    return registry.load("bitext/s3", params_override=text)


def _kill_at(step: int) -> None:
    """Lets this process kill itself after a loop, before the checkpoint of its last step."""
    on_train = TrainingProgress.on_train

    def at_step(reports: TrainingProgress, output: dict) -> None:
        on_train(reports, output)
        if int(reports._global_step.numpy()) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    TrainingProgress.on_train = at_step


def main() -> None:
    """Args: documents, pairs, folder of the model, at which step the process dies, 0 for never.

    With TF_CONFIG it is one of several hosts.
    """
    documents, pairs, model_dir, step = sys.argv[1:]
    # On a busy machine the first loop takes longer than the time to the first checkpoint.
    trainer_module.FIRST_CHECKPOINT_SECONDS = math.inf
    if int(step):
        _kill_at(int(step))
    strategy = "multi_worker_mirrored" if "TF_CONFIG" in os.environ else "one_device"
    run(_params(documents, pairs, strategy), "train", model_dir)


if __name__ == "__main__":
    main()
