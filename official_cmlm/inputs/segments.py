"""Turns a block of documents into segments: single sentences, or packed runs of them."""

import tensorflow as tf

from official_cmlm.records.documents import DocumentBlock


def segments(block: DocumentBlock, segment: str, limit: int) -> tf.RaggedTensor:
    """Lists each document's segments in order.

    Args:
      block: parsed records.
      segment: `sentence`, each sentence by itself, or `packed`, whole consecutive sentences up to
        `limit` tokens; a sentence longer than that is a segment by itself.
      limit: most tokens of a segment, special tokens not counted. Longer segments are truncated.

    Returns:
      int32 ragged `[records, (segments), (tokens)]`, every segment 1 to `limit` tokens long.
    """
    sentences = block.sentences
    if segment == "packed":
        sentences = _pack(sentences, limit)
    tokens = sentences.values[:, :limit]
    return tf.RaggedTensor.from_row_splits(tokens, sentences.row_splits)


def _pack(sentences: tf.RaggedTensor, limit: int) -> tf.RaggedTensor:
    """Joins consecutive sentences greedily; see `segments`."""
    # [records, longest record], zeros after the last sentence.
    lengths = tf.RaggedTensor.from_row_splits(
        sentences.values.row_lengths(), sentences.row_splits
    ).to_tensor()
    if_empty = tf.shape(lengths)[1] == 0
    # A block of empty records has no column to scan; a column of zeros changes nothing.
    lengths = tf.cond(if_empty, lambda: tf.pad(lengths, [[0, 0], [0, 1]]), lambda: lengths)

    def step(carry: tuple[tf.Tensor, tf.Tensor], column: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds sentence t of all records at once; a new segment starts where it does not fit."""
        used, _ = carry
        starts = (used > 0) & (used + column > limit)
        used = tf.where(starts, column, used + column)
        return used, tf.cast(starts, tf.int64)

    zeros = tf.zeros_like(lengths[:, 0])
    _, starts = tf.scan(step, tf.transpose(lengths), initializer=(zeros, zeros))
    segment_of = tf.cumsum(starts, axis=0)  # [longest record, records]
    rows = tf.RaggedTensor.from_tensor(
        tf.transpose(segment_of), lengths=sentences.row_lengths()
    )  # [records, (sentences)] -> segment number inside the record
    counts = tf.reduce_max(rows, axis=1) + 1
    counts = tf.where(sentences.row_lengths() > 0, counts, tf.zeros_like(counts))
    offsets = tf.cumsum(counts, exclusive=True)
    segment_ids = rows.values + tf.gather(offsets, rows.value_rowids())
    token_counts = tf.math.segment_sum(sentences.values.row_lengths(), segment_ids)
    tokens = tf.RaggedTensor.from_row_lengths(sentences.flat_values, token_counts)
    return tf.RaggedTensor.from_row_lengths(tokens, counts)
