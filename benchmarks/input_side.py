"""One measurement of an input pipeline after its first batch, for `benchmarks.input`; prints JSON.

It is a process of its own, so that the CPU time is its alone.
"""

import json
import time

from absl import flags

from official_cmlm import cli

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the pipeline, and how many examples are taken."""
    flags.DEFINE_string("experiment", "cmlm/english_base", "Experiment whose inputs are built.")
    flags.DEFINE_string("overrides", "{}", "Settings that differ from its own, as JSON.")
    flags.DEFINE_string("objective", "cmlm", "The objective whose batches are counted.")
    flags.DEFINE_integer("examples", 20000, "Examples to take, at least.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Measures and prints; `first_seconds` is the time before the first batch."""
    del argv
    cli.quiet_tensorflow()
    from official_cmlm.inputs.pipeline import Replicas, build_dataset
    from official_cmlm.inputs.plan import Plan

    data, manifest, view, augments = _inputs()
    began = time.perf_counter()
    dataset = build_dataset(Plan.of(data, manifest, view), augments, Replicas(1, 0, 1))
    batches, examples, steps = iter(dataset), 0, 0
    next(batches)
    first, used = time.perf_counter(), time.process_time()
    for batch in batches:
        examples += int(batch["key"].shape[0])
        steps += 1
        if examples >= FLAGS.examples:
            break
    found = {
        "examples": examples,
        "steps": steps,
        "first_seconds": first - began,
        "seconds": time.perf_counter() - first,
        "cpu_seconds": time.process_time() - used,
    }
    print(json.dumps(found))


def _inputs() -> tuple:
    """Returns (data, manifest, view, augments) of the objective."""
    from experiments import registry
    from official_cmlm.training.task import SentenceEncoderTask

    params = registry.load(FLAGS.experiment, params_override=FLAGS.overrides)
    task = SentenceEncoderTask(params.task)
    for group in task.train_groups:
        if FLAGS.objective in group.objectives:
            return group.data, task.manifest(group.data), group.view, group.augments
    raise ValueError(f"{FLAGS.experiment} has no {FLAGS.objective}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
