"""SentencePiece in TensorFlow graphs, by tensorflow-text."""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text


class GraphSentencePiece(tf.Module):
    """tensorflow-text's fast SentencePiece tokenizer.

    The ids equal those of the library `sentencepiece`, except that bytes that are not UTF-8 may
    become another number of unknown tokens. tensorflow-text's other tokenizer,
    `SentencepieceTokenizer`, contains an older release of that library and takes ten times as long.
    """

    def __init__(self, model: bytes, steps: Sequence[str] = ()) -> None:
        """Builds the tokenizer.

        Args:
          model: bytes of a SentencePiece model's file.
          steps: see `SentencePieceVocabulary`.
        """
        super().__init__(name="sentence_piece")
        self._steps = [STEPS[step] for step in steps]
        self._tokenizer = tf_text.FastSentencepieceTokenizer(model)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings `[batch]` to int32 `[batch, (tokens)]`."""
        for step in self._steps:
            texts = step(texts)
        ragged = self._tokenizer.tokenize(texts)
        # This tokenizer returns int32 row splits; all others return int64.
        return ragged.with_row_splits_dtype(tf.int64)


def _plain_quotes(texts: tf.Tensor) -> tf.Tensor:
    for pair in ("``", "''"):
        texts = tf.strings.regex_replace(texts, pair, '"')
    return texts


def _without_accents(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.regex_replace(tf_text.normalize_utf8(texts, "NFKD"), r"\p{M}", "")


def _lower_case(texts: tf.Tensor) -> tf.Tensor:
    # Lower-casing a whole word would map its last Σ to `ς`.
    texts = tf.strings.regex_replace(texts, "Σ", "σ")
    return tf.strings.lower(texts, encoding="utf-8")


STEPS = {"quotes": _plain_quotes, "accents": _without_accents, "lower_case": _lower_case}
