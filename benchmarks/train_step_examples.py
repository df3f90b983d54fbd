"""Training examples of real text as lists of ids, and the batches of `benchmarks.train_step`."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from benchmarks.shared import run_module
from official_cmlm import cli
from official_cmlm.common.processor import peak_mib

SEQ_LENGTH = 256
# Threads of each side.
THREADS = 2
# CMLM's values are those of CMLM §3; MLM's are those of experiments/mlm/english_base.yaml.
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
      examples: see `examples_of`.
      length: tokens that every sequence is padded to; 0: the longest of its kind in the batch.
    """

    examples: list[dict]
    length: int = 0


@dataclasses.dataclass(frozen=True)
class Examples:
    """Batches of an objective, and the size and the padding of their vocabulary."""

    objective: str
    vocab_size: int
    pad: int
    batches: list[Batch]


def longest(example: dict) -> int:
    """Returns the tokens of an example's longest sequence."""
    return max(len(sequence["ids"]) for sequence in example.values())


def real_tokens(examples: list[dict]) -> int:
    """Counts the tokens of all sequences, without padding."""
    return sum(len(sequence["ids"]) for example in examples for sequence in example.values())


def fill_buckets(examples: list[dict], buckets: list[tuple[int, int]]) -> list[Batch]:
    """Returns batches as the project's pipeline makes them; incomplete ones are left out.

    Args:
      examples: the examples, in any order.
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


def choose_evenly(batches: list[Batch], count: int) -> list[Batch]:
    """Returns `count` of the batches, with the same mixture of lengths; 0 is all."""
    if not count or count >= len(batches):
        return batches
    ordered = sorted(batches, key=lambda batch: batch.length)
    return [ordered[(2 * i + 1) * len(ordered) // (2 * count)] for i in range(count)]


def prediction_slots(objective: str, length: int) -> int:
    """Returns the prediction slots of a row padded to `length`, as `MaskTokens` has them."""
    count = math.floor(length * MASKING_RATES[objective] + 0.5)
    return min(max(count, 1), MAX_PREDICTIONS[objective], length - 2)


def measure(step: Callable[[Any], Any], batches: list[Batch], inputs: list, before: float) -> dict:
    """Trains on all batches once.

    Args:
      step: trains on a batch, and returns its loss.
      batches: the batches.
      inputs: the batches in the form that `step` takes.
      before: `peak_mib` before the first step.

    Returns:
      `per_second` (examples), `tokens_per_second` (without padding), `per_core_second` (examples a
      second that a core was busy), `peak_mib` of the process, and `step_mib`, the part of the peak
      that the steps added.
    """
    began, busy = time.perf_counter(), time.process_time()
    _ = [float(loss) for loss in [step(batch) for batch in inputs]]
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    examples = [example for batch in batches for example in batch.examples]
    return {
        "per_second": len(examples) / seconds,
        "tokens_per_second": real_tokens(examples) / seconds,
        "per_core_second": len(examples) / busy,
        "peak_mib": peak_mib(),
        "step_mib": peak_mib() - before,
    }


def examples_of(
    text: list[str], vocab_file: str, folder: str, objectives: list[str], count: int
) -> dict[str, tuple[int, int, list[dict]]]:
    """Returns the size of the vocabulary, the padding and examples, by objective.

    An example is a dict of sequences with `ids` and, where tokens are masked, `positions` and
    `labels`. They come out of the project's own input pipeline.
    """
    cli.quiet_tensorflow()
    from official_cmlm.configs.data import DataConfig
    from official_cmlm.inputs.pipeline import build_dataset
    from official_cmlm.inputs.plan import Plan
    from official_cmlm.inputs.views import RecordFacts
    from official_cmlm.objectives import objectives as kinds
    from official_cmlm.records.manifest import load_manifest, load_records_vocabulary

    records = f"{folder}/records"
    run_module(
        *("data_prep.create_documents", f"--input={','.join(text)}", "--documents_by=file"),
        *(f"--vocab_file={vocab_file}", "--lower_case=true", f"--output_dir={records}"),
    )
    manifest = load_manifest(records)
    vocabulary = load_records_vocabulary(records, manifest)
    facts = RecordFacts(vocabulary, manifest.row_size, tuple(manifest.languages))
    data = DataConfig(
        input_path=records, is_training=False, global_batch_size=64, max_examples=count
    )
    results = {}
    for objective in objectives:
        config = kinds()[objective].config_class()
        if objective != "contrastive":
            config = config.replace(max_predictions=MAX_PREDICTIONS[objective])
        plan = Plan.of(data, manifest, config.view(data, facts))
        batches = build_dataset(plan, config.augments(facts.special)).as_numpy_iterator()
        examples = [
            {name: _row(batch[name], row) for name in SEQUENCES[objective]}
            for batch in batches
            for row in range(len(batch["key"]))
        ]
        results[objective] = len(vocabulary), vocabulary.special_ids["pad"], examples
    return results


def _row(features: dict, row: int) -> dict[str, list[int]]:
    real = features["input_mask"][row] > 0
    results = {"ids": features["input_word_ids"][row][real].tolist()}
    if "masked_lm_weights" in features:
        used = features["masked_lm_weights"][row] > 0
        results["positions"] = features["masked_lm_positions"][row][used].tolist()
        results["labels"] = features["masked_lm_ids"][row][used].tolist()
    return results
