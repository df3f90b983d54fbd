"""Training examples of real text as lists of ids, and the batches of `benchmarks.train_step`.

    python -m benchmarks.train_step_examples --text=… --vocab_file=… --output=…

writes JSON: `vocab_size`, `pad`, and `examples`, each a dict of sequences with `ids` and, where
tokens are masked, `positions` and `labels`. They come out of the project's own input pipeline.
"""

import dataclasses
import json
import math
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.shared import run_module
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

FLAGS = flags.FLAGS
SEQ_LENGTH = 256
# Threads of each side.
THREADS = 2
# As in the paper's batches of one length (CMLM §3) and in its baseline's (configs of the same
# names).
MAX_PREDICTIONS = {"cmlm": 80, "mlm": 38, "contrastive": 0}
MASKING_RATES = {"cmlm": 0.3125, "mlm": 0.15, "contrastive": 0.0}
# Sequences of an example that are encoded.
SEQUENCES = {
    "cmlm": ("first", "second_masked"),
    "mlm": ("segment_masked",),
    "contrastive": ("first", "second"),
}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Examples of one step.

    Attributes:
      examples: as read from the file.
      length: tokens that every sequence is padded to; 0: each to its longest of the batch.
    """

    examples: list[dict]
    length: int = 0


def longest(example: dict) -> int:
    """Returns the tokens of an example's longest sequence."""
    return max(len(sequence["ids"]) for sequence in example.values())


def real_tokens(examples: list[dict]) -> int:
    """Counts the tokens of all sequences, without padding."""
    return sum(len(sequence["ids"]) for example in examples for sequence in example.values())


def bucketed(examples: list[dict], buckets: list[tuple[int, int]]) -> list[Batch]:
    """Returns batches as the project's pipeline makes them; incomplete ones are left out.

    Args:
      examples: in any order.
      buckets: (padded length, examples), shortest first, see `DataConfig.buckets`.
    """
    waiting: dict[int, list[dict]] = {length: [] for length, _ in buckets}
    batches = []
    for example in examples:
        length, size = next(b for b in buckets if longest(example) <= b[0])
        waiting[length].append(example)
        if len(waiting[length]) == size:
            batches.append(Batch(waiting[length], length))
            waiting[length] = []
    return batches


def write_batches(path: str | Path, source: dict, batches: list[Batch]) -> None:
    """Writes the batches of all sides; `source` is what this binary wrote."""
    values = {"vocab_size": source["vocab_size"], "pad": source["pad"]}
    values["batches"] = [dataclasses.asdict(batch) for batch in batches]
    Path(path).write_text(json.dumps(values))


def read_batches(path: str | Path) -> tuple[dict, list[Batch]]:
    """Reads (`vocab_size` and `pad`, batches) from a file that `write_batches` wrote."""
    values = json.loads(Path(path).read_text())
    return values, [Batch(**batch) for batch in values.pop("batches")]


def evenly(batches: list[Batch], count: int) -> list[Batch]:
    """Returns `count` of the batches, with the same mixture of lengths; 0 is all."""
    if not count or count >= len(batches):
        return batches
    ordered = sorted(batches, key=lambda batch: batch.length)
    return [ordered[(2 * i + 1) * len(ordered) // (2 * count)] for i in range(count)]


def prediction_slots(objective: str, length: int) -> int:
    """Returns the slots for predictions of a row padded to `length`, as `MaskTokens`."""
    wanted = math.floor(length * MASKING_RATES[objective] + 0.5)
    return min(max(wanted, 1), MAX_PREDICTIONS[objective], length - 2)


def result(batches: list[list[dict]], seconds: float, busy: float, before: float) -> str:
    """Returns the line that a side prints.

    Args:
      batches: the examples of each step.
      seconds: that all steps took.
      busy: the seconds of all cores in them.
      before: `peak_mib` before the first step.
    """
    done = [example for batch in batches for example in batch]
    figures = {
        "per_second": len(done) / seconds,
        "tokens_per_second": real_tokens(done) / seconds,
        "per_core_second": len(done) / busy,
        "peak_mib": peak_mib(),
        "step_mib": peak_mib() - before,
    }
    return json.dumps(figures)


def define_flags() -> None:
    """Defines the text, and how many examples are made of it."""
    flags.DEFINE_string("text", None, "Files to read, with commas. Required.")
    flags.DEFINE_string("vocab_file", None, "Vocabulary. Required.")
    flags.DEFINE_string("output", None, "Folder for one JSON file an objective. Required.")
    flags.DEFINE_list("objectives", list(SEQUENCES), "Objectives to write examples of.")
    flags.DEFINE_integer("examples", 4096, "Examples of each.", lower_bound=1)
    cli.required("text", "vocab_file", "output")


def main(argv: list[str]) -> None:
    """Writes the examples of each objective."""
    del argv
    cli.quiet_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        run_module(
            *("data_prep.create_documents", f"--input={FLAGS.text}", "--documents_by=file"),
            *(f"--vocab_file={FLAGS.vocab_file}", "--lower_case=true", f"--output_dir={folder}"),
        )
        for objective in FLAGS.objectives:
            found = _examples(folder, objective, FLAGS.examples)
            Path(FLAGS.output, f"{objective}.json").write_text(json.dumps(found))


def _examples(records: str, objective: str, count: int) -> dict:
    from official_cmlm.configs.data import DataConfig
    from official_cmlm.inputs.pipeline import build_dataset
    from official_cmlm.inputs.plan import Plan
    from official_cmlm.inputs.views import RecordFacts
    from official_cmlm.objectives import objectives
    from official_cmlm.records.manifest import load_manifest, load_records_vocabulary

    manifest = load_manifest(records)
    vocabulary = load_records_vocabulary(records, manifest)
    data = DataConfig(
        input_path=records, is_training=False, global_batch_size=64, max_examples=count
    )
    kind = objectives()[objective]
    config = kind.config_class()
    if objective != "contrastive":
        config = config.replace(max_predictions=MAX_PREDICTIONS[objective])
    facts = RecordFacts(vocabulary, manifest.row_size, tuple(manifest.languages))
    view = config.view(data, facts)
    batches = build_dataset(Plan.of(data, manifest, view), config.augments(facts.special))
    examples = [
        {name: _row(batch[name], row) for name in SEQUENCES[objective]}
        for batch in batches.as_numpy_iterator()
        for row in range(len(batch["key"]))
    ]
    special = vocabulary.special_ids
    return {
        "vocab_size": len(vocabulary),
        "pad": special["pad"],
        "examples": examples,
    }


def _row(features: dict, row: int) -> dict[str, list[int]]:
    real = features["input_mask"][row] > 0
    found = {"ids": features["input_word_ids"][row][real].tolist()}
    if "masked_lm_weights" in features:
        used = features["masked_lm_weights"][row] > 0
        found["positions"] = features["masked_lm_positions"][row][used].tolist()
        found["labels"] = features["masked_lm_ids"][row][used].tolist()
    return found


if __name__ == "__main__":
    define_flags()
    cli.run(main)
