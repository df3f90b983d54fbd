"""Builds the input pipeline of one view: from a folder of records to padded batches."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import data_position
from official_cmlm.inputs.examples import (
    check_examples,
    stream_batches,
    training_batches,
    validation_batches,
)
from official_cmlm.inputs.mixture import shard_repetitions
from official_cmlm.inputs.records import largest_stream
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest

Augment = Callable[[dict], dict]

# Marks padding until `input_mask` is computed: ids are not negative, but a record may hold `[PAD]`.
_PADDING = -1
_ENDLESS = tf.data.INFINITE_CARDINALITY
# Shards that each stream needs.
_SHARDS_PER_STREAM = 4
# Streams where their number is not given: enough for the hosts of 128 TPU cores.
_STREAMS = 16
# Share by which streams may differ in records, and batches be smaller for their sake.
_TOLERANCE = 0.05


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The part of each global batch that this host's input pipeline produces.

    Attributes:
      total: replicas of the whole job.
      first, count: this host's replicas are numbers first … first + count − 1.
    """

    total: int = 1
    first: int = 0
    count: int = 1

    @classmethod
    def of(cls, context: tf.distribute.InputContext | None) -> "Replicas":
        if context is None:
            return cls()
        total = context.num_replicas_in_sync
        count = total // context.num_input_pipelines
        return cls(total, context.input_pipeline_id * count, count)


