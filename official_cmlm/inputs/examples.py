"""Turns records into single examples of a view, in an order that depends on the seed alone."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs import hashing, position
from official_cmlm.inputs.records import Blocks, check_rows, parse_block
from official_cmlm.inputs.views import View
from official_cmlm.records.manifest import Manifest


@tf.autograph.experimental.do_not_convert
def check_examples(config: DataConfig, manifest: Manifest, view: View) -> None:
    """Checks that the records give at least one example of a view.

    Without one, training would read epoch after epoch and never get a batch.

    Args:
      config, manifest, view: see `build_dataset`.

    Raises:
      UserError: if the records give no example of this view, lack the text that it reads or a
        chosen language, or if their rows do not align.
    """
    if view.reads_text and not manifest.keep_text:
        raise UserError(
            f"{config.input_path}: the records hold no text, but {type(view).__name__} reads text; "
            "make them again with --keep_text"
        )
    once = config.replace(is_training=False, shuffle_sentences=1024)
    check_rows(once, manifest)
    for _ in one_pass(once, manifest, view).take(1):
        return
    raise UserError(
        f"{config.input_path}: no record gives a {type(view).__name__} example with segment: "
        f"{config.segment} and seq_length {config.seq_length}; it takes {view.needs}"
    )


def one_pass(config: DataConfig, manifest: Manifest, view: View) -> tf.data.Dataset:
    """The single examples of one pass over the records, as epoch 0."""
    return _single(_Reader(config, manifest, view).epoch(tf.constant(0, tf.int64)))


def training_examples(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    reached: np.ndarray | None,
) -> tf.data.Dataset:
    """An endless dataset of single examples, each with its data `position`; see `build_dataset`."""
    reader = _Reader(config, manifest, view)
    mark, start = _resumed(config, manifest, view, buckets, reached)
    tracker = position.Tracker([size for _, size in buckets], start.skip, mark)
    later = tf.data.Dataset.counter(start.next_epoch).flat_map(reader.epoch)
    blocks = reader.rest_of_epoch(start).concatenate(later) if start.block else later
    return _single(_positioned(blocks, view, buckets, tracker, start.first_block))


def training_batches(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    reached: np.ndarray | None,
    batch: Callable[[tf.data.Dataset], tf.data.Dataset],
) -> tf.data.Dataset:
    """As `training_examples`, in batches that end with the epoch.

    Args:
      config, manifest, view, reached: see `build_dataset`.
      buckets: the only one.
      batch: batches the examples of one epoch, in their order.
    """
    reader = _Reader(config, manifest, view)
    mark, start = _resumed(config, manifest, view, buckets, reached)
    sizes = [size for _, size in buckets]

    def whole(epoch: tf.Tensor) -> tf.data.Dataset:
        tracker = position.Tracker(sizes, (), mark)
        first = position.block_number(epoch, 0)
        return batch(_single(_positioned(reader.epoch(epoch), view, buckets, tracker, first)))

    tracker = position.Tracker(sizes, start.skip, mark)
    rest = _positioned(reader.rest_of_epoch(start), view, buckets, tracker, start.first_block)
    return batch(_single(rest)).concatenate(
        tf.data.Dataset.counter(start.epoch + 1).flat_map(whole)
    )


def _resumed(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    reached: np.ndarray | None,
) -> tuple[int, position.Start]:
    """The fingerprint of a training's data, and where its reading starts."""
    mark = position.fingerprint(config, manifest, view, buckets)
    start = None if reached is None else position.start_of(reached, mark, len(buckets))
    return mark, start or position.Start()


def _positioned(
    blocks: tf.data.Dataset,
    view: View,
    buckets: list[tuple[int, int]],
    tracker: position.Tracker,
    first: int | tf.Tensor,
) -> tf.data.Dataset:
    """Blocks of examples with their positions, without the examples to leave out."""
    bounds = tf.constant([length for length, _ in buckets], tf.int32)

    def follow(state: position.State, block: tuple) -> tuple:
        number, examples = block
        lengths = tf.reduce_max(
            tf.stack([tf.cast(examples[n].row_lengths(), tf.int32) for n in view.sequences]), axis=0
        )
        bucket = tf.searchsorted(bounds, lengths, out_type=tf.int64)
        state, is_new, positions = tracker.step(state, number, bucket)
        examples = {n: tf.ragged.boolean_mask(v, is_new) for n, v in examples.items()}
        return state, (number, {**examples, "position": tf.boolean_mask(positions, is_new)})

    return blocks.scan(tracker.initial_state(first), follow)


class _Reader:
    """Reads (block number, examples of the block in random order).

    Validation permutes the examples too: neighbouring pairs of a document share a sentence, and in
    one batch that sentence would be an anchor and find itself among the candidates.
    """

    def __init__(self, config: DataConfig, manifest: Manifest, view: View) -> None:
        self._blocks, self._view = Blocks(config, manifest), view
        self._vocab_size = manifest.vocab_size

    def epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """All blocks of an epoch (int64 scalar)."""
        return self._examples(epoch, self._blocks.epoch(epoch))

    def rest_of_epoch(self, start: position.Start) -> tf.data.Dataset:
        """The blocks of the epoch where `start` is, from its block on."""
        epoch = tf.constant(start.epoch, tf.int64)
        if not start.block:
            return self.epoch(epoch)
        return self._examples(epoch, self._blocks.rest_of_epoch(start.epoch, start.block))

    def _examples(self, epoch: tf.Tensor, blocks: tf.data.Dataset) -> tf.data.Dataset:
        view = self._view

        def one_block(number: tf.Tensor, serialized: tf.Tensor, keys: tf.Tensor) -> tuple:
            block = parse_block(view.kind, serialized, keys, view.reads_text, self._vocab_size)
            examples = view(block)
            order = hashing.permutation(examples["key"], hashing.SALT_SHUFFLE)
            number = position.block_number(epoch, number)
            return number, {name: tf.gather(value, order) for name, value in examples.items()}

        return blocks.map(one_block, num_parallel_calls=1, deterministic=True)


def _single(blocks: tf.data.Dataset) -> tf.data.Dataset:
    """Splits (block number, examples of the block) into single examples."""
    return (
        blocks.prefetch(1)
        .flat_map(lambda number, examples: tf.data.Dataset.from_tensor_slices(examples))
        # Rows of a ragged tensor arrive as ragged tensors of rank 0; this makes them dense.
        .map(lambda example: example)
    )
