"""The preprocess module: strings to the encoder's inputs, inside a SavedModel.

It follows the common interface of TF-Hub's text preprocessors
(https://www.tensorflow.org/hub/common_saved_model_apis/text), like the module that goes with the
published CMLM encoders.
"""

import tensorflow as tf
from official.nlp.modeling import layers
from official.nlp.tools.export_tfhub_lib import BertPackInputsSavedModelWrapper

from official_cmlm.tokenization import Vocabulary, build_graph_tokenizer


class Tokenize(tf.Module):
    """`.tokenize` of the preprocess module.

    Called on strings `[batch]`, returns a `RaggedTensor` of ids, int32 `[batch, (tokens)]`, without
    special tokens; `get_special_tokens_dict()` returns their ids and the vocabulary's size.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__(name="tokenize")
        # An attribute, so that it is saved with the module.
        self._tokenizer = build_graph_tokenizer(vocabulary)
        special = special_tokens(vocabulary)
        # A sub-object with a call of its own, as in TF-Hub's published preprocessors.
        self.get_special_tokens_dict = tf.train.Checkpoint()
        self.get_special_tokens_dict.__call__ = tf.function(
            lambda: {name: tf.constant(value, tf.int32) for name, value in special.items()},
            input_signature=[],
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        return self._tokenizer.tokenize(sentences)


class Preprocess(tf.Module):
    """The preprocess module.

    Called on strings `[batch]`, returns a dict of int32 `[batch, seq_length]`: `input_word_ids`,
    `input_mask`, `input_type_ids`.

    Attributes:
      tokenize: see `Tokenize`.
      bert_pack_inputs: called on a list of one or two `RaggedTensor`s of ids and an optional
        `seq_length=`, packs them into the same dict.
    """

    def __init__(self, vocabulary: Vocabulary, seq_length: int, assets: dict[str, str]) -> None:
        """Builds the module.

        Args:
          vocabulary: the vocabulary of the encoder.
          seq_length: default length in tokens, special tokens included.
          assets: attribute name -> path of a file to store in the SavedModel.
        """
        super().__init__(name="preprocess")
        self.tokenize = Tokenize(vocabulary)
        self._pack = layers.BertPackInputs(
            seq_length=seq_length, special_tokens_dict=special_tokens(vocabulary)
        )
        self.bert_pack_inputs = BertPackInputsSavedModelWrapper(self._pack)
        self.do_lower_case = tf.Variable(is_lower_case(vocabulary), trainable=False)
        for name, path in assets.items():
            setattr(self, name, tf.saved_model.Asset(path))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._pack([self.tokenize(sentences)])


def is_lower_case(vocabulary: Vocabulary) -> bool:
    """Whether the tokenizer lower-cases; byte-level BPE never does."""
    return bool(vocabulary.settings().get("lower_case", False))


def special_tokens(vocabulary: Vocabulary) -> dict[str, int]:
    """The dict that Model Garden's tokenizer layers return, of plain numbers."""
    ids = vocabulary.special_ids
    return {
        "vocab_size": len(vocabulary),
        "start_of_sequence_id": ids["cls"],
        "end_of_segment_id": ids["sep"],
        "padding_id": ids["pad"],
        "mask_id": ids["mask"],
    }
