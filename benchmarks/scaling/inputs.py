"""CPU time of the input pipeline, measured here."""

import json
import time

import tensorflow as tf

from benchmarks.input_side import parts, rows
from experiments import registry
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.reader import Blocks, Reader
from official_cmlm.training.task import SentenceEncoderTask


def real_tokens(batch: dict) -> int:
    """Tokens of both sides of a batch, padding not counted."""
    features = batch["cmlm"]
    return sum(int(tf.reduce_sum(features[name]["input_mask"])) for name in ("first", "second"))


def token_cpu_seconds(dataset: tf.data.Dataset, batches: int = 150) -> float:
    """CPU seconds of the input pipeline a real token, the work of its start included."""
    used, drawn = _cpu_seconds(dataset, batches)
    return used / sum(map(real_tokens, drawn))


def packed_cpu_seconds(records: str) -> tuple[float, float]:
    """CPU seconds a pair of the paper's own inputs: packed to 256 tokens, in its buckets.

    Returns:
      Of all stages; and of those that one thread of a stream does, reading and grouping.
    """
    batch = 64
    values = {
        "encoder": {"vocab_size": 0},
        "train_data": {
            "input_path": records,
            "global_batch_size": batch,
            "max_bucket_batch_size": batch,
        },
        "validation_data": {"input_path": ""},
    }
    params = registry.load("cmlm/english_base", params_override=json.dumps({"task": values}))
    task = SentenceEncoderTask(params.task)
    dataset = task.build_inputs(params.task.train_data).map(lambda groups: groups["cmlm"])
    (group,) = task.train_groups
    plan = Plan.of(group.data.replace(streams=1), task.manifest(group.data), group.view)
    epoch = tf.constant(0, tf.int64)
    read, _ = _cpu_seconds_of(Blocks(plan.config, plan.manifest, plan.repetitions).epoch(epoch))
    viewed, pairs = _cpu_seconds_of(Reader(plan).epoch(epoch))
    grouped, _ = _cpu_seconds_of(parts(plan)["group"](), pairs)
    whole, _ = _cpu_seconds_of(dataset, pairs)
    return whole / pairs, (read + max(0.0, grouped - viewed)) / pairs


def _cpu_seconds_of(dataset: tf.data.Dataset, most: int | None = None) -> tuple[float, int]:
    """CPU seconds of this process for a dataset, or for its first rows, and how many these are."""
    began, count = time.process_time(), 0
    for element in dataset:
        count += rows(element)
        if most and count >= most:
            break
    return time.process_time() - began, count


def _cpu_seconds(dataset: tf.data.Dataset, batches: int) -> tuple[float, list[dict]]:
    """CPU seconds of this process for a dataset's first batches, and these."""
    began = time.process_time()
    iterator = iter(dataset)
    drawn = [next(iterator) for _ in range(batches)]
    return time.process_time() - began, drawn
