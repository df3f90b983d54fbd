"""The *pairs* record: two texts that belong together, as token ids.

One `tf.train.Example` holds

  token_ids   int64 list   the ids of both texts, end to end, no special tokens
  lengths     int64 [2]    tokens of each text; sums to the length of `token_ids`
  languages   bytes [2]    BCP-47 tag of each text
  label       int64 [1]    0, 1, … where the pair has one, else -1
  row         int64 [1]    number of the row that this pair is a translation of
  text        bytes [2]    the texts in UTF-8; only with `keep_text`

Pairs of one row are translations of each other. They are stored one after the other, a shard never
ends inside a row, and all rows of a folder have the same number of pairs: `Manifest.row_size`.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from official_cmlm.records.documents import check_tokens

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

KIND = "pairs"
# The classes of natural language inference, in the order of their numbers.
NLI_LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = -1


def encode(
    token_ids: "np.ndarray",
    lengths: Sequence[int],
    languages: Sequence[str],
    label: int,
    row: int,
    text: Sequence[str] | None = None,
) -> bytes:
    """Serialises one record.

    Args:
      token_ids: integers `[tokens]`.
      lengths: tokens of each text, both at least 1.
      languages: language of each text.
      label, row: see the module's text.
      text: the two texts, or None to leave them out.
    """
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    feature["token_ids"].int64_list.value.extend(token_ids.tolist())
    feature["lengths"].int64_list.value.extend(lengths)
    feature["languages"].bytes_list.value.extend(language.encode() for language in languages)
    feature["label"].int64_list.value.append(label)
    feature["row"].int64_list.value.append(row)
    if text is not None:
        feature["text"].bytes_list.value.extend(one.encode() for one in text)
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
    """

    first: "tf.RaggedTensor"
    second: "tf.RaggedTensor"
    languages: "tf.Tensor"
    labels: "tf.Tensor"
    rows: "tf.Tensor"
    keys: "tf.Tensor"


def parse(serialized: "tf.Tensor", keys: "tf.Tensor", vocab_size: int | None = None) -> PairBlock:
    """Parses serialised records; arguments and errors are those of `documents.parse`."""
    import tensorflow as tf

    parsed = tf.io.parse_example(
        serialized,
        {
            "token_ids": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
            "lengths": tf.io.FixedLenFeature([2], tf.int64),
            "languages": tf.io.FixedLenFeature([2], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "row": tf.io.FixedLenFeature([], tf.int64),
        },
    )
    check_tokens(parsed["token_ids"], tf.reduce_sum(parsed["lengths"], axis=1), vocab_size)
    labels = parsed["label"]
    most = tf.constant(len(NLI_LABELS) - 1, tf.int64)
    tf.debugging.assert_less_equal(labels, most, "an unknown label")
    tf.debugging.assert_greater_equal(labels, tf.constant(NO_LABEL, tf.int64), "an unknown label")
    both = tf.RaggedTensor.from_row_lengths(
        tf.cast(parsed["token_ids"].flat_values, tf.int32), tf.reshape(parsed["lengths"], [-1])
    )
    return PairBlock(
        first=both[0::2],
        second=both[1::2],
        languages=parsed["languages"],
        labels=tf.cast(labels, tf.int32),
        rows=parsed["row"],
        keys=keys,
    )
