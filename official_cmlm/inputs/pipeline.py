"""Builds the input pipeline of one view: from a folder of records to padded batches."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import data_position
from official_cmlm.inputs.batching import training_batches, validation_batches
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.streams import host_batches
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest

Augment = Callable[[dict], dict]

# Marks padding until `input_mask` is computed: ids are not negative, but a record may hold `[PAD]`.
_PADDING = -1
_ENDLESS = tf.data.INFINITE_CARDINALITY


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
    plan: Plan, augments: Sequence[Augment] = (), replicas: Replicas = Replicas()
) -> tf.data.Dataset:
    """Builds the batches of one view.

    Every random choice is a function of (seed, epoch, record, example), so the batches do not
    depend on parallelism or on the number of replicas.

    Args:
      plan: what to read, made for `replicas.total` replicas. The records must give examples, see
        `checks.check_examples`, or reading never ends.
      augments: add features to a padded batch, e.g. masked copies.
      replicas: with more than one replica, each element is one replica's share of a global batch;
        the shares of a batch follow each other.

    Returns:
      A dataset of dicts: for each of the view's sequences (and each augment's target) a dict with
      `input_word_ids`, `input_mask`, `input_type_ids`, int32 `[batch, padded length]`, and `key`,
      int64 `[batch]`. Endless for training, one pass otherwise. Training batches also have
      `position`, int64 `[SIZE]`: the data position after the batch, see `data_position`. With
      several streams it is `[streams, SIZE]`, whose sum over all shares of a batch is the position.
    """
    config, view, buckets = plan.config, plan.view, plan.buckets
    if not config.is_training:
        batches = validation_batches(plan)
    elif plan.streams == 1:
        batches = training_batches(plan)
    else:
        end = replicas.first + replicas.count
        batches = host_batches(plan, replicas.first, end, replicas.total)
    lengths = tf.constant([length for length, _ in buckets])
    # Without buckets, an incomplete batch is the last one of its epoch.
    complete = None if config.bucket_boundaries else buckets[0][1]
    is_padded = bool(config.bucket_boundaries) or plan.static_shapes
    shape = [None, None]
    if plan.static_shapes and len(buckets) == 1:
        rows = buckets[0][1] * replicas.count // replicas.total
        shape = [None if plan.streams == 1 < replicas.total else rows, buckets[0][0]]

    def features(batch: dict) -> dict:
        length = tf.gather(lengths, batch.pop("bucket")) if is_padded else None
        return features_of(pad_sequences(batch, view, length, shape), view, augments, complete)

    batches = batches.map(features, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if replicas.total > 1:
        if plan.streams == 1:
            # The last batch of a bucket may have fewer examples than there are replicas.
            batches = batches.filter(lambda batch: tf.size(batch["key"]) >= replicas.total)
            batches = batches.map(lambda batch: _own_rows(batch, replicas))
        batches = batches.flat_map(lambda batch: _shares(batch, replicas.count))
    if config.is_training:
        # Otherwise strategies would look for the last batch at each step, and lose the static
        # number of rows.
        batches = batches.apply(tf.data.experimental.assert_cardinality(_ENDLESS))
    options = tf.data.Options()
    options.deterministic = True
    # A host reads the streams of its replicas; TensorFlow must not divide them once more.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(4).with_options(options)


def check_batches(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    num_replicas: int,
    static_shapes: bool = False,
) -> None:
    """Raises `UserError` if a validation pass would have no batch."""
    if num_replicas == 1 and not (static_shapes or config.drop_remainder):
        return
    plan = Plan.of(config, manifest, view, num_replicas, static_shapes=static_shapes)
    for _ in build_dataset(plan, replicas=Replicas(num_replicas, 0, num_replicas)).take(1):
        return
    raise UserError(
        f"{config.named_folders}: validation has too few examples for one batch of "
        f"{config.global_batch_size} on {num_replicas} replica(s); lower "
        "validation_data.global_batch_size, or use more records"
    )


def pad_sequences(
    batch: dict, view: View, length: tf.Tensor | None, static_shape: list[int | None]
) -> dict[str, tf.Tensor]:
    """Pads the sequences of a batch.

    Args:
      batch: its sequences are ragged.
      length: padded length in tokens, int32 scalar. None: sequences that are encoded in one pass
        are padded to the longest of them.
      static_shape: `[rows, length]` of the sequences, for compiled steps; None where it varies.
    """
    batch = dict(batch)
    for names in view.encoded_together:
        longest = length
        if length is None:
            lengths = [batch[name].bounding_shape(axis=1) for name in names]
            longest = tf.reduce_max(tf.stack(lengths))
        for name in names:
            shape = tf.stack([-1, tf.cast(longest, tf.int64)])
            dense = batch[name].to_tensor(_PADDING, shape=shape)
            batch[name] = tf.ensure_shape(dense, static_shape)
    return batch


def features_of(
    batch: dict[str, tf.Tensor], view: View, augments: Sequence[Augment], complete: int | None
) -> dict:
    """Returns the encoder's three inputs for each sequence, and what the augments add.

    A batch of fewer than `complete` examples ends an epoch; None: no batch does.
    """
    features: dict = {name: batch[name] for name in ("key", *view.scalars)}
    if "position" in batch:
        reached = batch["position"]
        if reached.shape.rank == 1:
            if complete is not None:
                ends_epoch = tf.size(batch["key"]) < complete
                next_epoch = data_position.end_of_epoch(reached)
                reached = tf.where(ends_epoch, next_epoch, reached)
            reached = data_position.pad_to_size(reached)
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
    """Takes the rows of this host's replicas; rows that do not divide among all are left out."""
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

    reached = batch.pop("position", None)
    shares = tf.nest.map_structure(split, batch)
    if reached is not None:
        # Positions of streams are summed over the replicas, so the other shares have zeros.
        other = reached if reached.shape.rank == 1 else tf.zeros_like(reached)
        shares["position"] = tf.stack([reached, *[other] * (count - 1)])
    return tf.data.Dataset.from_tensor_slices(shares)
