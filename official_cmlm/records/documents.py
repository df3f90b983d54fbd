"""The *documents* record: an ordered run of sentences of one document, as token ids.

One `tf.train.Example` holds

  token_ids          int64 list   the ids of all sentences, end to end, no special tokens
  sentence_lengths   int64 list   tokens of each sentence; sums to the length of `token_ids`
  language           bytes [1]    BCP-47 tag or empty
  id                 bytes [1]    where the text came from
  repeats_last       int64 [1]    1 if the first sentence is the last one of the record before
  text               bytes list   the sentences in UTF-8; only with `keep_text`

A long document is cut into several records in order. Each cut repeats one sentence, so that no
pair of adjacent sentences is lost; `repeats_last` marks it, so that nothing has to count it twice.
Packed segments of many sentences do not reach over a cut: with 256 sentences a record that costs
about one packed pair of 256 tokens in 25.
"""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

KIND = "documents"


def encode(
    token_ids: "np.ndarray",
    sentence_lengths: "np.ndarray",
    language: str,
    document_id: str,
    repeats_last: bool,
    text: list[str] | None = None,
) -> bytes:
    """Serialises one record.

    Args:
      token_ids: integers `[tokens]`.
      sentence_lengths: integers `[sentences]`, each at least 1.
      language, document_id: see the module's text.
      repeats_last: whether the first sentence ended the record before.
      text: the sentences, `[sentences]`, or None to leave them out.
    """
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    feature["token_ids"].int64_list.value.extend(token_ids.tolist())
    feature["sentence_lengths"].int64_list.value.extend(sentence_lengths.tolist())
    feature["language"].bytes_list.value.append(language.encode())
    feature["id"].bytes_list.value.append(document_id.encode())
    feature["repeats_last"].int64_list.value.append(int(repeats_last))
    if text is not None:
        feature["text"].bytes_list.value.extend(sentence.encode() for sentence in text)
    return example.SerializeToString(deterministic=True)


@dataclasses.dataclass(frozen=True)
class DocumentBlock:
    """A batch of parsed records, the input of every view.

    Attributes:
      sentences: int32 ragged `[records, (sentences), (tokens)]`.
      repeats_last: bool `[records]`.
      keys: int64 `[records]`, the random key of each record; see `official_cmlm.inputs.hashing`.
      text: string ragged `[records, (sentences)]`, or None if it was not asked for.
    """

    sentences: "tf.RaggedTensor"
    repeats_last: "tf.Tensor"
    keys: "tf.Tensor"
    text: "tf.RaggedTensor | None" = None


def token_counts(serialized: "tf.Tensor") -> "tf.Tensor":
    """Tokens of each serialised record, int64 `[records]`; a repeated sentence does not count."""
    import tensorflow as tf

    features = {
        "sentence_lengths": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "repeats_last": tf.io.FixedLenFeature([], tf.int64),
    }
    parsed = tf.io.parse_example(serialized, features)
    lengths = parsed["sentence_lengths"]
    repeated = tf.squeeze(lengths[:, :1].to_tensor(shape=[None, 1]), axis=1)
    return tf.reduce_sum(lengths, axis=1) - repeated * parsed["repeats_last"]


def parse(serialized: "tf.Tensor", keys: "tf.Tensor", with_text: bool = False) -> DocumentBlock:
    """Parses serialised records.

    Args:
      serialized: string `[records]`.
      keys: int64 `[records]`.
      with_text: parse the sentences' text too; the records must hold it.
    """
    import tensorflow as tf

    features = {
        "token_ids": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "sentence_lengths": tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64),
        "repeats_last": tf.io.FixedLenFeature([], tf.int64),
    }
    if with_text:
        features["text"] = tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(serialized, features)
    lengths = parsed["sentence_lengths"]
    tokens = tf.RaggedTensor.from_row_lengths(
        tf.cast(parsed["token_ids"].flat_values, tf.int32), lengths.flat_values
    )
    return DocumentBlock(
        sentences=tf.RaggedTensor.from_row_splits(tokens, lengths.row_splits),
        repeats_last=tf.cast(parsed["repeats_last"], tf.bool),
        keys=keys,
        text=parsed.get("text"),
    )
