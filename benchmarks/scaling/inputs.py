"""CPU time of the input pipeline, measured here."""

import json
import time

import tensorflow as tf

from experiments import registry
from official_cmlm.training.task import SentenceEncoderTask


def real_tokens(batch: dict) -> int:
    """Tokens of both sides of a batch, padding not counted."""
    features = batch["cmlm"]
    return sum(int(tf.reduce_sum(features[name]["input_mask"])) for name in ("first", "second"))


def token_cpu_seconds(dataset: tf.data.Dataset, batches: int = 150) -> float:
    """CPU seconds of the input pipeline a real token, the work of its start included."""
    used, drawn = _cpu_seconds(dataset, batches)
    return used / sum(map(real_tokens, drawn))


def packed_cpu_seconds(records: str, objective: str, pairs: int = 8192) -> float:
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
