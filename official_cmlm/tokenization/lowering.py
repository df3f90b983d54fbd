"""WordPiece after lower-casing letter by letter, as BERT's first release and Hugging Face do."""

import tensorflow as tf
import tensorflow_text as tf_text


class LoweringWordPiece(tf.Module):
    """tensorflow-text's cased tokenizer behind a normalisation of its own.

    tensorflow-text's own lower-casing folds case: `ß` becomes `ss` and a final `ς` an inner `σ`,
    which sends German and Greek words to other pieces than their vocabularies were made for.
    """

    def __init__(self, cased: tf_text.FastBertTokenizer) -> None:
        super().__init__(name="lowering_wordpiece")
        self._cased = cased

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings `[batch]` to int32 `[batch, (tokens)]`."""
        texts = tf_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
        # Lower-casing would give a word's last Σ its final form; letter by letter it has none.
        texts = tf.strings.regex_replace(texts, "Σ", "σ")
        return self._cased.tokenize(tf.strings.lower(texts, encoding="utf-8"))
