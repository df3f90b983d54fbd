"""Configuration of the data: which records are read, and how they become batches."""

import dataclasses
from typing import Annotated

from official.modeling.hyperparams import base_config

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import SEED, OneOf, above, at_least, between, check_fields

SEGMENTS = ("sentence", "packed")
# Checkpoints hold a data position for each stream, so the number of streams is limited.
MAX_STREAMS = 64
# A data position has at most so many numbers: two, a count per bucket, and three of a stream.
POSITION_SIZE = 64
MAX_BUCKETS = POSITION_SIZE - 5


@dataclasses.dataclass
class SourceConfig(base_config.Config):
    """One of several folders of records that are read as one.

    Attributes:
      path: the folder.
      weight: share of this folder in the examples of an epoch, in proportion to the other folders'
        weights; above 0, without a unit. null (default): no folder has a weight, and each has the
        share that it has in all records. Examples are counted as sentences.
    """

    path: str = ""
    weight: Annotated[float, above(0)] | None = None


@dataclasses.dataclass
class DataConfig(base_config.Config):
    """One input pipeline over a folder of records, or over several as one.

    Attributes:
      input_path: folder that `data_prep.create_documents` or `create_pairs` wrote (it holds
        `dataset.json`).
      sources: several such folders instead, each with a weight: a list of `SourceConfig`. In
        training an epoch is as long as all of them together, and reads a folder several times or
        in part, as its weight says. Validation reads each once. Default: empty.
      is_training: true: repeat endlessly, in a new order in each epoch; false, for validation: one
        pass, always in the same order and with the same masks.
      seq_length: longest sequence in tokens, `[CLS]` and `[SEP]` included; longer ones are cut.
        Default 256 (CMLM §3: "the length of s1 and s2 are set to be 256 tokens").
      segment: what counts as one "sentence" of a pair: `sentence`, one sentence of the document;
        `packed`, as many whole consecutive sentences as fit into `seq_length`. For pairs, a record
        whose sentences all fit into one packed segment is split into two with about equally many
        tokens; CMLM does not say so, but otherwise its corpus would lack texts that the corpus of
        plain MLM has (Table 1).
      swap_probability: probability of swapping the two halves of a pair. Default 0.5 (CMLM §3).
      global_batch_size: examples per step, over all replicas, in the longest bucket, at most
        those of an epoch. Shorter buckets hold more, so that each step computes about the same
        number of tokens.
      bucket_boundaries: sequence lengths in tokens that batches are padded to, ascending; the last
        must be `seq_length`. Then a batch holds examples of similar length. Empty (default): random
        batches, with in-batch negatives of all lengths as in the papers, padded to their longest
        sequence (to `seq_length` where XLA or a TPU compiles the step). Random batches end with
        their epoch: an epoch has each example once, and its last batch may be smaller.
      max_bucket_batch_size: upper limit on the examples of a step; `global_batch_size` if that is
        larger. 0 (default): no limit.
      drop_remainder: leave out the last, incomplete batch of each bucket of a validation pass, and
        of each epoch of random batches. Default false: only examples that do not divide among the
        replicas are left out. It is always true for training where XLA or a TPU compiles the step,
        and for validation on TPUs.
      shuffle_sentences: how many sentences are held in memory and permuted together. A larger
        number mixes better and takes more memory, about 2.5 kB per sentence of English prose.
        Default 65536.
      streams: for trainings on several hosts: the records are divided into at most so many streams,
        each batch takes an equal part from each, and a host reads only the streams of its replicas.
        Batches depend on the number of streams and not on the hosts. The number in use is the
        largest power of two that divides `global_batch_size`, for which each stream has four shards
        and about as many records as the others, and by which batches of shorter buckets are rounded
        down by 5 % at most. 1 (default): every host reads all records. Random batches
        (`bucket_boundaries`) of several streams do not end with the epoch. A resumed training keeps
        the number that it began with. 0 means 1, as settings of earlier releases may say 0.
      languages: read only these, e.g. `[en, sw]`, or `[en-de]` for pairs. Default: all.
      language_exponent: a language of n sentences is sampled with a probability proportional to
        n^exponent: 1 (default) keeps the proportions of the data, 0 gives all languages equal
        shares. With several `sources`, it applies within each. CMLM §4.4
        smooths its vocabulary with 0.3 and does not give the exponent of the training mixture.
      max_examples: largest number of examples of a validation pass; 0 (default): no limit.
      seed: every random choice is a function of (seed, epoch, number of the record).
    """

    input_path: str = ""
    sources: list[SourceConfig] = dataclasses.field(default_factory=list)
    is_training: bool = True
    seq_length: Annotated[int, between(3, 1 << 20)] = 256
    segment: Annotated[str, OneOf(SEGMENTS)] = "sentence"
    swap_probability: Annotated[float, between(0, 1)] = 0.5
    global_batch_size: Annotated[int, between(1, 1 << 31)] = 2048
    bucket_boundaries: Annotated[list[int], between(3, 1 << 20)] = dataclasses.field(
        default_factory=list
    )
    max_bucket_batch_size: Annotated[int, between(0, 1 << 31)] = 0
    drop_remainder: bool = False
    shuffle_sentences: Annotated[int, between(1, 1 << 31)] = 65536
    streams: Annotated[int, between(0, MAX_STREAMS)] = 1
    languages: list[str] = dataclasses.field(default_factory=list)
    language_exponent: Annotated[float, between(0, 1)] = 1.0
    max_examples: Annotated[int, at_least(0)] = 0
    seed: Annotated[int, SEED] = 0

    def check(self, where: str) -> None:
        """Raises `UserError` naming the field below `where` (e.g. `task.train_data`)."""
        self._check_sources(where)
        if not self.folders():
            raise UserError(
                f"{where}.input_path is empty; name the folder that create_documents wrote, e.g. "
                f"--params_override={where}.input_path=data/records"
            )
        check_fields(self, where)
        if len(set(self.languages)) != len(self.languages):
            raise UserError(
                f"{where}.languages names a language twice: {', '.join(self.languages)}"
            )
        bounds = list(self.bucket_boundaries)
        if len(bounds) > MAX_BUCKETS:
            raise UserError(
                f"{where}.bucket_boundaries has {len(bounds)} lengths; use {MAX_BUCKETS} at most"
            )
        if bounds and (bounds != sorted(set(bounds)) or bounds[-1] != self.seq_length):
            raise UserError(
                f"{where}.bucket_boundaries must ascend and end with seq_length "
                f"({self.seq_length}), got {bounds}"
            )

    def _check_sources(self, where: str) -> None:
        if not self.sources:
            return
        if self.input_path:
            raise UserError(
                f"{where} has input_path {self.input_path} and sources; name all folders in "
                f"sources and set {where}.input_path to ''"
            )
        for index, source in enumerate(self.sources):
            if not source.path:
                raise UserError(f"{where}.sources[{index}].path is empty; name a folder of records")
            check_fields(source, f"{where}.sources[{index}]")
        folders = self.folders()
        twice = next((folder for folder in folders if folders.count(folder) > 1), None)
        if twice:
            raise UserError(f"{where}.sources names {twice} twice; give it a larger weight instead")
        without = [source.path for source in self.sources if source.weight is None]
        if 0 < len(without) < len(folders):
            raise UserError(
                f"{where}.sources: {without[0]} has no weight, others have; give each a weight, or "
                "none (then each has the share that it has in all records)"
            )

    def folders(self) -> list[str]:
        """Lists the folders of records that are read, as they were named."""
        return [each.path for each in self.sources] or (
            [self.input_path] if self.input_path else []
        )

    @property
    def named_folders(self) -> str:
        """The folders, separated by commas, for messages."""
        return ", ".join(self.folders())

    def setting(self, where: str) -> str:
        """Returns the setting that names the folders: `task.train_data.input_path=records`."""
        name = "sources" if self.sources else "input_path"
        return f"{where}.{name}={self.named_folders}"

    def buckets(self, num_replicas: int = 1, where: str = "data") -> list[tuple[int, int]]:
        """Lists (padded length in tokens, global batch size) of each bucket, shortest first.

        Raises:
          UserError: if `global_batch_size` is not a multiple of `num_replicas`.
        """
        if self.global_batch_size % num_replicas:
            raise UserError(
                f"{where}.global_batch_size {self.global_batch_size} does not divide by the "
                f"{num_replicas} replicas; use a multiple of {num_replicas}"
            )
        tokens = self.global_batch_size * self.seq_length
        buckets = []
        for length in list(self.bucket_boundaries) or [self.seq_length]:
            size = tokens // length
            if self.max_bucket_batch_size:
                size = min(size, max(self.max_bucket_batch_size, self.global_batch_size))
            buckets.append((length, size // num_replicas * num_replicas))
        return buckets
