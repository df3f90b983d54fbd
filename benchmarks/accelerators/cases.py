"""The trainings that are compiled: an experiment, its share of a batch, its synthetic records."""

import dataclasses
import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.shared import run_module
from official_cmlm.common.errors import UserError

# CMLM, appendix C: 64 TPUs.
_CORES = 64
_BERT_ENTRIES = 30522
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".")


@dataclasses.dataclass(frozen=True)
class Case:
    """A training as one accelerator sees it.

    Attributes:
      experiment: name of the experiment.
      cores: number of accelerators that the published batch is divided by.
      remedies: settings that save memory where there are 16 GiB: `remat` and
        `vocabulary_block_size`.
    """

    experiment: str
    cores: int = 1
    remedies: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name in lines of figures, e.g. `english_base`, `bitext_s3`."""
        return self.experiment.removeprefix("cmlm/").replace("/", "_")


_BLOCKS = {"remat": "blocks"}
_BOTH = {**_BLOCKS, "vocabulary_block_size": 8192}
_NO_REMEDY = {"remat": "none", "vocabulary_block_size": 0}
CASES = {
    case.experiment: case
    for case in (
        Case("cmlm/english_base", _CORES, _BLOCKS),
        Case("cmlm/english_large", _CORES, _BLOCKS),
        Case("cmlm/multilingual_base", _CORES, _BOTH),
        Case("bitext/s3", _CORES, _BOTH),
        # DeCLUTR §4.1: "up to four NVIDIA Tesla V100 16 or 32GB GPUs".
        Case("declutr/base", 4),
        # These batches are for one GPU.
        Case("cmlm_cse/bert_base"),
        Case("mirror_bert/sentence_bert"),
    )
}


def case_of(experiment: str) -> Case:
    """Returns the case of an experiment; one that is not listed is compiled with its whole batch.

    Raises:
      UserError: if the registry has no such experiment.
    """
    from experiments import registry

    if experiment not in registry.experiment_files():
        raise UserError(
            f"--experiments: {experiment!r} is not an experiment; see experiments.train"
        )
    return CASES.get(experiment, Case(experiment))


def overrides(
    params: Any, case: Case, folder: Path, examples: int = 0, small: bool = True
) -> dict[str, Any]:
    """Returns fields that differ from the experiment: records, one length, one device's batch.

    Args:
      params: the experiment.
      case: says how many accelerators share the batch, and which settings save memory.
      folder: where records are written, one folder for each field of data.
      examples: examples of a step; 0: the device's share of the published batch.
      small: whether the case's remedies are applied; if not, none is, not even the experiment's.
    """
    remedies = case.remedies if small else _NO_REMEDY
    task: dict[str, Any] = {"init_checkpoint": "", "sts_file": "", "objectives": {}}
    if "remat" in remedies:
        task["encoder"] = {"remat": remedies["remat"]}
    for name, where, data in _training_data(params):
        objective = getattr(params.task.objectives, name).as_dict()
        size, own = examples or data.global_batch_size // case.cores, {}
        values = {
            "input_path": str(folder / where),
            "global_batch_size": size,
            "max_bucket_batch_size": size if data.bucket_boundaries else 0,
            "bucket_boundaries": [data.seq_length] if data.bucket_boundaries else [],
        }
        if where == "task.train_data":
            task["train_data"] = values
        else:
            own["train_data"] = values
        if "vocabulary_block_size" in remedies and "vocabulary_block_size" in objective:
            own["vocabulary_block_size"] = remedies["vocabulary_block_size"]
        task["objectives"][name] = own
    runtime = {"distribution_strategy": "pjrt", "mixed_precision_dtype": "bfloat16"}
    return {"task": task, "runtime": runtime}


def write_records(params: Any, folder: Path) -> None:
    """Writes records of random words for everything that a training reads.

    The vocabulary has as many entries as the encoder, or as BERT's if the records decide that.
    Every document is long enough for any view; the cost of a step does not depend on which words
    are in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    size = params.task.encoder.vocab_size or _BERT_ENTRIES
    words = [f"w{number}" for number in range(size - len(_SPECIAL))]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in (*_SPECIAL, *words)), encoding="utf-8")
    for name, where, data in _training_data(params):
        if (folder / where).exists():
            continue
        # A document must be longer than two packed segments; DeCLUTR's four spans, each of the
        # whole length, need more text.
        length = 6 * data.seq_length
        count = math.ceil(1.5 * data.global_batch_size) + 8
        text = _texts(words[:1000], length, count, data.seq_length)
        if getattr(params.task.objectives, name).record_kind == "pairs":
            file = folder / f"{where}.txt"
            file.write_text("".join(f"{words}\n" for words in text), encoding="utf-8")
            own = ["data_prep.create_pairs", f"--input={file},{file}", "--languages=en,de"]
        else:
            file = folder / f"{where}.jsonl"
            lines = [json.dumps({"text": words}) + "\n" for words in text]
            file.write_text("".join(lines), encoding="utf-8")
            own = ["data_prep.create_documents", f"--input={file}"]
        run_module(
            *(*own, f"--vocab_file={path}", "--lower_case=true"),
            *("--keep_text", f"--output_dir={folder / where}"),
        )


def _training_data(params: Any) -> list[tuple[str, str, Any]]:
    """Returns (objective, name of the field, data config) of all data that a step reads."""
    return [row for row in params.task.list_data() if row[1].endswith("train_data")]


def _texts(words: list[str], length: int, count: int, sentence: int) -> Iterator[str]:
    """Yields `count` texts of `length` words in sentences of a quarter of a sequence or more."""
    rng = random.Random(1)  # noqa: S311 - any words do
    size = max(2, sentence // 4)
    for _ in range(count):
        yield " ".join(
            " ".join(rng.choices(words, k=size)).capitalize() + "." for _ in range(length // size)
        )
