"""A training of seconds, for what starts it in processes of its own."""

import json
import sys

from experiments import registry

_DATA = {
    "seq_length": 32,
    "bucket_boundaries": [12, 20, 32],
    "global_batch_size": 8,
    "shuffle_sentences": 60,
}


def params(records: str, checkpoint_interval: int = 2, steps: int = 80, **runtime):
    """CMLM with dropout on one layer × 16, a checkpoint every second step by default."""
    task = {
        "encoder": {
            "hidden_size": 16,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "num_layers": 1,
            "max_position_embeddings": 40,
            "dropout_rate": 0.2,
        },
        "objectives": {"cmlm": {"num_projections": 3}, "quick_thought": None},
        "train_data": {"input_path": records, **_DATA},
    }
    trainer = {
        "train_steps": steps,
        "steps_per_loop": 1,
        "summary_interval": 100,
        "checkpoint_interval": checkpoint_interval,
        "max_to_keep": 3,
    }
    text = json.dumps({"task": task, "trainer": trainer, "runtime": runtime})
    return registry.load("demo", params_override=text)


if __name__ == "__main__":
    # Args: records, model directory, steps. One of several workers, as TF_CONFIG says.
    from experiments.training import run

    _records, _model_dir, _steps = sys.argv[1:]
    several = {"distribution_strategy": "multi_worker_mirrored"}
    run(params(_records, 4, int(_steps), **several), "train", _model_dir)
