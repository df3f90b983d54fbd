"""The *documents* record: an ordered run of sentences of one document, as token ids.

One `tf.train.Example` holds

  token_ids          int64 list   the ids of all sentences, end to end, no special tokens
  sentence_lengths   int64 list   tokens of each sentence; sums to the length of `token_ids`
  language           bytes [1]    BCP-47 tag or empty
  id                 bytes [1]    where the text came from
  repeats_last       int64 [1]    1 if the first sentence is the last one of the record before
  text               bytes list   the sentences in UTF-8; only with `keep_text`

A long document is cut into several records, in order. The last sentence of a record is repeated at
the start of the next, so that no pair of adjacent sentences is lost; `repeats_last` marks it, so
that it is not counted twice. Packed segments of many sentences end at a cut: with 256 sentences per
record this loses about one packed pair of 256 tokens in 25.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from official_cmlm.records import wire

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
    packed = wire.Varints.of(token_ids).data
    lengths = sentence_lengths.tolist()
    return encode_packed(packed, lengths, language, document_id, repeats_last, text)


def encode_packed(
    token_ids: bytes,
    sentence_lengths: Sequence[int],
    language: str,
    document_id: str,
    repeats_last: bool,
    text: list[str] | None = None,
) -> bytes:
    """As `encode`, with the ids of a batch of records encoded at once by `wire.Varints`."""
    entries = [
        wire.entry("id", wire.bytes_list([document_id.encode("utf-8", "replace")])),
        _language(language),
        _repeats_last(repeats_last),
        wire.entry("sentence_lengths", wire.int64_list(_packed(sentence_lengths))),
    ]
    if text is not None:
        texts = wire.bytes_list(sentence.encode("utf-8", "replace") for sentence in text)
        entries.append(wire.entry("text", texts))
    entries.append(wire.entry("token_ids", wire.int64_list(token_ids)))
    return wire.example(entries)


@functools.lru_cache(maxsize=1024)
def _language(language: str) -> bytes:
    return wire.entry("language", wire.bytes_list([language.encode("utf-8", "replace")]))


@functools.cache
def _repeats_last(value: bool) -> bytes:
    return wire.entry("repeats_last", wire.int64_list(bytes([value])))


def _packed(numbers: Sequence[int]) -> bytes:
    import numpy as np

    # The lengths of nearly all sentences fit into one byte.
    if max(numbers, default=0) < 128:
        return bytes(numbers)
    return wire.Varints.of(np.array(numbers)).data


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


def check_tokens(ids: "tf.RaggedTensor", counts: "tf.Tensor", vocab_size: int | None) -> None:
    """Asserts that records hold as many token ids as they say, and ids of the vocabulary only.

    A GPU would read zeros for an id beyond the embedding table, without a word.

    Args:
      ids: int64 ragged `[records, (tokens)]`.
      counts: int64 `[records]`, the number of tokens of each by its lengths.
      vocab_size: see `parse`.
    """
    import tensorflow as tf

    tf.debugging.assert_equal(ids.row_lengths(), counts, "lengths do not sum to the token ids")
    if vocab_size is not None:
        values = ids.flat_values
        tf.debugging.assert_non_negative(values, "a token id is negative")
        tf.debugging.assert_less(
            values, tf.constant(vocab_size, tf.int64), "a token id is not in the vocabulary"
        )


def parse(
    serialized: "tf.Tensor",
    keys: "tf.Tensor",
    with_text: bool = False,
    vocab_size: int | None = None,
) -> DocumentBlock:
    """Parses serialised records.

    Args:
      serialized: string `[records]`.
      keys: int64 `[records]`.
      with_text: parse the sentences' text too; the records must hold it.
      vocab_size: entries of the vocabulary, which all token ids must be in; None: not checked.

    Raises:
      tf.errors.InvalidArgumentError: for what is no such record, or one that contradicts itself.
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
    check_tokens(parsed["token_ids"], tf.reduce_sum(lengths, axis=1), vocab_size)
    if with_text:
        tf.debugging.assert_equal(
            parsed["text"].row_lengths(), lengths.row_lengths(), "a record lacks text"
        )
    tokens = tf.RaggedTensor.from_row_lengths(
        tf.cast(parsed["token_ids"].flat_values, tf.int32), lengths.flat_values
    )
    return DocumentBlock(
        sentences=tf.RaggedTensor.from_row_splits(tokens, lengths.row_splits),
        repeats_last=tf.cast(parsed["repeats_last"], tf.bool),
        keys=keys,
        text=parsed.get("text"),
    )
