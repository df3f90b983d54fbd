"""Examples a second of the input pipeline: `python -m benchmarks.input`.

First CMLM at the paper's setting, runs of 256 tokens, of which the paper's training needs 4,741
pairs a second of all hosts together. Then every objective in its small experiment. Each measurement
is a process of its own and begins with the second batch, so that start-up is not in it. Blocks are
of 8,192 sentences, so that little is built ahead. Figures are medians over the rounds.
"""

import json
import statistics
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
# Their examples are whole documents.
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


def main(argv: list[str]) -> None:
    """Measures the paper's setting, then every objective."""
    del argv
    records = _write_records(Path(FLAGS.work_dir))
    # The batch of one of 64 cores, in its buckets.
    paper = {"global_batch_size": 32, "max_bucket_batch_size": 32}
    speeds = []
    for number in range(1, FLAGS.rounds + 1):
        found = _side(FLAGS.examples, "cmlm/english_base", "cmlm", records, paper)
        speeds.append(found["examples"] / found["seconds"])
        print(f"round {number}, cmlm/english_base: {found}", flush=True)
    print(f"figure input_pairs_per_second_cmlm {statistics.median(speeds):.0f}", flush=True)
    for objective in FLAGS.objectives:
        _measure(objective, records)


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


def _side(
    examples: int,
    experiment: str,
    objective: str,
    records: Path,
    more: dict[str, int],
) -> dict[str, float]:
    """Returns the figures of one measurement by `input_side`; `more` are settings of the data."""
    data = {"input_path": str(records), "shuffle_sentences": _BLOCK, **more}
    nothing = {"input_path": ""}
    values = {"encoder": {"vocab_size": 0}, "init_checkpoint": "", "validation_data": nothing}
    values["train_data"] = data
    return json.loads(
        shared.run_module(
            "benchmarks.input_side",
            *(f"--experiment={experiment}", f"--objective={objective}"),
            *(f"--examples={examples}", f"--overrides={json.dumps({'task': values})}"),
        )
    )


def _measure(objective: str, records: Path) -> None:
    """Prints the examples a second of one objective."""
    experiment = _OBJECTIVES[objective]
    count = FLAGS.few_examples // (10 if objective in _OF_DOCUMENTS else 1)
    speeds = []
    for number in range(1, FLAGS.rounds + 1):
        found = _side(count, experiment, objective, records, {})
        speeds.append(found["examples"] / found["seconds"])
        print(f"round {number}, {experiment}: {found}", flush=True)
    print(f"figure input_per_second_{objective} {statistics.median(speeds):.0f}", flush=True)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
