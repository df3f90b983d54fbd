"""Turns a block of documents into segments: single sentences, or packed runs of them."""

import tensorflow as tf

from official_cmlm.records.documents import DocumentBlock


def segments(
    block: DocumentBlock, segment: str, limit: int, split_short: bool = False
) -> tf.RaggedTensor:
    """Lists each document's segments in order.

    Args:
      block: parsed records.
      segment: `sentence`, each sentence by itself, or `packed`, whole consecutive sentences up to
        `limit` tokens; a sentence longer than that is a segment by itself. The ids of a segment
        are those of its text, the sentences joined by single spaces.
      limit: most tokens of a segment, special tokens not counted. Longer segments are truncated.
      split_short: whether a record of several sentences that all fit one packed segment becomes two
        of about as many tokens each.

    Returns:
      int32 ragged `[records, (segments), (tokens)]`, every segment 1 to `limit` tokens long.
    """
    sentences = block.sentences
    if segment == "packed":
        sentences = _pack(block, limit, split_short)
    tokens = sentences.values[:, :limit]
    return tf.RaggedTensor.from_row_splits(tokens, sentences.row_splits)


def _pack(block: DocumentBlock, limit: int, split_short: bool) -> tf.RaggedTensor:
    """Joins consecutive sentences greedily; see `segments`."""
    own = block.sentences
    alone = own.with_values(own.values.row_lengths())
    running = alone.with_values(block.running_lengths())
    starts = segment_starts(alone, running, limit, split_short)
    sentences = block.running(starts.values).values
    lengths = tf.math.segment_sum(sentences.row_lengths(), tf.cumsum(_count(starts.values)) - 1)
    tokens = tf.RaggedTensor.from_row_lengths(sentences.flat_values, lengths)
    counts = tf.reduce_sum(starts.with_values(_count(starts.values)), axis=1)
    return tf.RaggedTensor.from_row_lengths(tokens, counts)


def segment_starts(
    alone: tf.RaggedTensor, running: tf.RaggedTensor, limit: int, split_short: bool = False
) -> tf.RaggedTensor:
    """Which sentences begin a packed segment.

    Args:
      alone: int64 ragged `[records, (sentences)]`, tokens of each sentence as the first of a
        segment.
      running: the same, where it follows another sentence.
      limit, split_short: see `segments`.

    Returns:
      bool ragged `[records, (sentences)]`; true for the first one of each record.
    """
    # [records, longest record], zeros after the last sentence.
    lengths = tf.stack([alone.to_tensor(), running.to_tensor()])
    if_empty = tf.shape(lengths)[2] == 0
    # A block of empty records has no column to scan; a column of zeros changes nothing.
    lengths = tf.cond(if_empty, lambda: tf.pad(lengths, [[0, 0], [0, 0], [0, 1]]), lambda: lengths)

    def step(carry: tuple[tf.Tensor, tf.Tensor], column: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds sentence t of all records at once; a new segment starts where it does not fit."""
        used, _ = carry
        starts = (used == 0) | (used + column[1] > limit)
        return tf.where(starts, column[0], used + column[1]), starts

    none = tf.zeros_like(lengths[0, :, 0])
    # [longest record, 2, records] -> bool [longest record, records].
    columns = tf.transpose(lengths, [2, 0, 1])
    _, starts = tf.scan(step, columns, initializer=(none, tf.zeros_like(none, tf.bool)))
    rows = tf.RaggedTensor.from_tensor(tf.transpose(starts), lengths=alone.row_lengths())
    starts = alone.with_values(rows.values)
    return _split_short(starts, alone, running) if split_short else starts


def _split_short(
    starts: tf.RaggedTensor, alone: tf.RaggedTensor, running: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Lets a second segment begin in records of one, where the two differ least in tokens.

    Of equal differences the first is taken. A record of one sentence stays as it is. Arguments and
    result are those of `segment_starts`.
    """
    single = tf.reduce_sum(starts.with_values(_count(starts.values)), axis=1) == 1
    short = single & (starts.row_lengths() > 1)
    lengths = tf.where(starts.values, alone.values, running.values)
    before, record = tf.cumsum(lengths, exclusive=True), starts.value_rowids()
    before -= tf.gather(before, tf.gather(starts.row_starts(), record))
    total = tf.gather(tf.reduce_sum(starts.with_values(lengths), axis=1), record)
    # The second segment's first sentence then follows none.
    behind = total - before - lengths + alone.values
    # Nothing is before the first sentence: there is no segment to begin.
    never = tf.int64.max
    differences = tf.where(before > 0, tf.abs(behind - before), never)
    differences = starts.with_values(differences).to_tensor(never)
    # A column more, so that a block of empty records has one.
    best = tf.argmin(tf.pad(differences, [[0, 0], [0, 1]], constant_values=never), axis=1)
    places = tf.boolean_mask(starts.row_starts() + best, short)
    flags = tf.tensor_scatter_nd_update(
        starts.values, places[:, tf.newaxis], tf.ones_like(places, tf.bool)
    )
    return starts.with_values(flags)


def _count(flags: tf.Tensor) -> tf.Tensor:
    return tf.cast(flags, tf.int64)
