"""The whole way from a folder of records to the padded batches of one view."""

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import hashing
from official_cmlm.inputs.records import check_rows, parse_block, read_blocks
from official_cmlm.inputs.views import Examples, View
from official_cmlm.records.manifest import Manifest

Augment = Callable[[dict], dict]

# Marks padding until the mask is made: no id is negative, while `[PAD]` can stand in a record.
_PADDING = -1


@dataclasses.dataclass(frozen=True)
class Replicas:
    """Which part of each global batch this input pipeline feeds.

    Attributes:
      total: replicas of the whole job.
      first, count: the replicas that this host feeds are first … first + count − 1.
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


def build_dataset(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    augments: Sequence[Augment] = (),
    replicas: Replicas = Replicas(),
    check: bool = True,
) -> tf.data.Dataset:
    """Builds the batches of one view.

    Every choice is a function of (seed, epoch, record, example), so the batches are the same
    whatever the parallelism and the number of replicas.

    Args:
      config: see `DataConfig`.
      manifest: of the folder `config.input_path`.
      view: turns blocks into examples.
      augments: add features to a padded batch, e.g. masked copies.
      replicas: with more than one, each element is one replica's share of a global batch, the
        replicas' shares in turn.
      check: whether to call `check_examples` first; false if that has been done.

    Returns:
      A dataset of dicts: for each of the view's sequences (and each augment's target) a dict with
      `input_word_ids`, `input_mask`, `input_type_ids`, int32 `[batch, bucket length]`, and `key`,
      int64 `[batch]`. Without end for training, one pass otherwise.

    Raises:
      UserError: if the batch size does not divide by the replicas; or see `check_examples`.
    """
    buckets = config.buckets(replicas.total)
    if check:
        check_examples(config, manifest, view)
    examples = _examples(config, manifest, view)
    if config.max_examples and not config.is_training:
        examples = examples.take(config.max_examples)
    batches = _bucket(examples, view, buckets, config.drop_remainder or replicas.total > 1)
    batches = batches.map(
        lambda batch: _features(batch, view, augments),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if replicas.total > 1:
        batches = batches.flat_map(lambda batch: _shares(batch, replicas))
    options = tf.data.Options()
    options.deterministic = True
    # Each host reads everything and keeps its share: all replicas must see one bucket a step.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(4).with_options(options)


def check_examples(config: DataConfig, manifest: Manifest, view: View) -> None:
    """Looks for one example: epochs without any would follow each other for ever.

    Args:
      config, manifest, view: see `build_dataset`.

    Raises:
      UserError: if the records hold no example of this view, not the text that it reads, or not the
        languages that are chosen; or if their rows do not align.
    """
    if view.reads_text and not manifest.keep_text:
        raise UserError(
            f"{config.input_path}: the records hold no text, which {type(view).__name__} reads; "
            "make them again with --keep_text"
        )
    once = config.replace(is_training=False, shuffle_sentences=1024)
    check_rows(once, manifest)
    for _ in _examples(once, manifest, view).take(1):
        return
    raise UserError(
        f"{config.input_path}: no record gives a {type(view).__name__} example with segment: "
        f"{config.segment} and seq_length {config.seq_length}; it takes {view.needs}"
    )


def _examples(config: DataConfig, manifest: Manifest, view: View) -> tf.data.Dataset:
    """Single examples, permuted inside each block.

    In validation too: neighbours of a document as candidates of one batch would find themselves.
    """
    epoch_blocks = read_blocks(config, manifest)

    def one_block(serialized: tf.Tensor, keys: tf.Tensor) -> Examples:
        examples = view(parse_block(view.kind, serialized, keys, view.reads_text))
        order = hashing.permutation(examples["key"], hashing.SALT_SHUFFLE)
        return {name: tf.gather(value, order) for name, value in examples.items()}

    epochs = tf.data.Dataset.counter() if config.is_training else tf.data.Dataset.range(1)
    return (
        epochs.flat_map(epoch_blocks)
        .map(one_block, num_parallel_calls=1, deterministic=True)
        .prefetch(1)
        .flat_map(tf.data.Dataset.from_tensor_slices)
        # Rows of a ragged tensor arrive as ragged tensors of rank 0; this makes them plain.
        .map(lambda example: example)
    )


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
        # An element belongs to the first boundary above its length, and is padded to one less.
        bucket_boundaries=[length + 1 for length, _ in buckets],
        # Nothing is longer than the last bucket; tf.data wants a size for it all the same.
        bucket_batch_sizes=[size for _, size in buckets] + [1],
        pad_to_bucket_boundary=True,
        padding_values={
            name: tf.constant(_PADDING if name in view.sequences else 0, spec.dtype)
            for name, spec in examples.element_spec.items()
        },
        drop_remainder=drop_remainder,
    )


def _features(batch: dict[str, tf.Tensor], view: View, augments: Sequence[Augment]) -> dict:
    """The encoder's three inputs for each sequence, then whatever the augments add."""
    features: dict = {name: batch[name] for name in ("key", *view.scalars)}
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
    """Splits a global batch into the shares of this host's replicas, in order."""

    def split(value: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(value)
        rows = shape[0] // replicas.total
        shares = tf.reshape(value, tf.concat([[replicas.total, rows], shape[1:]], axis=0))
        shares.set_shape([None, None, *value.shape[1:].as_list()])
        return shares[replicas.first : replicas.first + replicas.count]

    return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(split, batch))
