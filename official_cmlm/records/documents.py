"""The *documents* record: an ordered run of sentences of one document, as token ids.

One `tf.train.Example` holds

  token_ids          int64 list   the ids of all sentences, end to end, no special tokens
  sentence_lengths   int64 list   tokens of each sentence; sums to the length of `token_ids`
  language           bytes [1]    BCP-47 tag or empty
  id                 bytes [1]    where the text came from
  repeats_last       int64 [1]    1 if the first sentence is the last one of the record before
  text               bytes list   the sentences in UTF-8; only with `keep_text`
  teacher_vectors    bytes list   a vector a sentence, see `teacher_vectors`; only if added

A vocabulary may have other ids for a text after a space (byte-level BPE: `The` and ` The` are two
entries). Then the record also holds

  after_space_ids       int64 list   ids that replace the first ones of each sentence where it
                                     follows other text and a space, end to end
  after_space_lengths   int64 list   how many of them belong to each sentence
  after_space_replaced  int64 list   how many ids of each sentence they replace

`token_ids` are those of each sentence alone. The ids of a run of sentences are those of its
text, the sentences joined by single spaces: `DocumentBlock.running` and `running_lengths`.

A long document is cut into several records, in order. The last sentence of a record is repeated at
the start of the next, so that no pair of adjacent sentences is lost; `repeats_last` marks it, so
that it is not counted twice. Packed segments of many sentences end at a cut: with 256 sentences per
record this loses about one packed pair of 256 tokens in 25.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from official_cmlm.records.teacher_vectors import FEATURE

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from official_cmlm.tokenization import AfterSpace

KIND = "documents"


def encode(
    token_ids: "np.ndarray",
    sentence_lengths: Sequence[int],
    language: str,
    document_id: str,
    repeats_last: bool,
    text: Sequence[str] | None = None,
    after_space: "AfterSpace | None" = None,
) -> bytes:
    """Serialises one record.

    Args:
      token_ids: integers `[tokens]`.
      sentence_lengths: tokens of each sentence, each at least 1.
      language, document_id: see the module's text.
      repeats_last: whether the first sentence ended the record before.
      text: the sentences, or None to leave them out.
      after_space: of the sentences, as the tokenizer gives it.
    """
    import tensorflow as tf

    example = tf.train.Example()
    feature = example.features.feature
    if after_space is not None:
        ids = after_space.ids
        lengths = ids.row_splits[1:] - ids.row_splits[:-1]
        for name, values in (("ids", ids.values), ("lengths", lengths)):
            # An empty list is stored too.
            feature[f"after_space_{name}"].int64_list.SetInParent()
            feature[f"after_space_{name}"].int64_list.value.extend(values.tolist())
        feature["after_space_replaced"].int64_list.value.extend(after_space.replaced.tolist())
    feature["id"].bytes_list.value.append(document_id.encode("utf-8", "replace"))
    feature["language"].bytes_list.value.append(language.encode("utf-8", "replace"))
    # Protobuf 7 refuses booleans in lists of integers.
    feature["repeats_last"].int64_list.value.append(int(repeats_last))
    feature["sentence_lengths"].int64_list.value.extend(sentence_lengths)
    if text is not None:
        sentences = (sentence.encode("utf-8", "replace") for sentence in text)
        feature["text"].bytes_list.value.extend(sentences)
    feature["token_ids"].int64_list.value.extend(token_ids.tolist())
    return example.SerializeToString(deterministic=True)


@dataclasses.dataclass(frozen=True)
class DocumentBlock:
    """A batch of parsed records, the input of every view.

    Attributes:
      sentences: int32 ragged `[records, (sentences), (tokens)]`, each sentence alone.
      repeats_last: bool `[records]`.
      keys: int64 `[records]`, the random key of each record; see `official_cmlm.inputs.hashing`.
      documents: int64 `[records]`, a hash of `id`, equal for the records of one document.
      text: string ragged `[records, (sentences)]`, or None if it was not asked for.
      replaced: int64 ragged `[records, (sentences)]`, how many of the first ids of a sentence are
        replaced where it follows another one; None: nothing changes there.
      replacing: int32 ragged `[records, (sentences), (tokens)]`, the ids that replace them.
      vectors: float16 ragged `[records, (sentences), size]`, the teacher's; None if they were not
        asked for.
    """

    sentences: "tf.RaggedTensor"
    repeats_last: "tf.Tensor"
    keys: "tf.Tensor"
    documents: "tf.Tensor"
    text: "tf.RaggedTensor | None" = None
    replaced: "tf.RaggedTensor | None" = None
    replacing: "tf.RaggedTensor | None" = None
    vectors: "tf.RaggedTensor | None" = None

    def running_lengths(self) -> "tf.Tensor":
        """Counts the tokens of each sentence where it follows another; int64 `[sentences]`."""
        lengths = self.sentences.values.row_lengths()
        if self.replaced is None:
            return lengths
        return lengths - self.replaced.values + self.replacing.values.row_lengths()

    def running(self, first: "tf.Tensor | None" = None) -> "tf.RaggedTensor":
        """Returns the sentences as parts of running text, with one space between two of them.

        Args:
          first: bool `[sentences of the block]`, the sentences that begin a run, which keep their
            ids; None: the first sentence of each record.

        Returns:
          int32 ragged `[records, (sentences), (tokens)]`. End to end, the ids of a run are those
          of its text.
        """
        import tensorflow as tf

        if self.replaced is None:
            return self.sentences
        own, heads = self.sentences.values, self.replacing.values
        if first is None:
            numbers = tf.range(own.nrows())
            first = numbers == tf.gather(self.sentences.row_starts(), self.sentences.value_rowids())

        def join() -> tf.RaggedTensor:
            zero = tf.zeros([], tf.int64)
            head_lengths = tf.where(first, zero, heads.row_lengths())
            starts = own.row_starts() + tf.where(first, zero, self.replaced.values)
            # Indices into the replacing ids, then into the sentences' own, which follow them.
            shift = tf.size(heads.flat_values, tf.int64)
            index = tf.concat(
                [
                    tf.ragged.range(heads.row_starts(), heads.row_starts() + head_lengths),
                    tf.ragged.range(starts + shift, own.row_limits() + shift),
                ],
                axis=1,
            )
            both = tf.concat([heads.flat_values, own.flat_values], axis=0)
            return index.with_values(tf.gather(both, index.values))

        # Records of WordPiece, and those of older releases, replace nothing.
        changes = tf.reduce_any(self.replaced.values > 0) | (tf.size(heads.flat_values) > 0)
        return self.sentences.with_values(tf.cond(changes, join, lambda: own))


def token_counts(serialized: "tf.Tensor") -> "tf.Tensor":
    """Counts the tokens of each serialised record as running text, int64 `[records]`.

    A repeated sentence does not count.
    """
    import tensorflow as tf

    alone, running, repeats = parse_lengths(serialized)
    alone, running = alone.to_tensor(), running.to_tensor()
    # Counting begins with the first sentence, or with the second if the first is repeated.
    start = tf.cast(repeats, tf.int64)[:, tf.newaxis]
    place = tf.range(tf.shape(alone, tf.int64)[1])[tf.newaxis]
    counted = tf.where(place == start, alone, tf.where(place > start, running, 0))
    return tf.reduce_sum(counted, axis=1)


def parse_lengths(
    serialized: "tf.Tensor",
) -> tuple["tf.RaggedTensor", "tf.RaggedTensor", "tf.Tensor"]:
    """Parses only the lengths of sentences, of serialised records, string `[records]`.

    Returns:
      Tokens of each sentence alone and where it follows another, both int64 ragged
      `[records, (sentences)]`, and `repeats_last`, bool `[records]`.
    """
    import tensorflow as tf

    names = ("sentence_lengths", "after_space_lengths", "after_space_replaced")
    features = {name: _int64_list() for name in names}
    features["repeats_last"] = tf.io.FixedLenFeature([], tf.int64)
    parsed = tf.io.parse_example(serialized, features)
    lengths = parsed["sentence_lengths"]
    replaced, replacing = _after_space(parsed)
    running = lengths.with_values(lengths.values - replaced + replacing)
    return lengths, running, tf.cast(parsed["repeats_last"], tf.bool)


def _int64_list() -> "tf.io.RaggedFeature":
    import tensorflow as tf

    return tf.io.RaggedFeature(tf.int64, row_splits_dtype=tf.int64)


def _after_space(parsed: dict) -> tuple["tf.Tensor", "tf.Tensor"]:
    """Counts the ids of each sentence that are replaced and replacing, both int64 `[sentences]`.

    Records without such ids count zeros. Other records must have them for each sentence, replace no
    more ids than there are, and leave at least one.
    """
    import tensorflow as tf

    lengths = parsed["sentence_lengths"]
    replaced, replacing = parsed["after_space_replaced"], parsed["after_space_lengths"]
    counts = lengths.row_lengths()
    held = replaced.row_lengths() > 0
    expected = tf.where(held, counts, tf.zeros_like(counts))
    for rows in (replaced, replacing):
        require(rows.row_lengths() == expected, "not every sentence has ids after a space")
    index = tf.where(tf.gather(held, lengths.value_rowids()))
    shape = tf.shape(lengths.values, tf.int64)
    replaced = tf.scatter_nd(index, replaced.values, shape)
    replacing = tf.scatter_nd(index, replacing.values, shape)
    for numbers in (replaced, replacing):
        require(numbers >= 0, "a number of ids after a space is negative")
    require(replaced <= lengths.values, "more ids are replaced than there are")
    # A sentence of which nothing is replaced keeps its length.
    after_space = lengths.values - replaced + replacing
    require(tf.minimum(lengths.values, 1) <= after_space, "a sentence has no id after a space")
    return replaced, replacing


def require(holds: "tf.Tensor", message: str) -> None:
    """Asserts that bools are all true; in a graph by one operation.

    The assertions of `tf.debugging` add conditionals, which would take a quarter of a pipeline's
    start-up.
    """
    import tensorflow as tf

    holds = tf.reduce_all(holds)
    if not tf.executing_eagerly():
        tf.debugging.Assert(holds, [message])
    elif not holds:
        raise tf.errors.InvalidArgumentError(None, None, message)


def parse_vectors(stored: "tf.RaggedTensor", counts: "tf.Tensor", size: int) -> "tf.RaggedTensor":
    """Parses the teacher's vectors of a batch of records.

    Args:
      stored: string ragged `[records, (texts)]`.
      counts: int64 `[records]`, texts of each record.
      size: components of a vector.

    Returns:
      float16 ragged `[records, (texts), size]`.

    Raises:
      tf.errors.InvalidArgumentError: if a record has another number of vectors, or a vector has
      another size.
    """
    import tensorflow as tf

    require(stored.row_lengths() == counts, "not every text has a teacher's vector")
    flat = tf.strings.length(stored.values) == 2 * size
    require(flat, "a teacher's vector has another size than the manifest says")
    vectors = tf.io.decode_raw(stored.values, tf.float16)
    return stored.with_values(tf.ensure_shape(vectors, [None, size]))


def check_tokens(ids: "tf.RaggedTensor", counts: "tf.Tensor", vocab_size: int | None) -> None:
    """Asserts that records hold as many token ids as they say, and ids of the vocabulary only.

    For an id beyond the embedding table, a GPU would read zeros without an error.

    Args:
      ids: int64 ragged `[records, (tokens)]`.
      counts: int64 `[records]`, the number of tokens of each by its lengths.
      vocab_size: see `parse`.
    """
    require(ids.row_lengths() == counts, "lengths do not sum to the token ids")
    if vocab_size is not None:
        values = ids.flat_values
        require(values >= 0, "a token id is negative")
        require(values < vocab_size, "a token id is not in the vocabulary")


def parse(
    serialized: "tf.Tensor",
    keys: "tf.Tensor",
    with_text: bool = False,
    vocab_size: int | None = None,
    vector_size: int = 0,
) -> DocumentBlock:
    """Parses serialised records.

    Args:
      serialized: string `[records]`.
      keys: int64 `[records]`.
      with_text: parse the sentences' text too; the records must hold it.
      vocab_size: entries of the vocabulary, which all token ids must be in; None: not checked.
      vector_size: components of the teacher's vectors, which the records must hold; 0: none are
        parsed.

    Raises:
      tf.errors.InvalidArgumentError: for data that are not such records, or for a record
        that contradicts itself.
    """
    import tensorflow as tf

    names = ("token_ids", "sentence_lengths")
    names += ("after_space_ids", "after_space_lengths", "after_space_replaced")
    features = {name: _int64_list() for name in names}
    features["repeats_last"] = tf.io.FixedLenFeature([], tf.int64)
    features["id"] = tf.io.FixedLenFeature([], tf.string)
    if with_text:
        features["text"] = tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
    if vector_size:
        features[FEATURE] = tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64)
    parsed = tf.io.parse_example(serialized, features)
    lengths = parsed["sentence_lengths"]
    check_tokens(parsed["token_ids"], tf.reduce_sum(lengths, axis=1), vocab_size)
    replaced, replacing = _after_space(parsed)
    sums = tf.reduce_sum(lengths.with_values(replacing), axis=1)
    check_tokens(parsed["after_space_ids"], sums, vocab_size)
    if with_text:
        require(parsed["text"].row_lengths() == lengths.row_lengths(), "a record lacks text")

    def rows(name: str, row_lengths: tf.Tensor) -> tf.RaggedTensor:
        ids = tf.cast(parsed[name].flat_values, tf.int32)
        return lengths.with_values(tf.RaggedTensor.from_row_lengths(ids, row_lengths))

    return DocumentBlock(
        sentences=rows("token_ids", lengths.flat_values),
        repeats_last=tf.cast(parsed["repeats_last"], tf.bool),
        keys=keys,
        documents=tf.strings.to_hash_bucket_fast(parsed["id"], (1 << 63) - 1),
        text=parsed.get("text"),
        replaced=lengths.with_values(replaced),
        replacing=rows("after_space_ids", replacing),
        vectors=parse_vectors(parsed[FEATURE], lengths.row_lengths(), vector_size)
        if vector_size
        else None,
    )
