"""BERT's masked-language-model head, tied to the encoder's embedding table."""

import tensorflow as tf
import tf_keras
from official.nlp.modeling import layers

from official_cmlm.modeling.bert import get_activation
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel


def build_language_model_head(encoder: SentenceEncoderModel) -> layers.MaskedLM:
    """Builds Model Garden's `MaskedLM` over the encoder's embedding table.

    Called as `head(sequence_output [batch, seq, hidden], masked_positions=int32 [batch, k])`, it
    computes logits `[batch, k, vocab]` at the masked positions only. Its weights are created here,
    so that they exist before an optimizer or a checkpoint asks for them.
    """
    config = encoder.config
    head = layers.MaskedLM(
        embedding_table=encoder.bert.get_embedding_table(),
        activation=get_activation(config.hidden_activation),
        initializer=tf_keras.initializers.TruncatedNormal(stddev=config.initializer_range),
        name="language_model_head",
    )
    head(tf.zeros([1, 1, config.hidden_size]), masked_positions=tf.zeros([1, 1], tf.int32))
    head.layer_norm.epsilon = config.layer_norm_epsilon
    return head
