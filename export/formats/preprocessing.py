"""The preprocess module: strings to the encoder's inputs, inside a SavedModel.

It follows the common interface of TF-Hub's text preprocessors
(https://www.tensorflow.org/hub/common_saved_model_apis/text), like the module that goes with the
published CMLM encoders. Packing is BERT's, by core ops: Model Garden's `bert_pack_inputs` computes
the same by `TFText>RoundRobinTrim` and ops around it, which TensorFlow Serving before 2.20 does not
have. Tests compare the two.
"""

from collections.abc import Sequence

import tensorflow as tf

from official_cmlm.tokenization import Vocabulary, build_graph_tokenizer
from official_cmlm.tokenization.vocabulary import utf8


class Tokenize(tf.Module):
    """`.tokenize` of the preprocess module.

    Called on strings `[batch]`, returns a `RaggedTensor` of ids, int32 `[batch, (tokens)]`, without
    special tokens; `get_special_tokens_dict()` returns their ids and the vocabulary's size. Strings
    of another rank are an `InvalidArgumentError`.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(name="tokenize")
        # It is an attribute, so that it is saved with the module.
        self._tokenizer = build_graph_tokenizer(vocabulary)
        special = special_tokens(vocabulary)
        # It is a sub-object with a call of its own, as in TF-Hub's published preprocessors.
        self.get_special_tokens_dict = tf.train.Checkpoint()
        self.get_special_tokens_dict.__call__ = tf.function(
            lambda: {name: tf.constant(value, tf.int32) for name, value in special.items()},
            input_signature=[],
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer.tokenize(check_rank(sentences))


class Preprocess(tf.Module):
    """The preprocess module.

    Called on strings `[batch]`, returns a dict of int32 `[batch, seq_length]`: `input_word_ids`,
    `input_mask`, `input_type_ids`. The prompt is put before each string; `tokenize` adds none.

    Attributes:
      tokenize: see `Tokenize`.
      bert_pack_inputs: see `PackInputs`.
      seq_length: default length in tokens, special tokens included.
      special: see `special_tokens`.
      most_bytes: `Vocabulary.most_bytes` of the default length.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        seq_length: int,
        longest: int,
        assets: dict[str, str],
        prompt: str = "",
    ) -> None:
        """Builds the module.

        Args:
          vocabulary: the vocabulary of the encoder.
          seq_length: default length in tokens, special tokens included.
          longest: most tokens that the encoder takes.
          assets: attribute name -> path of a file to store in the SavedModel.
          prompt: the text that is put before each string.
        """
        super().__init__(name="preprocess")
        # A lone surrogate has no UTF-8, so it is replaced, as in `encode`.
        (self._prompt,) = utf8([prompt])
        self.tokenize = Tokenize(vocabulary)
        self.seq_length, self.special = seq_length, special_tokens(vocabulary)
        self.bert_pack_inputs = PackInputs(self.special, seq_length, longest)
        self.most_bytes = vocabulary.most_bytes(seq_length)
        self.do_lower_case = tf.Variable(is_lower_case(vocabulary), trainable=False)
        for name, path in assets.items():
            setattr(self, name, tf.saved_model.Asset(path))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        sentences = cut_bytes(self.add_prompt(sentences), self.most_bytes)
        return pack([self.tokenize(sentences)], self.seq_length, self.special)

    def add_prompt(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns strings, which must be a vector, with the prompt before each."""
        strings = check_rank(strings)
        return tf.strings.join([self._prompt, strings]) if self._prompt else strings


class PackInputs(tf.train.Checkpoint):
    """`.bert_pack_inputs` of the preprocess module.

    Called on a list of one or two `RaggedTensor`s of ids, int32 `[batch, (tokens)]` or
    `[batch, (words), (tokens)]`, and an optional `seq_length=`, packs them into the same dict.

    Model Garden's own wrapper has the same interface and results. This one also refuses, with an
    `InvalidArgumentError`, what would end the process or read foreign memory: ragged tensors whose
    row splits do not fit their values (`tf.RaggedTensor` can be made without a check), segments of
    different numbers of rows, and lengths that no encoder takes.
    """

    def __init__(self, special: dict[str, int], default_length: int, longest: int) -> None:
        """Builds the object.

        Args:
          special: see `special_tokens`.
          default_length: default of `seq_length`, in tokens.
          longest: see `Preprocess`.
        """
        super().__init__()

        # The function is made here, as the default of `seq_length` is only known here.
        @tf.function(autograph=False)
        def call(
            inputs: Sequence[tf.RaggedTensor], seq_length: int | tf.Tensor = default_length
        ) -> dict[str, tf.Tensor]:
            fewest = len(inputs) + 1
            message = f"seq_length must be {fewest} to {longest}"
            checks = [
                tf.debugging.assert_greater_equal(seq_length, fewest, message),
                tf.debugging.assert_less_equal(seq_length, longest, message),
            ]
            segments = [_validate(segment) for segment in inputs]
            checks += [
                tf.debugging.assert_equal(
                    segment.nrows(), segments[0].nrows(), "segments must have as many rows"
                )
                for segment in segments[1:]
            ]
            with tf.control_dependencies(checks):
                segments = [tf.identity(segment) for segment in segments]
                seq_length = tf.identity(seq_length)
            return pack(segments, seq_length, special)

        self.__call__ = call
        length = tf.TensorSpec([], tf.int32)
        for rank in (2, 3):
            for segments in (1, 2):
                ragged = tf.RaggedTensorSpec([None] * rank, tf.int32)
                call.get_concrete_function([ragged] * segments, seq_length=length)


def check_rank(strings: tf.Tensor) -> tf.Tensor:
    """Returns the strings if they are a vector; otherwise the graph raises InvalidArgumentError.

    A server does not hold its clients to the signature of a SavedModel: a tensor of any rank gets
    through, and tensorflow-text reads beyond the end of a scalar. The check must be an operation
    that reads the tensor; a check of its static rank would be decided when the graph is made.
    """
    return tf.ensure_shape(strings, [None])


def cut_bytes(strings: tf.Tensor, most: int | None) -> tf.Tensor:
    """Cuts strings after the bytes that decide their first tokens; see `Vocabulary.most_bytes`.

    Merges of a word of some megabytes would take minutes.
    """
    if most is None:
        return strings
    # The tokenizer drops NULs, so they must not count.
    strings = tf.strings.regex_replace(strings, r"\x00", "")
    return tf.strings.substr(strings, 0, most)


def _validate(segment: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns the same ragged tensor; using it raises if its row splits do not fit its values."""
    splits = [tf.ensure_shape(row_splits, [None]) for row_splits in segment.nested_row_splits]
    values = tf.ensure_shape(segment.flat_values, [None])
    return tf.RaggedTensor.from_nested_row_splits(values, splits, validate=True)


def is_lower_case(vocabulary: Vocabulary) -> bool:
    """Returns whether the tokenizer lower-cases; byte-level BPE never does."""
    return bool(getattr(vocabulary, "lower_case", False))


def special_tokens(vocabulary: Vocabulary) -> dict[str, int]:
    """Returns the dict that Model Garden's tokenizer layers return, of plain numbers."""
    ids = vocabulary.special_ids
    return {
        "vocab_size": len(vocabulary),
        "start_of_sequence_id": ids["cls"],
        "end_of_segment_id": ids["sep"],
        "padding_id": ids["pad"],
        "mask_id": ids["mask"],
    }


def merge_segments(segments: Sequence[tf.RaggedTensor]) -> list[tf.RaggedTensor]:
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


def count_kept_tokens(lengths: Sequence[tf.Tensor], budget: int | tf.Tensor) -> list[tf.Tensor]:
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


def pack_ids(
    values: Sequence[tf.Tensor],
    starts: Sequence[tf.Tensor],
    counts: Sequence[tf.Tensor],
    width: int | tf.Tensor,
    special: dict[str, int],
) -> tf.Tensor:
    """Builds `[CLS] first [SEP] second [SEP]` and padding.

    Args:
      values: the tokens of each segment, int32 `[tokens]`.
      starts: where each row begins in them, int32 `[batch]`.
      counts: tokens of each row, from its start, int32 `[batch]`.
      width: width of the result, special tokens included.
      special: see `preprocessing.special_tokens`.

    Returns:
      int32 `[batch, width]`.
    """
    columns = tf.range(width)[tf.newaxis]
    first = columns == 0
    ids = tf.where(first, special["start_of_sequence_id"], special["padding_id"])
    begin: int | tf.Tensor = 1
    for tokens, start, count in zip(values, starts, counts):
        place = columns - begin
        count = count[:, tf.newaxis]
        # One token is added, which rows and segments without tokens read.
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
      segments: see `merge_segments`; as many rows in each.
      seq_length: of the result, at least the number of special tokens.
      special: see `preprocessing.special_tokens`.

    Returns:
      `input_word_ids`, `input_mask` and `input_type_ids`, int32 `[batch, seq_length]`.
    """
    segments = merge_segments(segments)
    starts = [tf.cast(segment.row_starts(), tf.int32) for segment in segments]
    lengths = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
    counts = count_kept_tokens(lengths, seq_length - len(segments) - 1)
    values = [segment.values for segment in segments]
    ids = pack_ids(values, starts, counts, seq_length, special)
    columns = tf.range(seq_length)[tf.newaxis]
    used = columns < (tf.add_n(counts) + len(segments) + 1)[:, tf.newaxis]
    second = used & (columns >= (counts[0] + 2)[:, tf.newaxis])
    return {
        "input_word_ids": ids,
        "input_mask": tf.cast(used, tf.int32),
        "input_type_ids": tf.cast(second, tf.int32),
    }
