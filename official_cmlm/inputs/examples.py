"""Turns records into single examples of a view, in an order that depends on the seed alone."""

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
    return _single(
        _blocks_of_examples(
            Blocks(config, manifest), manifest.vocab_size, view, position.Start(), 1
        )
    )


def training_examples(
    config: DataConfig,
    manifest: Manifest,
    view: View,
    buckets: list[tuple[int, int]],
    reached: np.ndarray | None,
) -> tf.data.Dataset:
    """An endless dataset of single examples, each with its data `position`; see `build_dataset`."""
    mark = position.fingerprint(config, manifest, view, buckets)
    start = None if reached is None else position.start_of(reached, mark, len(buckets))
    start = start or position.Start()
    tracker = position.Tracker([size for _, size in buckets], start, mark)
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

    blocks = _blocks_of_examples(Blocks(config, manifest), manifest.vocab_size, view, start, None)
    return _single(blocks.scan(tracker.initial_state(), follow))


def _blocks_of_examples(
    blocks: Blocks, vocab_size: int | None, view: View, start: position.Start, epochs: int | None
) -> tf.data.Dataset:
    """(block number, examples of the block in random order); endless if `epochs` is None.

    Validation permutes the examples too: neighbouring pairs of a document share a sentence, and in
    one batch that sentence would be an anchor and find itself among the candidates.
    """

    def numbered(epoch: tf.Tensor, dataset: tf.data.Dataset) -> tf.data.Dataset:
        return dataset.map(lambda block, *rest: (position.block_number(epoch, block), *rest))

    def one_block(number: tf.Tensor, serialized: tf.Tensor, keys: tf.Tensor) -> tuple:
        examples = view(parse_block(view.kind, serialized, keys, view.reads_text, vocab_size))
        order = hashing.permutation(examples["key"], hashing.SALT_SHUFFLE)
        return number, {name: tf.gather(value, order) for name, value in examples.items()}

    whole = tf.data.Dataset.range(epochs) if epochs else tf.data.Dataset.counter(start.next_epoch)
    read = whole.flat_map(lambda epoch: numbered(epoch, blocks.epoch(epoch)))
    if start.block:
        epoch = tf.constant(start.epoch, tf.int64)
        read = numbered(epoch, blocks.rest_of_epoch(start.epoch, start.block)).concatenate(read)
    return read.map(one_block, num_parallel_calls=1, deterministic=True)


def _single(blocks: tf.data.Dataset) -> tf.data.Dataset:
    """Splits (block number, examples of the block) into single examples."""
    return (
        blocks.prefetch(1)
        .flat_map(lambda number, examples: tf.data.Dataset.from_tensor_slices(examples))
        # Rows of a ragged tensor arrive as ragged tensors of rank 0; this makes them dense.
        .map(lambda example: example)
    )
