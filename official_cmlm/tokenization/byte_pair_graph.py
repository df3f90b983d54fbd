"""Byte-level BPE in TensorFlow graphs, by keras-hub."""

from collections.abc import Sequence

import tensorflow as tf

# keras-hub imports Keras 3, so this module is imported only if its tokenizer is used.
from keras_hub.tokenizers import BytePairTokenizer

_NO_SPACE_FIRST = r"\A([^ ])"
_SPACE = r"\s\v\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
# keras-hub's mark for a place to split at.
_SPLIT = "६"


class GraphBytePair(tf.Module):
    """keras-hub's tokenizer under GPT-2's rules, as RoBERTa uses them.

    The vocabulary is in lookup tables, which are saved with the module that has this object as an
    attribute. Words that were tokenized are cached, so memory grows with their number. The time for
    the new words of a batch grows with the longest of them, so words of hundreds of letters should
    be in small batches. keras-hub uses the Devanagari digit six (`६`) as its split mark; where it
    would be a token of its own, it is lost.
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], add_prefix_space: bool
    ) -> None:
        """Makes the lookup tables; see `BytePairVocabulary` for the arguments."""
        super().__init__(name="byte_pair")
        tables = BytePairTokenizer(
            vocabulary={token: i for i, token in enumerate(tokens)}, merges=list(merges)
        )
        # An attribute, so that its tables are saved with the module.
        self._tables = tables

        def tokenize(texts: tf.Tensor) -> tf.RaggedTensor:
            # tensorflow-text's split would end at a NUL.
            texts = tf.strings.regex_replace(texts, r"\x00", "")
            if add_prefix_space:
                # keras-hub would also put one before a space and into an empty text.
                texts = tf.strings.regex_replace(texts, _NO_SPACE_FIRST, r" \1")
            # Of several spaces the last goes with the next word; re2 cannot look ahead.
            pattern = rf"([{_SPACE}])([{_SPACE}])([^{_SPACE}])"
            texts = tf.strings.regex_replace(texts, pattern, rf"\1{_SPLIT}\2\3")
            return tables.tokenize(texts)

        # Always a graph: called eagerly, keras-hub may apply another model's splitting rules. Maps
        # strings `[batch]` to int32 `[batch, (tokens)]`.
        self.tokenize = tf.function(
            tokenize, input_signature=[tf.TensorSpec([None], tf.string, name="texts")]
        )