# Nothing here branches on tensors; AutoGraph's conversion would dominate the start-up time.
@tf.autograph.experimental.do_not_convert
def build_dataset(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    augments: Sequence[Augment] = (),
    replicas: Replicas = Replicas(),
    check: bool = True,
    reached: np.ndarray | None = None,
    static_shapes: bool = False,
) -> tf.data.Dataset:
    """Builds the batches of one view.

    Every random choice is a function of (seed, epoch, record, example), so the batches do not
    depend on parallelism or on the number of replicas.

    Args:
      config: see `DataConfig`.
      manifest: of the folder `config.input_path`.
      view: turns blocks of records into examples.
      augments: add features to a padded batch, e.g. masked copies.
      replicas: with more than one replica, each element is one replica's share of a global batch;
        the shares of a batch follow each other.
      check: whether to call `check_examples` first; false if that has been done.
      reached: the data `position` of the last batch, to resume a training; ignored if its
        fingerprint is of other records, settings or batch sizes. int64 `[SIZE]`, or
        `[streams, SIZE]`.
      static_shapes: pad random batches to `config.seq_length` and leave out incomplete ones, so
        that all have one shape.

    Returns:
      A dataset of dicts: for each of the view's sequences (and each augment's target) a dict with
      `input_word_ids`, `input_mask`, `input_type_ids`, int32 `[batch, padded length]`, and `key`,
      int64 `[batch]`. Endless for training, one pass otherwise. Training batches also have
      `position`, int64 `[SIZE]`: the data position after the batch, see `data_position`. With
      several streams it is `[streams, SIZE]`, whose sum over all shares of a batch is the position.

    Raises:
      UserError: if the batch size does not divide by the replicas; or see `check_examples`.
    """
    count, starts = _where_to_begin(config, manifest, view, replicas.total, reached)
    buckets = config.buckets(math.lcm(replicas.total, count))
    if len(buckets) > data_position.MAX_BUCKETS:
        raise UserError(
            f"bucket_boundaries has {len(buckets)} lengths; use {data_position.MAX_BUCKETS} at most"
        )
    if check:
        check_examples(config, manifest, view)
    drop_remainder = config.drop_remainder or static_shapes
    if config.is_training:
        mark = data_position.fingerprint(config, manifest, view, buckets, count)
    if not config.is_training:
        batches = validation_batches(config, manifest, view, buckets, drop_remainder)
    elif count == 1:
        (start,) = starts
        batches = training_batches(config, manifest, view, buckets, mark, start, drop_remainder)
    else:
        batches = _from_streams(config, manifest, view, buckets, mark, starts, replicas)
    lengths = tf.constant([length for length, _ in buckets])
    # Without buckets, an incomplete batch is the last one of its epoch.
    complete = None if config.bucket_boundaries else buckets[0][1]
    is_padded = bool(config.bucket_boundaries) or static_shapes
    known = [None, None]
    if static_shapes and len(buckets) == 1:
        rows = buckets[0][1] * replicas.count // replicas.total
        known = [None if count == 1 < replicas.total else rows, buckets[0][0]]

    def features(batch: dict) -> dict:
        length = tf.gather(lengths, batch.pop("bucket")) if is_padded else None
        return features_of(padded(batch, view, length, known), view, augments, complete)

    batches = batches.map(features, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if replicas.total > 1:
        if count == 1:
            # The last batch of a bucket may have fewer examples than there are replicas.
            batches = batches.filter(lambda batch: tf.size(batch["key"]) >= replicas.total)
            batches = batches.map(lambda batch: _own_rows(batch, replicas))
        batches = batches.flat_map(lambda batch: _shares(batch, replicas.count))
    if config.is_training:
        # Else strategies look for the last batch at each step, and lose the number of rows.
        batches = batches.apply(tf.data.experimental.assert_cardinality(_ENDLESS))
    options = tf.data.Options()
    options.deterministic = True
    # A host reads the streams of its replicas; TensorFlow is not to divide them once more.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(4).with_options(options)


def num_streams(config: DataConfig, manifest: Manifest, num_replicas: int = 1) -> int:
    """Streams that a training's records are divided into; see `DataConfig.streams`."""
    if not config.is_training:
        return 1
    most, least_sentences = config.streams, 0
    if not most:
        # A stream mixes the sentences of its own shards only.
        most, least_sentences = _STREAMS, config.shuffle_sentences
    if most == 1:
        return 1
    times = shard_repetitions(config, manifest)
    shards = sum(each > 0 for each in times)
    records = sum(each * s.records for each, s in zip(times, manifest.shards, strict=True))
    # Of an epoch, with the languages and weights that are chosen.
    sentences = manifest.sentences * records / manifest.records

    def suits(count: int) -> bool:
        multiple = math.lcm(num_replicas, count)
        if config.global_batch_size % multiple or shards < count * _SHARDS_PER_STREAM:
            return False
        if sentences < count * least_sentences:
            return False
        sizes = [size for _, size in config.buckets(num_replicas)]
        rounded = [size for _, size in config.buckets(multiple)]
        if any(less < (1 - _TOLERANCE) * size for less, size in zip(rounded, sizes)):
            return False
        return largest_stream(config, manifest, count) <= 1 + _TOLERANCE

    count = 1
    while 2 * count <= most:
        count *= 2
    while not suits(count) and count > 1:
        count //= 2
    return count


def _where_to_begin(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    num_replicas: int,
    reached: np.ndarray | None,
) -> tuple[int, list[data_position.Start]]:
    """The number of streams, and where each of them starts.

    A training goes on with as many streams as it began with; without any, as those of older
    releases.
    """
    count = num_streams(config, manifest, num_replicas)
    known = () if reached is None else (count, len(np.atleast_2d(reached)), 1)
    for number in dict.fromkeys(known):
        if config.global_batch_size % math.lcm(num_replicas, number):
            continue
        buckets = config.buckets(math.lcm(num_replicas, number))
        mark = data_position.fingerprint(config, manifest, view, buckets, number)
        rows = np.atleast_2d(reached)[:number]
        starts = [data_position.start_of(row, mark, len(buckets)) for row in rows]
        if len(starts) == number and None not in starts:
            return number, starts
    return count, [data_position.Start()] * count


def _from_streams(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    mark: int,
    starts: list[data_position.Start],
    replicas: Replicas,
) -> tf.data.Dataset:
    """The rows of a training's batches that belong to the replicas of this host."""
    count = len(starts)
    parts = [(length, size // count) for length, size in buckets]
    first, end = replicas.first, replicas.first + replicas.count
    # Of a batch, replica r has rows from r / total on, stream s has rows from s / count on.
    used = range(first * count // replicas.total, -(-end * count // replicas.total))
    batches = stream_batches(config, manifest, view, parts, mark, starts, used)
    # Two hosts may read one stream; that with its first row says how far it is.
    says = [first * count <= number * replicas.total < end * count for number in used]
    around = [[used[0], count - used[-1] - 1], [0, data_position.SIZE - len(buckets) - 5]]

    def own(batch: dict) -> dict:
        rows = tf.size(batch["key"]) // len(used)
        begin = first * rows * count // replicas.total - used[0] * rows
        stop = end * rows * count // replicas.total - used[0] * rows
        whole = {name: batch.pop(name) for name in ("bucket", "position")}
        whole["position"] *= tf.constant(says, tf.int64)[:, tf.newaxis]
        whole["position"] = tf.pad(whole["position"], around)
        return {**{name: value[begin:stop] for name, value in batch.items()}, **whole}

    return batches.map(own)


def check_batches(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    num_replicas: int,
    static_shapes: bool = False,
) -> None:
    """Raises `UserError` if a validation pass, or an epoch of random batches, would have no batch.

    Training in such epochs would read for ever.

    Args:
      config, manifest, view, static_shapes: see `build_dataset`.
      num_replicas: number of replicas that share each batch.
    """
    if config.is_training and config.bucket_boundaries:
        # Batches go on in the next epoch.
        return
    if num_replicas == 1 and not (static_shapes or config.drop_remainder):
        return
    once = config.replace(is_training=False)
    replicas = Replicas(num_replicas, 0, num_replicas)
    batches = build_dataset(
        once, manifest, view, replicas=replicas, check=False, static_shapes=static_shapes
    )
    for _ in batches.take(1):
        return
    what = "training" if config.is_training else "validation"
    where = "train_data" if config.is_training else "validation_data"
    raise UserError(
        f"{config.named_folders}: {what} has too few examples for one batch of "
        f"{config.global_batch_size} on {num_replicas} replica(s); lower "
        f"{where}.global_batch_size, or use more records"
    )


def can_resume(
    config: DataConfig, manifest: Manifest, view: View, num_replicas: int, reached: np.ndarray
) -> bool:
    """Whether `build_dataset` would resume at the data position `reached`."""
    _, starts = _where_to_begin(config, manifest, view, num_replicas, reached)
    return starts[0] != data_position.Start()


def padded(
    batch: dict, view: View, length: tf.Tensor | None, known: list[int | None]
) -> dict[str, tf.Tensor]:
    """A batch with dense sequences.

    Args:
      batch: its sequences are ragged.
      view: the view.
      length: padded length in tokens, int32 scalar. None: sequences that are encoded in one pass
        are padded to the longest of them.
      known: what is known of the shapes, for the compilers of steps.
    """
    batch = dict(batch)
    for names in view.encoded_together:
        longest = length
        if length is None:
            lengths = [batch[name].bounding_shape(axis=1) for name in names]
            longest = tf.reduce_max(tf.stack(lengths))
        for name in names:
            shape = tf.stack([-1, tf.cast(longest, tf.int64)])
            batch[name] = tf.ensure_shape(batch[name].to_tensor(_PADDING, shape=shape), known)
    return batch


def features_of(
    batch: dict[str, tf.Tensor], view: View, augments: Sequence[Augment], complete: int | None
) -> dict:
    """The encoder's three inputs for each sequence, and the features that the augments add.

    A batch of fewer than `complete` examples ends an epoch; None: none does.
    """
    features: dict = {name: batch[name] for name in ("key", *view.scalars)}
    if "position" in batch:
        reached = batch["position"]
        if reached.shape.rank == 1:
            if complete is not None:
                ends_epoch = tf.size(batch["key"]) < complete
                reached = tf.where(ends_epoch, data_position.end_of_epoch(reached), reached)
            reached = data_position.padded(reached)
        features["position"] = reached
    for name in view.sequences:
        word_ids = batch[name]
        padding = word_ids == _PADDING
        features[name] = {
            "input_word_ids": tf.where(padding, view.special.pad, word_ids),
            "input_mask": 1 - tf.cast(padding, tf.int32),
            "input_type_ids": tf.zeros_like(word_ids),
        }
    for augment in augments:
        features = augment(features)
    return features


def _own_rows(batch: dict, replicas: Replicas) -> dict:
    """The rows of this host's replicas; those that do not divide among all are left out."""
    rows = tf.size(batch["key"]) // replicas.total
    begin, end = replicas.first * rows, (replicas.first + replicas.count) * rows
    # The data position belongs to the batch, not to its examples: it is not divided.
    whole = {name: batch.pop(name) for name in ("position",) if name in batch}
    return {**tf.nest.map_structure(lambda value: value[begin:end], batch), **whole}


def _shares(batch: dict, count: int) -> tf.data.Dataset:
    """Splits a host's rows into equal shares of its `count` replicas, in order."""

    def split(value: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(value)
        shares = tf.reshape(value, tf.concat([[count, shape[0] // count], shape[1:]], axis=0))
        shares.set_shape([None, None, *value.shape[1:].as_list()])
        return shares

    whole = {name: batch.pop(name) for name in ("position",) if name in batch}
    shares = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(split, batch))
    if "position" not in whole:
        return shares
    reached = whole["position"]

    def with_position(number: tf.Tensor, share: dict) -> dict:
        # Positions of streams are summed over the replicas.
        once = tf.where(number == 0, reached, tf.zeros_like(reached))
        return {**share, "position": reached if reached.shape.rank == 1 else once}

    return shares.enumerate().map(with_position)
