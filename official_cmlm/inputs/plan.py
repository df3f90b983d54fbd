"""The plan of an input pipeline: all that follows from its settings, computed once.

`Plan.of` reads the configuration and the manifest. The modules that read records and make batches
get the plan and look nothing up again.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.data_position import DataPosition, decode, fingerprint
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest, parts_of

# Shards that each stream needs.
_SHARDS_PER_STREAM = 4
# Share by which a stream may have more records than the mean, and by which batches may become
# smaller so that streams divide them.
_TOLERANCE = 0.05


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of one input pipeline and what follows from them.

    Attributes:
      config: the settings.
      manifest: describes the records in `config.folders()`.
      view: turns blocks of records into examples.
      repetitions: for each shard, how often an epoch reads it on average.
      streams: parts that the records are divided into, see `DataConfig.streams`; 1 in validation.
      buckets: (padded length in tokens, examples of a global batch) of each bucket, shortest first.
        The sizes divide by the replicas and by the streams.
      fingerprint: see `data_position.fingerprint`; 0 in validation.
      starts: for each stream, the data position at which reading starts.
      resumes: whether `starts` come from a checkpoint.
      static_shapes: whether random batches are padded to `config.seq_length` and incomplete batches
        left out, so that all batches have one shape.
    """

    config: DataConfig
    manifest: Manifest
    view: View
    repetitions: tuple[float, ...]
    streams: int
    buckets: tuple[tuple[int, int], ...]
    fingerprint: int
    starts: tuple[DataPosition, ...]
    resumes: bool = False
    static_shapes: bool = False

    @classmethod
    def of(
        cls,
        config: DataConfig,
        manifest: Manifest,
        view: View,
        num_replicas: int = 1,
        reached: np.ndarray | None = None,
        static_shapes: bool = False,
    ) -> "Plan":
        """Makes the plan of one input pipeline.

        Args:
          config, manifest, view, static_shapes: see `Plan`.
          num_replicas: replicas that share each batch.
          reached: the stored data position of the last batch, to resume a training: int64 `[SIZE]`,
            or `[streams, SIZE]`. The training goes on with as many streams as it began with. A
            position of other records, settings or batch sizes is ignored.

        Raises:
          UserError: if the batch size does not divide by the replicas, or see `shard_repetitions`.
        """
        repetitions = tuple(shard_repetitions(config, manifest))

        def plan(streams: int) -> Plan:
            buckets = tuple(config.buckets(math.lcm(num_replicas, streams)))
            mark = 0
            if config.is_training:
                mark = fingerprint(config, manifest, view, buckets, streams)
            starts = (DataPosition(),) * streams
            values = (repetitions, streams, buckets, mark, starts)
            return cls(config, manifest, view, *values, static_shapes=static_shapes)

        rows = np.atleast_2d(reached) if config.is_training and reached is not None else []
        if len(rows) and config.global_batch_size % math.lcm(num_replicas, len(rows)) == 0:
            resumed = plan(len(rows))
            starts = [decode(row, resumed.fingerprint, len(resumed.buckets)) for row in rows]
            if None not in starts:
                return dataclasses.replace(resumed, starts=tuple(starts), resumes=True)
        return plan(num_streams(config, manifest, repetitions, num_replicas))

    @property
    def batch_sizes(self) -> list[int]:
        """The examples of a global batch of each bucket."""
        return [size for _, size in self.buckets]

    @property
    def drop_remainder(self) -> bool:
        """Whether incomplete batches are left out."""
        return self.config.drop_remainder or self.static_shapes

    def steps(self, epochs: int, num_replicas: int) -> int:
        """Returns the number of batches in `epochs` epochs of random batches.

        Raises:
          UserError: the manifest does not tell how many examples an epoch has, or batches do not
            end with it.
        """
        reason = ""
        if not self.view.counted:
            reason = (
                f"{type(self.view).__name__} does not make one example of each sentence or pair"
            )
        elif self.config.bucket_boundaries:
            reason = "batches of bucket_boundaries do not end with an epoch"
        elif not set(self.repetitions) <= {0.0, 1.0}:
            reason = "weights or language_exponent read some records several times or in part"
        if reason:
            raise UserError(
                f"{self.config.named_folders}: trainer.train_epochs cannot be counted in steps, as "
                f"{reason}; set trainer.train_steps instead"
            )
        counts = self.manifest.languages
        examples = sum(counts[name] for name in self.config.languages or counts)
        (size,) = self.batch_sizes
        if self.streams > 1:
            # Batches of several streams go on in the next epoch.
            return -(-epochs * examples // size)
        whole, rest = divmod(examples, size)
        return epochs * (whole + (not self.drop_remainder and rest >= num_replicas))


def shard_repetitions(config: DataConfig, manifest: Manifest) -> list[float]:
    """Computes how often an epoch reads each shard, on average; 0 for languages that are left out.

    In training, a language of n sentences is read c · n^(exponent − 1) times per epoch, so its
    share of the epoch is proportional to n^exponent. The factor c keeps the epoch as long as the
    data. All shards of a language are read equally often. Validation reads each language once.

    Of several folders, this holds within each. If they have weights, a folder of n of all N
    sentences, with the share w of all weights, is read w · N / n times per epoch, so its share of
    the epoch is w, and the epoch is as long as all folders together.

    Raises:
      UserError: if `config.languages` names a language that the folders lack, or if a folder has
        none of them, or if languages must be distinguished but shards hold several languages.
    """
    parts = parts_of(config.folders() or [""], manifest)
    if missing := [name for name in config.languages if name not in manifest.languages]:
        for folder, part in parts:
            _check_languages(folder, part)
        raise UserError(
            f"{config.named_folders}: has no {', '.join(missing)}; its languages are "
            f"{', '.join(sorted(manifest.languages))}"
        )
    sizes = [_sentences_by_language(config, folder, part) for folder, part in parts]
    times = [1.0] * len(parts)
    weights = [source.weight for source in config.sources]
    if config.is_training and len(parts) > 1 and None not in weights:
        shares = [weight / sum(weights) for weight in weights]
        length = sum(sum(counts.values()) for counts in sizes)
        times = [share * length / sum(counts.values()) for share, counts in zip(shares, sizes)]
    return [
        repetition
        for (_, part), counts, factor in zip(parts, sizes, times, strict=True)
        for repetition in _of_folder(config, part, counts, factor)
    ]


def _sentences_by_language(config: DataConfig, folder: str, manifest: Manifest) -> dict[str, int]:
    """Returns the number of sentences, or of pairs, in each language of a folder that is read.

    Where languages are not told apart, the one key is "".
    """
    if not config.languages and config.language_exponent == 1:
        return {"": manifest.sentences}
    _check_languages(folder, manifest)
    chosen = set(config.languages or manifest.languages)
    sizes = {name: size for name, size in manifest.languages.items() if name in chosen}
    if not sizes:
        raise UserError(
            f"{folder}: has none of {', '.join(config.languages)}; its languages are "
            f"{', '.join(sorted(manifest.languages))}; leave it out of sources"
        )
    return sizes


def _check_languages(folder: str, manifest: Manifest) -> None:
    if not all(shard.language for shard in manifest.shards):
        raise UserError(
            f"{folder}: its shards do not have one language each (rows of translations "
            "never do); leave languages empty and language_exponent at 1, or make the records again"
        )


def _of_folder(
    config: DataConfig, manifest: Manifest, sizes: dict[str, int], factor: float
) -> list[float]:
    """Returns how often each shard is read of a folder that is read `factor` times."""
    if not config.languages and config.language_exponent == 1:
        return [factor] * len(manifest.shards)
    exponent = config.language_exponent if config.is_training else 1.0
    scale = factor * sum(sizes.values()) / sum(n**exponent for n in sizes.values())
    times = {name: scale * size ** (exponent - 1) for name, size in sizes.items() if size}
    return [times.get(shard.language, 0.0) for shard in manifest.shards]


def num_streams(
    config: DataConfig, manifest: Manifest, repetitions: tuple[float, ...], num_replicas: int = 1
) -> int:
    """Returns the number of streams of a new training; see `DataConfig.streams`."""
    if not config.is_training or config.streams < 2:
        return 1
    sizes = np.array(repetitions) * [shard.records for shard in manifest.shards]
    sizes = np.sort(sizes[np.array(repetitions) > 0])[::-1]
    whole = [size for _, size in config.buckets(num_replicas)]

    def suits(count: int) -> bool:
        multiple = math.lcm(num_replicas, count)
        if config.global_batch_size % multiple or len(sizes) < count * _SHARDS_PER_STREAM:
            return False
        rounded = [size for _, size in config.buckets(multiple)]
        if any(less < (1 - _TOLERANCE) * size for less, size in zip(rounded, whole)):
            return False
        # These are the expected numbers of records of each stream in an epoch.
        sums = np.bincount(deal(np.arange(len(sizes)), count), sizes, count)
        return sums.max() <= (1 + _TOLERANCE) * sums.mean()

    count = 1 << (config.streams.bit_length() - 1)
    while count > 1 and not suits(count):
        count //= 2
    return count


def deal(place: Any, streams: int) -> Any:
    """Deals shards, sorted by size, to streams: forwards, then backwards, and so on.

    Args:
      place: integers `[shards]`, an array or a tensor, each shard's place among all.
      streams: number of streams.

    Returns:
      The stream of each shard.
    """
    number, is_back = place % streams, (place // streams) % 2
    return number * (1 - is_back) + (streams - 1 - number) * is_back
