"""The trainings that are compiled: an experiment, its share of a batch, its synthetic records."""

import dataclasses
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError

# CMLM, appendix C: 64 TPUs.
_CORES = 64
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".")
# A tiny step's encoder, and its longest sequence.
_TINY = {
    "num_layers": 1,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 300,
}
_TINY_LENGTH, _TINY_BATCH = 16, 4
# Of networks beside the encoder, and of spans, where a tiny encoder has less.
_TINY_OBJECTIVE = {
    "lexical_layers": 1,
    "fusion_layers": 1,
    "num_projections": 3,
    "max_predictions": 5,
    "min_span_length": 4,
    "max_span_length": 16,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A training as one accelerator sees it.

    Attributes:
      experiment: its name.
      cores: accelerators that the published batch is divided by.
      remedies: what saves memory there, see `overrides`.
    """

    experiment: str
    cores: int = 1
    remedies: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """For lines of figures, e.g. `english_base`, `bitext_s3`."""
        return self.experiment.removeprefix("cmlm/").replace("/", "_")


_BLOCKS = {"remat": "blocks"}
_BOTH = {**_BLOCKS, "vocabulary_block_size": 8192}
CASES = {
    case.experiment: case
    for case in (
        Case("cmlm/english_base", _CORES, _BLOCKS),
        Case("cmlm/english_large", _CORES, _BLOCKS),
        Case("cmlm/multilingual_base", _CORES, _BOTH),
        Case("bitext/s3", _CORES, _BOTH),
        # DeCLUTR §4.1: "up to four NVIDIA Tesla V100 16 or 32GB GPUs".
        Case("declutr/base", 4),
        # Batches of one GPU.
        Case("cmlm_cse/bert_base"),
        Case("mirror_bert/sentence_bert"),
    )
}


def case_of(experiment: str) -> Case:
    """The case of an experiment; one that is not listed is compiled with its whole batch.

    Raises:
      UserError: if the experiment is none of the registry's.
    """
    from experiments import registry

    if experiment not in registry.experiment_files():
        raise UserError(f"--experiments: {experiment!r} is no experiment; see experiments.train")
    return CASES.get(experiment, Case(experiment))


def overrides(
    params: Any, case: Case, folder: Path, tiny: bool, batch: int, remedies: Mapping[str, Any]
) -> dict[str, Any]:
    """What differs from the experiment: its records, one length, one accelerator's batch.

    Args:
      params: the experiment.
      case: says by how many accelerators its batch is divided.
      folder: where records are written, one folder for each field of data.
      tiny: whether to shrink everything, for a test.
      batch: examples of a batch; 0: the published ones.
      remedies: `remat`, `vocabulary_block_size` and `dtype` to set, each optional.
    """
    task: dict[str, Any] = {"init_checkpoint": "", "sts_file": "", "objectives": {}}
    task["encoder"] = dict(_TINY) if tiny else {}
    if "remat" in remedies:
        task["encoder"]["remat"] = remedies["remat"]
    for name, where, data in _training_data(params):
        objective = getattr(params.task.objectives, name).as_dict()
        length = _TINY_LENGTH if tiny else data.seq_length
        size = batch or (_TINY_BATCH if tiny else data.global_batch_size // case.cores)
        values = {
            "input_path": str(folder / where),
            "seq_length": length,
            "global_batch_size": size,
            "max_bucket_batch_size": size if data.bucket_boundaries else 0,
            "bucket_boundaries": [length] if data.bucket_boundaries else [],
        }
        own = {key: value for key, value in _TINY_OBJECTIVE.items() if tiny and key in objective}
        if where == "task.train_data":
            task["train_data"] = values
        else:
            own["train_data"] = values
        if "vocabulary_block_size" in remedies and "vocabulary_block_size" in objective:
            own["vocabulary_block_size"] = remedies["vocabulary_block_size"]
        task["objectives"][name] = own
    runtime = {"distribution_strategy": "pjrt"}
    if "dtype" in remedies:
        runtime["mixed_precision_dtype"] = remedies["dtype"]
    return {"task": task, "runtime": runtime}


def write_records(params: Any, folder: Path) -> None:
    """Writes records of random words for everything that a training reads.

    The vocabulary has as many entries as the encoder. Every document is long enough for any view;
    nothing of a step's cost depends on which words are in it.
    """
    from official_cmlm.tokenization import load_vocabulary

    folder.mkdir(parents=True, exist_ok=True)
    size = params.task.encoder.vocab_size
    words = [f"w{number}" for number in range(size - len(_SPECIAL))]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in (*_SPECIAL, *words)), encoding="utf-8")
    vocabulary = load_vocabulary(path, lower_case=True)
    for name, where, data in _training_data(params):
        if (folder / where).exists():
            continue
        # A packed segment is cut from a document that has more than two of them; DeCLUTR's four
        # spans, each of the whole length, want more.
        length = 6 * data.seq_length
        count = math.ceil(1.5 * data.global_batch_size) + 8
        texts = _texts(words[:1000], length, count, data.seq_length)
        kind = getattr(params.task.objectives, name).record_kind
        _WRITERS[kind](folder / where, vocabulary, texts)


def _training_data(params: Any) -> list[tuple[str, str, Any]]:
    """(objective, name of the field, data config) of all data that a training step reads."""
    return [each for each in params.task.used_data() if each[1].endswith("train_data")]


def _texts(words: list[str], length: int, count: int, sentence: int) -> Iterator[str]:
    """`count` texts of `length` words in sentences of at least a quarter of a sequence."""
    rng = random.Random(1)  # noqa: S311 - any words do
    each = max(2, sentence // 4)
    for _ in range(count):
        yield " ".join(
            " ".join(rng.choices(words, k=each)).capitalize() + "." for _ in range(length // each)
        )


def _write_documents(folder: Path, vocabulary: Any, texts: Iterator[str]) -> None:
    from data_prep.counts import Counts
    from data_prep.output.documents import RecordOptions, document_records
    from data_prep.output.folder import ShardWriter
    from data_prep.readers import Document

    folder.mkdir()
    documents = (Document(f"text{i}", "en", [text]) for i, text in enumerate(texts))
    statistics, writer = Counts(), ShardWriter(folder, "documents", 1 << 20)
    for language, record in document_records(
        documents, vocabulary, RecordOptions(keep_text=True), statistics
    ):
        writer.write(language, record)
    writer.close()
    vocabulary.save(folder)
    statistics.manifest(vocabulary, writer.shards, True).save(folder)


def _write_pairs(folder: Path, vocabulary: Any, texts: Iterator[str]) -> None:
    from data_prep.counts import Counts
    from data_prep.output.folder import ShardWriter
    from data_prep.output.pairs import PairOptions, pair_records
    from data_prep.readers.document import Pair

    folder.mkdir()
    rows = ((Pair((text, text), ("en", "de"), None, "random"),) for text in texts)
    statistics, writer = Counts(), ShardWriter(folder, "pairs", 1 << 20)
    for language, row in pair_records(rows, vocabulary, PairOptions(keep_text=True), statistics):
        writer.write(language, *row)
    writer.close()
    vocabulary.save(folder)
    statistics.manifest(vocabulary, writer.shards, True, kind="pairs", row_size=1).save(folder)


_WRITERS = {"documents": _write_documents, "pairs": _write_pairs}
