"""Examples a second of the input pipeline: `python -m benchmarks.input`.

Measures first CMLM at the paper's setting, runs of 256 tokens, of which the paper's training needs
4,741 pairs a second from all hosts together; then every objective in its small experiment. Each
measurement is a process of its own and begins with the second batch, so that it does not include
the start-up. Blocks have 8,192 sentences, so that few batches are built ahead. Figures are medians
over the rounds.
"""

import json
import statistics
import time
from pathlib import Path

from absl import flags

from benchmarks import shared
from official_cmlm import cli

FLAGS = flags.FLAGS
# Objective -> experiment.
_OBJECTIVES = {
    "cmlm": "cmlm/tiny",
    "mlm": "mlm/tiny",
    "nsp": "nsp/tiny",
    "quick_thought": "quick_thought/tiny",
    "contrastive": "mirror_bert/tiny",
    "cmlm_cse": "cmlm_cse/tiny",
    "diff_cse": "diff_cse/tiny",
    "declutr": "declutr/tiny",
}
# Objectives whose examples are whole documents.
_OF_DOCUMENTS = ("declutr",)
# Sentences of a block.
_BLOCK = 8192


def define_flags() -> None:
    """Defines the objectives, and how many examples are taken."""
    shared.define_text_flags()
    flags.DEFINE_string("work_dir", "work/input", "Folder for records, which are kept.")
    flags.DEFINE_integer("rounds", 3, "Alternating rounds.", lower_bound=1)
    flags.DEFINE_integer("examples", 100_000, "Pairs of the paper's setting.", lower_bound=1)
    flags.DEFINE_integer(
        "few_examples",
        400_000,
        "Examples of each objective; of whole documents a tenth. tf.data finds the number of its"
        " threads within seconds, so fewer say little.",
        lower_bound=10,
    )
    flags.DEFINE_list("objectives", list(_OBJECTIVES), "Objectives to compare.")


def main() -> None:
    """Measures the paper's setting, then every objective."""
    records = _write_records(Path(FLAGS.work_dir))
    # The share of one of 64 cores; no bucket has a larger batch.
    paper = {"global_batch_size": 32, "max_bucket_batch_size": 32}
    _measure("pairs_per_second_cmlm", "cmlm", "cmlm/english_base", FLAGS.examples, records, paper)
    for objective in FLAGS.objectives:
        count = FLAGS.few_examples // (10 if objective in _OF_DOCUMENTS else 1)
        experiment = _OBJECTIVES[objective]
        _measure(f"per_second_{objective}", objective, experiment, count, records, {})


def _write_records(folder: Path) -> Path:
    """Writes records of documents with their text, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    records = folder / "records"
    if not (records / "dataset.json").exists():
        text = shared.text_files(folder)
        shared.run_module(
            *("data_prep.create_documents", f"--input={','.join(text)}", "--documents_by=file"),
            *(f"--vocab_file={shared.vocabulary_file(folder, text)}", "--lower_case=true"),
            *("--keep_text", f"--output_dir={records}"),
        )
    return records


def _measure(
    figure: str,
    objective: str,
    experiment: str,
    examples: int,
    records: Path,
    more: dict[str, int],
) -> None:
    """Prints the examples a second of one objective; `more` are settings of the data."""
    data = {"input_path": str(records), "shuffle_sentences": _BLOCK, **more}
    values = {"encoder": {"vocab_size": 0}, "init_checkpoint": "", "train_data": data}
    overrides = json.dumps({"task": {**values, "validation_data": {"input_path": ""}}})

    def side() -> dict[str, float]:
        return shared.in_new_process(measure_pipeline, experiment, overrides, objective, examples)

    (results,) = shared.in_turns(range(1, FLAGS.rounds + 1), {experiment: side}).values()
    speed = statistics.median(figures["examples"] / figures["seconds"] for figures in results)
    print(f"figure input_{figure} {speed:.0f}", flush=True)


def measure_pipeline(
    experiment: str, overrides: str, objective: str, count: int
) -> dict[str, float]:
    """Measures an experiment's input pipeline in this process, after its first batch.

    Args:
      experiment: name of the experiment.
      overrides: settings that differ from its own, as JSON.
      objective: name of the objective whose batches are counted.
      count: number of examples to take, at least.
    """
    cli.quiet_tensorflow()
    from experiments import registry
    from official_cmlm.inputs.pipeline import Replicas, build_dataset
    from official_cmlm.inputs.plan import Plan
    from official_cmlm.training.task import SentenceEncoderTask

    params = registry.load(experiment, params_override=overrides)
    task = SentenceEncoderTask(params.task)
    group = next(group for group in task.train_groups if objective in group.objectives)
    plan = Plan.of(group.data, task.manifest(group.data), group.view)
    began = time.perf_counter()
    batches = iter(build_dataset(plan, group.augments, Replicas(1, 0, 1)))
    next(batches)
    first, used, examples = time.perf_counter(), time.process_time(), 0
    while examples < count:
        examples += int(next(batches)["key"].shape[0])
    return {
        "examples": examples,
        "first_seconds": first - began,
        "seconds": time.perf_counter() - first,
        "cpu_seconds": time.process_time() - used,
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
