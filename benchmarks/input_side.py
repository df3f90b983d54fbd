"""One measurement of an input pipeline after its first batch, for `benchmarks.input`; prints JSON.

A process of its own, so that its CPU time and the bytes that it reads are its alone.
"""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli

FLAGS = flags.FLAGS
STAGES = ("read", "view", "group", "serial", "whole")


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("experiment", "cmlm/english_base", "Experiment whose inputs are built.")
    flags.DEFINE_string("overrides", "{}", "Its settings, as JSON.")
    flags.DEFINE_string("objective", "cmlm", "The objective whose batches are counted.")
    flags.DEFINE_enum(
        "stage",
        "whole",
        STAGES,
        "Up to where: reading, the view, batches not padded yet, all; or"
        " all of it, example by example on one thread.",
    )
    flags.DEFINE_integer("examples", 20000, "Examples to take, at least.", lower_bound=1)
    flags.DEFINE_integer("hosts", 1, "Hosts, of one replica each.", lower_bound=1)
    flags.DEFINE_integer("host", 0, "The host that is measured.", lower_bound=0)


def main(argv: list[str]) -> None:
    """Measures and prints; values of the time before the first batch are named `first_…`."""
    del argv
    cli.quiet_tensorflow()
    from official_cmlm.inputs.pipeline import Replicas, build_dataset
    from official_cmlm.inputs.plan import Plan

    data, manifest, view, augments = _inputs()
    plan = Plan.of(data, manifest, view, FLAGS.hosts)
    alone = Plan.of(data.replace(streams=1), manifest, view)
    replicas = Replicas(FLAGS.hosts, FLAGS.host, 1)
    makers: dict[str, Callable[[], Any]] = {
        **parts(alone),
        "serial": lambda: serial_dataset(alone, augments),
        "whole": lambda: build_dataset(plan, augments, replicas),
    }
    marks = [_mark()]
    examples = steps = 0
    for element in makers[FLAGS.stage]():
        if len(marks) == 1:
            # Building the pipeline, a schedule's sample and the first blocks are told apart.
            marks.append(_mark())
            continue
        examples += rows(element)
        steps += 1
        if examples * FLAGS.hosts >= FLAGS.examples:
            break
    marks.append(_mark())
    (first, rest) = ([b - a for a, b in zip(*each)] for each in itertools.pairwise(marks))
    found = {"examples": examples, "steps": steps}
    for name, start, value in zip(("seconds", "cpu_seconds", "MB_read"), first, rest):
        found |= {name: round(value, 3), f"first_{name}": round(start, 3)}
    print(json.dumps(found))


def _inputs() -> tuple:
    from experiments import registry
    from official_cmlm.training.task import SentenceEncoderTask

    params = registry.load(FLAGS.experiment, params_override=FLAGS.overrides)
    task = SentenceEncoderTask(params.task)
    for group in task.train_groups:
        if FLAGS.objective in group.objectives:
            return group.data, task.manifest(group.data), group.view, group.augments
    raise ValueError(f"{FLAGS.experiment} has no {FLAGS.objective}")


def rows(element: Any) -> int:
    """Examples of a batch or block; of a block of records that is not parsed yet, records."""
    if isinstance(element, dict):
        return int(element["key"].shape[0])
    *_, last = element
    return int((last["key"] if isinstance(last, dict) else last).shape[0])


def parts(plan: Any) -> dict[str, Callable[[], Any]]:
    """Makers of the pipeline's first stages, each with those before it, without streams."""
    import tensorflow as tf

    from official_cmlm.inputs.batching import training_batches
    from official_cmlm.inputs.data_position import DataPosition
    from official_cmlm.inputs.reader import Blocks, Reader

    blocks = Blocks(plan.config, plan.manifest, plan.repetitions)
    return {
        "read": lambda: tf.data.Dataset.counter().flat_map(blocks.epoch),
        "view": lambda: Reader(plan).from_start(DataPosition()),
        "group": lambda: training_batches(plan),
    }


def serial_dataset(plan: Any, augments: Any) -> Any:
    """The batches of `build_dataset` on one thread, grouped by tf.data example by example.

    Without `position`, and in one epoch without end where there are no buckets.
    """
    import tensorflow as tf

    from official_cmlm.inputs.data_position import DataPosition
    from official_cmlm.inputs.pipeline import features_of
    from official_cmlm.inputs.reader import Reader

    padding, data, view = -1, plan.config, plan.view
    blocks = Reader(plan).from_start(DataPosition())
    singles = blocks.flat_map(lambda _, each: tf.data.Dataset.from_tensor_slices(each))
    # Rows of a ragged tensor arrive as ragged tensors of rank 0; this makes them dense.
    singles = singles.map(lambda example: example)
    values = {
        name: tf.constant(padding if name in view.sequences else 0, spec.dtype)
        for name, spec in singles.element_spec.items()
    }
    buckets = data.buckets()
    if data.bucket_boundaries:
        batches = singles.bucket_by_sequence_length(
            lambda e: tf.reduce_max(tf.stack([tf.shape(e[name])[0] for name in view.sequences])),
            # tf.data takes the first boundary above an element's length, and pads to one less.
            bucket_boundaries=[length + 1 for length, _ in buckets],
            bucket_batch_sizes=[size for _, size in buckets] + [1],
            pad_to_bucket_boundary=True,
            padding_values=values,
        )
    else:
        batches = singles.padded_batch(buckets[0][1], None, values)
        batches = batches.map(lambda batch: _equally_long(batch, view, padding))
    batches = batches.map(lambda batch: features_of(batch, view, augments, None))
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.threading.private_threadpool_size = 1
    return batches.with_options(options)


def _equally_long(batch: dict, view: Any, padding: int) -> dict:
    import tensorflow as tf

    batch = dict(batch)
    for names in view.encoded_together:
        longest = tf.reduce_max(tf.stack([tf.shape(batch[name])[1] for name in names]))
        for name in names:
            missing = [[0, 0], [0, longest - tf.shape(batch[name])[1]]]
            batch[name] = tf.pad(batch[name], missing, constant_values=padding)
    return batch


def _mark() -> tuple[float, float, float]:
    """Seconds, CPU seconds of this process, and megabytes that it has read."""
    return time.perf_counter(), time.process_time(), _bytes_read() / 1e6


def _bytes_read() -> int:
    """Bytes that this process has read from files."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main)
