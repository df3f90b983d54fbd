"""Byte-level BPE in TensorFlow graphs, by keras-hub."""

import tensorflow as tf

# keras-hub brings Keras 3 with it; only whoever needs this tokenizer pays for that.
from keras_hub.tokenizers import BytePairTokenizer

from official_cmlm.tokenization.byte_pair import BytePairVocabulary

_NO_SPACE_FIRST = r"\A([^ ])"


class GraphBytePair(tf.Module):
    """keras-hub's tokenizer under GPT-2's rules, as RoBERTa uses them.

    The vocabulary lives in lookup tables that are saved with the module that this object is an
    attribute of. It remembers the words that it has seen, so its memory grows with their number.
    The Devanagari digit six (`६`) is keras-hub's own mark for places to split at; a text that holds
    it loses it. Keep the object as long as a dataset maps with it: tf.function does not.
    """

    def __init__(self, vocabulary: BytePairVocabulary) -> None:
        super().__init__(name="byte_pair")
        self._tables = BytePairTokenizer(
            vocabulary={token: i for i, token in enumerate(vocabulary.tokens)},
            merges=list(vocabulary.merges),
        )
        self._add_prefix_space = vocabulary.add_prefix_space

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Maps strings `[batch]` to int32 `[batch, (tokens)]`.

        It is always a graph: called eagerly, keras-hub would follow another model's rules.
        """
        if self._add_prefix_space:
            # keras-hub would also put one before a space and into an empty text.
            texts = tf.strings.regex_replace(texts, _NO_SPACE_FIRST, r" \1")
        return self._tables.tokenize(texts)
