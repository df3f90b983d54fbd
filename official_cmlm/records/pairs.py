"""The *pairs* record: two texts that belong together, as token ids; perhaps a third that does not.

One `tf.train.Example` holds

  token_ids   int64 list   the ids of all texts, end to end, no special tokens
  lengths     int64 [2|3]  tokens of each text; sums to the length of `token_ids`
  languages   bytes [2]    BCP-47 tag of both texts; the third is in the second's language
  label       int64 [1]    0, 1, … where the pair has one, else -1
  score       float [1]    how similar both texts are, 0 to 1; only where the pair has one
  row         int64 [1]    number of the row that this pair belongs to, see below
  text        bytes [2|3]  the texts in UTF-8; only with `keep_text`
  teacher_vectors  bytes [2]  vectors of the first and the second text; only where they were added

The third text, which not every record of a folder needs to have, is a hard negative: it resembles
the second, but does not match the first.

Pairs of one row are translations of each other. They are stored one after the other, a shard never
ends inside a row, and all rows of a folder have the same number of pairs: `Manifest.row_size`.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between
from official_cmlm.records.documents import check_tokens, parse_vectors, require
from official_cmlm.records.teacher_vectors import FEATURE

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

KIND = "pairs"
# The classes of natural language inference, in the order of their numbers.
NLI_LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = -1
# The ends of a scale of scores, as people give them; records hold scores from 0 to 1.
SCALE_END = between(-1e6, 1e6)


def check_scale(column: str, low: float, high: float) -> None:
    """Raises `UserError` for a scale of scores that is empty, or is named without their column."""
    if not low < high:
        raise UserError(f"--score_min={low:g}: it must be below --score_max={high:g}")
    if not column and (low, high) != (0, 1):
        raise UserError("--score_min and --score_max: name the scores with --score_column")


def scale_score(value: str | float, where: str, low: float, high: float) -> float:
    """Returns a score as records hold it, from 0 to 1.

    Args:
      value: the score, a number or its digits.
      where: place of the score, for messages.
      low, high: the scores that become 0 and 1.

    Raises:
      UserError: if it is not a number, or not from `low` to `high`.
    """
    try:
        score = float(value)
    except (TypeError, ValueError):
        raise UserError(
            f"{where} is {value!r}, not a number; mend the row, or name another column"
        ) from None
    if not low <= score <= high:
        raise UserError(
            f"{where} is {score:g}, not from {low:g} to {high:g}; name the ends of the scale with "
            "--score_min and --score_max"
        )
    return (score - low) / (high - low)


def encode(
    token_ids: "np.ndarray",
    lengths: Sequence[int],
    languages: Sequence[str],
    label: int,
    row: int,
    text: Sequence[str] | None = None,
    score: float | None = None,
) -> bytes:
    """Serialises one record.

    Args:
      token_ids: integers `[tokens]`.
      lengths: tokens of each of the two or three texts, all at least 1.
      languages: language of the first and of the second text.
      label, row: see the module's text.
      text: the texts, or None to leave them out.
      score: see the module's text, or None.
    """
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    feature["token_ids"].int64_list.value.extend(token_ids.tolist())
    feature["lengths"].int64_list.value.extend(lengths)
    feature["languages"].bytes_list.value.extend(language.encode() for language in languages)
    feature["label"].int64_list.value.append(label)
    feature["row"].int64_list.value.append(row)
    if score is not None:
        feature["score"].float_list.value.append(score)
    if text is not None:
        feature["text"].bytes_list.value.extend(part.encode() for part in text)
    return example.SerializeToString(deterministic=True)


@dataclasses.dataclass(frozen=True)
class PairBlock:
    """A batch of parsed records, the input of every view of pairs.

    Attributes:
      first, second: int32 ragged `[records, (tokens)]`.
      languages: string `[records, 2]`.
      labels: int32 `[records]`, -1 where there is none.
      rows: int64 `[records]`.
      keys: int64 `[records]`, the random key of each record; see `official_cmlm.inputs.hashing`.
      negative: int32 ragged `[records, (tokens)]`, hard negatives; empty where there is none.
      vectors: float16 `[records, 2, size]`, the teacher's, of first and second; None if they were
        not asked for.
      scores: float32 `[records]`; not a number where a pair has none.
    """

    first: "tf.RaggedTensor"
    second: "tf.RaggedTensor"
    languages: "tf.Tensor"
    labels: "tf.Tensor"
    rows: "tf.Tensor"
    keys: "tf.Tensor"
    negative: "tf.RaggedTensor | None" = None
    vectors: "tf.Tensor | None" = None
    scores: "tf.Tensor | None" = None


def parse(
    serialized: "tf.Tensor",
    keys: "tf.Tensor",
    vocab_size: int | None = None,
    vector_size: int = 0,
) -> PairBlock:
    """Parses serialised records; arguments and errors are those of `documents.parse`."""
    import tensorflow as tf

    features = {
        "token_ids": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "lengths": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "languages": tf.io.FixedLenFeature([2], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "row": tf.io.FixedLenFeature([], tf.int64),
        "score": tf.io.FixedLenFeature([], tf.float32, default_value=float("nan")),
    }
    if vector_size:
        features[FEATURE] = tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(serialized, features)
    texts = parsed["lengths"].row_lengths()
    require(tf.logical_or(texts == 2, texts == 3), "lengths are not those of 2 or 3 texts")
    # [records, 3], with 0 tokens for a missing third text.
    lengths = parsed["lengths"].to_tensor(shape=[None, 3])
    check_tokens(parsed["token_ids"], tf.reduce_sum(lengths, axis=1), vocab_size)
    labels = parsed["label"]
    require((labels >= NO_LABEL) & (labels < len(NLI_LABELS)), "an unknown label")
    every = tf.RaggedTensor.from_row_lengths(
        tf.cast(parsed["token_ids"].flat_values, tf.int32), tf.reshape(lengths, [-1])
    )
    vectors = None
    if vector_size:
        both = tf.fill(tf.shape(texts), tf.constant(2, tf.int64))
        flat = parse_vectors(parsed[FEATURE], both, vector_size).values
        vectors = tf.reshape(flat, [-1, 2, vector_size])
    return PairBlock(
        first=every[0::3],
        second=every[1::3],
        negative=every[2::3],
        languages=parsed["languages"],
        labels=tf.cast(labels, tf.int32),
        rows=parsed["row"],
        keys=keys,
        vectors=vectors,
        scores=parsed["score"],
    )
