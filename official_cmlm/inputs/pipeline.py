"""Builds the input pipeline of one view: from a folder of records to padded batches."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import position
from official_cmlm.inputs.examples import check_examples, one_pass, training_examples
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

    Returns:
      A dataset of dicts: for each of the view's sequences (and each augment's target) a dict with
      `input_word_ids`, `input_mask`, `input_type_ids`, int32 `[batch, bucket length]`, and `key`,
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
    if config.is_training:
        examples = training_examples(config, manifest, view, buckets, reached)
    else:
        examples = one_pass(config, manifest, view)
        if config.max_examples:
            examples = examples.take(config.max_examples)
    batches = _bucket(examples, view, buckets, config.drop_remainder)
    batches = batches.map(
        lambda batch: _features(batch, view, augments),
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


def check_batches(config: DataConfig, manifest: Manifest, view: View, num_replicas: int) -> None:
    """Raises `UserError` if a validation pass would have no batch.

    Args:
      config, manifest, view: see `build_dataset`.
      num_replicas: number of replicas that share each batch.
    """
    replicas = Replicas(num_replicas, 0, num_replicas)
    for _ in build_dataset(config, manifest, view, replicas=replicas, check=False).take(1):
        return
    raise UserError(
        f"{config.input_path}: validation has too few examples for one batch of "
        f"{config.global_batch_size} on {num_replicas} replica(s); lower "
        "validation_data.global_batch_size, or use more records"
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
        padding_values={
            name: tf.constant(_PADDING if name in view.sequences else 0, spec.dtype)
            for name, spec in examples.element_spec.items()
        },
        drop_remainder=drop_remainder,
    )


def _features(batch: dict[str, tf.Tensor], view: View, augments: Sequence[Augment]) -> dict:
    """The encoder's three inputs for each sequence, and the features that the augments add."""
    features: dict = {name: batch[name] for name in ("key", *view.scalars)}
    if "position" in batch:
        # The last example completed the batch, so its data position is the batch's.
        features["position"] = position.padded(batch["position"][-1])
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
