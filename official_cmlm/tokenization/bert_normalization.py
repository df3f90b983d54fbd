"""WordPiece with the text normalisation of BERT's first release and of Hugging Face."""

import tensorflow as tf
import tensorflow_text as tf_text

# Characters that BERT's first release drops: U+0000 and U+FFFD, and control, format and private-use
# characters except tab and line ends.
_DROPPED = r"[\x{00}-\x{08}\x{0B}\x{0C}\x{0E}-\x{1F}\x{7F}-\x{9F}\x{FFFD}\p{Cf}\p{Co}]"


class BertNormalized(tf.Module):
    """tensorflow-text's cased tokenizer after the normalisation of BERT's first release.

    tensorflow-text's own normalisation differs. For uncased vocabularies it replaces compatible
    characters and folds case (`…` becomes `...`, `ß` becomes `ss`, a final `ς` becomes `σ`); for
    cased ones, a soft hyphen or a zero-width joiner splits a word. Words then get other pieces than
    in the training of the vocabulary.
    """

    def __init__(self, cased: tf_text.FastBertTokenizer, lower_case: bool) -> None:
        super().__init__(name="bert_normalized")
        self._cased = cased
        self._lower_case = lower_case

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings `[batch]` to int32 `[batch, (tokens)]`."""
        texts = tf.strings.regex_replace(texts, _DROPPED, "")
        if self._lower_case:
            texts = tf_text.normalize_utf8(texts, "NFD")
            texts = tf.strings.regex_replace(texts, r"\p{Mn}", "")
            # Lower-casing a whole word would map its last Σ to `ς`; BERT's lower-casing does not.
            texts = tf.strings.regex_replace(texts, "Σ", "σ")
            texts = tf.strings.lower(texts, encoding="utf-8")
        return self._cased.tokenize(texts)
