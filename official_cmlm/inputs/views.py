"""The two views of documents that are not specific to a method: adjacent pairs and segments.

A view is a small frozen object: equal settings compare equal, so objectives that ask for the same
view of the same records share one pipeline. Calling it turns a block of parsed records into
examples: a dict of ragged int32 `[examples, (tokens)]`, special tokens included, and `key`, the
int64 `[examples]` from which everything random about an example is drawn.
"""

import dataclasses

import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.segments import segments
from official_cmlm.records.documents import DocumentBlock

Examples = dict[str, tf.RaggedTensor | tf.Tensor]


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Vocabulary facts that views need.

    Attributes:
      cls, sep, mask, pad: ids of `[CLS]`, `[SEP]`, `[MASK]`, `[PAD]`.
      unknown: id of `[UNK]`.
      vocab_size: entries of the vocabulary.
    """

    cls: int
    sep: int
    mask: int
    pad: int
    unknown: int
    vocab_size: int

    def all(self) -> tuple[int, ...]:
        return (self.pad, self.unknown, self.cls, self.sep, self.mask)


@dataclasses.dataclass(frozen=True)
class AdjacentPairs:
    """Every two segments that follow each other in a document: `first` and `second`.

    CMLM §3: "for two consecutive sequences s1 and s2, we swap their order for 50% of the time".
    A document of n segments gives n − 1 pairs.

    Attributes:
      segment, seq_length, swap_probability: see `configs.data.DataConfig`.
      special: ids of the special tokens.
    """

    segment: str
    seq_length: int
    swap_probability: float
    special: SpecialIds

    sequences = ("first", "second")

    def __call__(self, block: DocumentBlock) -> Examples:
        parts = segments(block, self.segment, self.seq_length - 2)
        counts = parts.row_lengths()
        # A segment is the first half of a pair unless it is the last of its record.
        index = tf.RaggedTensor.from_row_splits(
            tf.range(tf.shape(parts.values)[0]), parts.row_splits
        )
        left = index[:, :-1]
        keys = _example_keys(block.keys, tf.maximum(counts - 1, 0))
        swap = hashing.uniform(keys, 1, hashing.SALT_SWAP)[:, 0] < self.swap_probability
        earlier = left.flat_values
        first = tf.where(swap, earlier + 1, earlier)
        second = tf.where(swap, earlier, earlier + 1)
        return {
            "first": _with_specials(tf.gather(parts.values, first), self.special),
            "second": _with_specials(tf.gather(parts.values, second), self.special),
            "key": keys,
        }


@dataclasses.dataclass(frozen=True)
class Segments:
    """Every segment of a document by itself, as `segment`: what plain MLM reads.

    A sentence that a cut of a long document repeats is left out the second time.
    """

    segment: str
    seq_length: int
    special: SpecialIds

    sequences = ("segment",)

    def __call__(self, block: DocumentBlock) -> Examples:
        sentences = block.sentences
        keep = tf.ones_like(sentences.values.row_lengths(), tf.bool)
        repeated = tf.cast(tf.boolean_mask(sentences.row_starts(), block.repeats_last), tf.int64)
        keep = tf.tensor_scatter_nd_update(
            keep, repeated[:, tf.newaxis], tf.zeros_like(repeated, tf.bool)
        )
        kept = tf.ragged.boolean_mask(
            sentences, tf.RaggedTensor.from_row_splits(keep, sentences.row_splits)
        )
        once = DocumentBlock(kept, block.repeats_last, block.keys)
        parts = segments(once, self.segment, self.seq_length - 2)
        return {
            "segment": _with_specials(parts.values, self.special),
            "key": _example_keys(block.keys, parts.row_lengths()),
        }


def _example_keys(record_keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """One key an example: the record's key folded with the example's index inside the record."""
    index = tf.ragged.range(tf.cast(counts, tf.int64))
    return hashing.fold(tf.gather(record_keys, index.value_rowids()), index.flat_values)


def _with_specials(tokens: tf.RaggedTensor, special: SpecialIds) -> tf.RaggedTensor:
    """`[CLS] tokens [SEP]` for each row."""
    rows = tokens.nrows()
    cls = tf.fill([rows, 1], tf.constant(special.cls, tf.int32))
    sep = tf.fill([rows, 1], tf.constant(special.sep, tf.int32))
    return tf.concat([cls, tokens, sep], axis=1)
