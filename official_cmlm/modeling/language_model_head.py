"""BERT's masked-language-model head, tied to the encoder's embedding table."""

from typing import NamedTuple

import tensorflow as tf
import tf_keras
from official.nlp.modeling import layers

from official_cmlm.modeling.bert import get_activation, variables_by_name
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

# The scope in which `build_language_model_head` creates its weights.
_SCOPE = "language_model_head/"


class LogitFactors(NamedTuple):
    """Factors of logits: `hidden @ tableᵀ + bias`.

    Attributes:
      hidden: float `[k, width]`, one row a prediction.
      table: float `[vocab, width]`, of the encoder's `token_width`.
      bias: float `[vocab]`.
    """

    hidden: tf.Tensor
    table: tf.Tensor
    bias: tf.Tensor


class LanguageModelHead(layers.MaskedLM):
    """Model Garden's `MaskedLM`, which can stop before the logits."""

    def call(
        self, sequence_data: tf.Tensor, masked_positions: tf.Tensor, factors: bool = False
    ) -> tf.Tensor | LogitFactors:
        """Computes logits at the masked positions only.

        Args:
          sequence_data: float `[batch, seq, hidden]`.
          masked_positions: int32 `[batch, k]`.
          factors: return the `LogitFactors` of logits `[batch · k, vocab]` instead of the logits.

        Returns:
          Logits `[batch, k, vocab]`, or their factors.
        """
        if not factors:
            return super().call(sequence_data, masked_positions)
        hidden = self.dense(self._gather_indexes(sequence_data, masked_positions))
        # The weights are read inside `call`, where Keras casts them to the computation's precision.
        return LogitFactors(
            self.layer_norm(hidden),
            tf.convert_to_tensor(self.embedding_table),
            tf.convert_to_tensor(self.bias),
        )


def build_language_model_head(encoder: SentenceEncoderModel) -> LanguageModelHead:
    """Builds the head over the encoder's embedding table.

    Its weights are created here, so that they exist before an optimizer or a checkpoint asks for
    them.
    """
    config = encoder.config
    head = LanguageModelHead(
        embedding_table=encoder.bert.get_embedding_table(),
        activation=get_activation(config.hidden_activation),
        initializer=tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        name="language_model_head",
    )
    head(tf.zeros([1, 1, config.hidden_size]), masked_positions=tf.zeros([1, 1], tf.int32))
    head.layer_norm.epsilon = config.layer_norm_epsilon
    return head


def head_variables(head: tf_keras.layers.Layer) -> dict[str, tf.Variable]:
    """Returns the head's own weights by name, e.g. `transform/dense/kernel`."""
    return {
        name: variable
        for name, variable in variables_by_name(head.weights, _SCOPE).items()
        if name != "word_embeddings/embeddings"
    }
