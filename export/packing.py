"""BERT's packing of segments by core TensorFlow ops.

Model Garden's `bert_pack_inputs` computes the same, but by `TFText>RoundRobinTrim` and ops around
it, which TensorFlow Serving before 2.20 does not have. Tests compare the two.
"""

from collections.abc import Sequence

import tensorflow as tf


def merged(segments: Sequence[tf.RaggedTensor]) -> list[tf.RaggedTensor]:
    """Returns the segments with all tokens of an example in one row.

    Args:
      segments: each `[batch, (tokens)]` or `[batch, (words), (tokens)]`.

    Raises:
      ValueError: if there are none, more than two, or ranks differ or are unknown.
    """
    if not 1 <= len(segments) <= 2:
        raise ValueError(f"one or two segments can be packed, got {len(segments)}")
    ranks = [segment.shape.rank for segment in segments]
    if None in ranks or len(set(ranks)) > 1:
        raise ValueError(f"all segments must have the same known rank, got {ranks}")
    return [segment.merge_dims(1, -1) if ranks[0] > 2 else segment for segment in segments]


def kept_tokens(lengths: Sequence[tf.Tensor], budget: int | tf.Tensor) -> list[tf.Tensor]:
    """Computes how many tokens of each segment are kept.

    Two segments get a token in turn, the first one first, as long as they need some.

    Args:
      lengths: of one or two segments, int32 `[batch]`.
      budget: tokens of all segments together.

    Returns:
      For each segment int32 `[batch]`.
    """
    if len(lengths) == 1:
        return [tf.minimum(lengths[0], budget)]
    first, second = lengths
    half = budget // 2
    return [
        tf.minimum(first, tf.maximum(budget - half, budget - second)),
        tf.minimum(second, tf.maximum(half, budget - first)),
    ]


def packed_ids(
    values: Sequence[tf.Tensor],
    starts: Sequence[tf.Tensor],
    kept: Sequence[tf.Tensor],
    width: int | tf.Tensor,
    special: dict[str, int],
) -> tf.Tensor:
    """`[CLS] first [SEP] second [SEP]` and padding.

    Args:
      values: the tokens of each segment, int32 `[tokens]`.
      starts: where each row begins in them, int32 `[batch]`.
      kept: tokens of each row, from its start, int32 `[batch]`.
      width: of the result; special tokens have room in it too.
      special: see `preprocessing.special_tokens`.

    Returns:
      int32 `[batch, width]`.
    """
    columns = tf.range(width)[tf.newaxis]
    first = columns == 0
    ids = tf.where(first, special["start_of_sequence_id"], special["padding_id"])
    begin: int | tf.Tensor = 1
    for tokens, start, count in zip(values, starts, kept):
        place = columns - begin
        count = count[:, tf.newaxis]
        # One more token, for rows and segments without any.
        tokens = tf.concat([tokens, [special["padding_id"]]], axis=0)
        inside = (place >= 0) & (place < count)
        source = tf.where(inside, start[:, tf.newaxis] + place, tf.size(tokens) - 1)
        ids = tf.where(inside, tf.gather(tokens, source), ids)
        ids = tf.where(place == count, special["end_of_segment_id"], ids)
        begin = begin + count + 1
    return ids


def pack(
    segments: Sequence[tf.RaggedTensor], seq_length: int | tf.Tensor, special: dict[str, int]
) -> dict[str, tf.Tensor]:
    """Packs one or two segments as Model Garden's `bert_pack_inputs` does.

    Args:
      segments: see `merged`; as many rows in each.
      seq_length: of the result, at least the number of special tokens.
      special: see `preprocessing.special_tokens`.

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids`, int32 `[batch, seq_length]`.
    """
    segments = merged(segments)
    starts = [tf.cast(segment.row_starts(), tf.int32) for segment in segments]
    lengths = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
    kept = kept_tokens(lengths, seq_length - len(segments) - 1)
    values = [segment.values for segment in segments]
    ids = packed_ids(values, starts, kept, seq_length, special)
    columns = tf.range(seq_length)[tf.newaxis]
    used = columns < (tf.add_n(kept) + len(segments) + 1)[:, tf.newaxis]
    second = used & (columns >= (kept[0] + 2)[:, tf.newaxis])
    return {
        "input_word_ids": ids,
        "input_mask": tf.cast(used, tf.int32),
        "input_type_ids": tf.cast(second, tf.int32),
    }
