"""SentencePiece in TensorFlow graphs, by tensorflow-text."""

import tensorflow as tf
import tensorflow_text as tf_text


class GraphSentencePiece(tf.Module):
    """tensorflow-text's fast SentencePiece tokenizer.

    The ids equal those of the library `sentencepiece`, except that bytes that are not UTF-8 may
    become another number of unknown tokens. tensorflow-text's other tokenizer,
    `SentencepieceTokenizer`, contains an older release of that library and takes ten times as long.
    """

    def __init__(self, model: bytes) -> None:
        """Builds the tokenizer of the bytes of a SentencePiece model's file."""
        super().__init__(name="sentence_piece")
        self._tokenizer = tf_text.FastSentencepieceTokenizer(model)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings `[batch]` to int32 `[batch, (tokens)]`."""
        ragged = self._tokenizer.tokenize(texts)
        # This tokenizer returns int32 row splits; all others return int64.
        return ragged.with_row_splits_dtype(tf.int64)
