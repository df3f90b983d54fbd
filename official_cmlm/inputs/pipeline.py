"""Builds the input pipeline of one view: from a folder of records to padded batches."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import position
from official_cmlm.inputs.examples import (
    check_examples,
    one_pass,
    training_batches,
    training_examples,
)
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest

Augment = Callable[[dict], dict]

# Marks padding until `input_mask` is computed: ids are not negative, but a record may hold `[PAD]`.
_PADDING = -1


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
        fingerprint is of other records, settings or batch sizes.
      static_shapes: pad random batches to `config.seq_length` and leave out incomplete ones, so
        that all have one shape.

    Returns:
      A dataset of dicts: for each of the view's sequences (and each augment's target) a dict with
      `input_word_ids`, `input_mask`, `input_type_ids`, int32 `[batch, padded length]`, and `key`,
      int64 `[batch]`. Endless for training, one pass otherwise. Training batches also have
      `position`, int64 `[SIZE]`: the data position after the batch, see `inputs.position`.

    Raises:
      UserError: if the batch size does not divide by the replicas; or see `check_examples`.
    """
    buckets = config.buckets(replicas.total)
    if len(buckets) > position.MAX_BUCKETS:
        raise UserError(
            f"bucket_boundaries has {len(buckets)} lengths; use {position.MAX_BUCKETS} at most"
        )
    if check:
        check_examples(config, manifest, view)
    drop_remainder = config.drop_remainder or static_shapes

    def batched(examples: tf.data.Dataset) -> tf.data.Dataset:
        if config.bucket_boundaries:
            return _bucket(examples, view, buckets, drop_remainder)
        length = config.seq_length if static_shapes else None
        return _pad(examples, view, buckets[0][1], length, drop_remainder)

    if not config.is_training:
        examples = one_pass(config, manifest, view)
        batches = batched(examples.take(config.max_examples or -1))
    elif config.bucket_boundaries:
        batches = batched(training_examples(config, manifest, view, buckets, reached))
    else:
        batches = training_batches(config, manifest, view, buckets, reached, batched)
    # Without buckets, an incomplete batch is the last one of its epoch.
    complete = None if config.bucket_boundaries else buckets[0][1]
    batches = batches.map(
        lambda batch: _features(batch, view, augments, complete),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if replicas.total > 1:
        # The last batch of a bucket may have fewer examples than there are replicas.
        batches = batches.filter(lambda batch: tf.size(batch["key"]) >= replicas.total)
        batches = batches.flat_map(lambda batch: _shares(batch, replicas))
    options = tf.data.Options()
    options.deterministic = True
    # Each host reads everything and keeps its share: in a step all replicas must have one bucket.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(4).with_options(options)


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
        f"{config.input_path}: {what} has too few examples for one batch of "
        f"{config.global_batch_size} on {num_replicas} replica(s); lower "
        f"{where}.global_batch_size, or use more records"
    )


def can_resume(
    config: DataConfig, manifest: Manifest, view: View, num_replicas: int, reached: np.ndarray
) -> bool:
    """Whether `build_dataset` would resume at the data position `reached`."""
    buckets = config.buckets(num_replicas)
    mark = position.fingerprint(config, manifest, view, buckets)
    return position.start_of(reached, mark, len(buckets)) is not None


def _bucket(
    examples: tf.data.Dataset,
    view: View,
    buckets: list[tuple[int, int]],
    drop_remainder: bool,
) -> tf.data.Dataset:
    """Batches of examples of similar length, padded to the bucket's length."""

    def length(example: dict[str, tf.Tensor]) -> tf.Tensor:
        return tf.reduce_max(tf.stack([tf.shape(example[name])[0] for name in view.sequences]))

    return examples.bucket_by_sequence_length(
        length,
        # tf.data takes the first boundary above an element's length, and pads to one less.
        bucket_boundaries=[length + 1 for length, _ in buckets],
        # tf.data requires a batch size for longer elements too, though there are none.
        bucket_batch_sizes=[size for _, size in buckets] + [1],
        pad_to_bucket_boundary=True,
        padding_values=_padding(examples, view),
        drop_remainder=drop_remainder,
    )


def _pad(
    examples: tf.data.Dataset, view: View, size: int, length: int | None, drop_remainder: bool
) -> tf.data.Dataset:
    """Batches of consecutive examples, padded to `length`, or to the longest sequence if None."""
    shapes = {
        name: [length] if name in view.sequences else spec.shape
        for name, spec in examples.element_spec.items()
    }
    batches = examples.padded_batch(size, shapes, _padding(examples, view), drop_remainder)
    return batches if length else batches.map(lambda batch: _equally_long(batch, view))


def _padding(examples: tf.data.Dataset, view: View) -> dict[str, tf.Tensor]:
    return {
        name: tf.constant(_PADDING if name in view.sequences else 0, spec.dtype)
        for name, spec in examples.element_spec.items()
    }


def _equally_long(batch: dict[str, tf.Tensor], view: View) -> dict[str, tf.Tensor]:
    """Pads the sequences that are encoded in one pass to the longest of them."""
    batch = dict(batch)
    for names in view.encoded_together:
        longest = tf.reduce_max(tf.stack([tf.shape(batch[name])[1] for name in names]))
        for name in names:
            missing = longest - tf.shape(batch[name])[1]
            batch[name] = tf.pad(batch[name], [[0, 0], [0, missing]], constant_values=_PADDING)
    return batch


def _features(
    batch: dict[str, tf.Tensor], view: View, augments: Sequence[Augment], complete: int | None
) -> dict:
    """The encoder's three inputs for each sequence, and the features that the augments add.

    A batch of fewer than `complete` examples ends an epoch; None: none does.
    """
    features: dict = {name: batch[name] for name in ("key", *view.scalars)}
    if "position" in batch:
        # The last example completed the batch, so its data position is the batch's.
        reached = batch["position"][-1]
        if complete is not None:
            ends_epoch = tf.size(batch["key"]) < complete
            reached = tf.where(ends_epoch, position.end_of_epoch(reached), reached)
        features["position"] = position.padded(reached)
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


def _shares(batch: dict, replicas: Replicas) -> tf.data.Dataset:
    """Splits a global batch into equal shares of this host's replicas, in order.

    The last batch of a validation pass may be incomplete; the examples that do not divide among the
    replicas are left out.
    """

    def split(value: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(value)
        rows = shape[0] // replicas.total
        value = value[: rows * replicas.total]
        shares = tf.reshape(value, tf.concat([[replicas.total, rows], shape[1:]], axis=0))
        shares.set_shape([None, None, *value.shape[1:].as_list()])
        return shares[replicas.first : replicas.first + replicas.count]

    # The data position belongs to the batch, not to its examples: it is not split.
    whole = {name: batch.pop(name) for name in ("position",) if name in batch}
    shares = tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(split, batch))
    return shares.map(lambda share: {**share, **whole})
