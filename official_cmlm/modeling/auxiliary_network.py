"""The networks beside the encoder that see a changed sentence and the sentence vector h."""

import tensorflow as tf
import tf_keras
from official.nlp.modeling import layers

from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.modeling import fused_attention
from official_cmlm.modeling.bert import (
    bert_variables,
    block_at,
    build_bert,
    get_activation,
    keep_narrow_inputs,
    new_dense,
    recompute_attention,
)
from official_cmlm.modeling.dropout import (
    NUMBERS_A_BLOCK,
    DropoutMode,
    DropoutStream,
    replace_block_dropout,
)
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel


class AuxiliaryNetwork(tf_keras.layers.Layer):
    """CMLM-CSE's network (§3.2): a few Transformer blocks on [h; h'₍>0₎].

    h' are the outputs, on the masked sentence, of the first layers of the initial encoder. They are
    computed without dropout, and these layers are frozen. The sentence vector h replaces the output
    of the first token; the fusion blocks must reconstruct the masked tokens with its help. If the
    encoder has a dense layer of another width, a linear map brings h to the width of h'.
    """

    def __init__(self, config: EncoderConfig, lexical_layers: int, fusion_layers: int) -> None:
        """Creates the weights; `copy_from` then fills the frozen ones.

        Args:
          config: the encoder's config.
          lexical_layers: blocks of the frozen extractor, at most as many as the encoder has.
          fusion_layers: blocks of the fusion, of the encoder's shape and dropout.
        """
        super().__init__(name="auxiliary_network", autocast=False)
        frozen = config.replace(
            num_layers=lexical_layers, dropout_rate=0.0, attention_dropout_rate=0.0
        )
        self.extractor = build_bert(frozen.replace(drophead_rate=0.0), random_weights=False)
        self.extractor.trainable = False
        self.fusion = [
            layers.TransformerEncoderBlock(
                num_attention_heads=config.num_attention_heads,
                inner_dim=config.intermediate_size,
                inner_activation=get_activation(config.hidden_activation),
                output_dropout=config.dropout_rate,
                attention_dropout=config.attention_dropout_rate,
                norm_epsilon=config.layer_norm_epsilon,
                kernel_initializer=tf_keras.initializers.TruncatedNormal(
                    stddev=config.initializer_range
                ),
                name=f"fusion_{index}",
            )
            for index in range(fusion_layers)
        ]
        self.widened = _new_widened(config)
        tokens = tf.zeros([1, 2, config.hidden_size])
        for index, block in enumerate(self.fusion):
            block([tokens, tf.ones([1, 2, 2])])
            replace_block_dropout(
                block,
                config.dropout_rate,
                config.attention_dropout_rate,
                0.0,
                NUMBERS_A_BLOCK * index,
            )
            keep_narrow_inputs(block)
            if config.remat == "attention":
                recompute_attention(block)
            fused_attention.attach(block)
        self._recompute = config.remat == "blocks"

    def copy_from(self, encoder: SentenceEncoderModel) -> None:
        """Copies the encoder's current weights into the frozen extractor."""
        source = bert_variables(encoder.bert)
        for name, variable in bert_variables(self.extractor).items():
            variable.assign(source[name])

    def call(
        self,
        inputs: dict[str, tf.Tensor],
        vectors: tf.Tensor,
        output_positions: tf.Tensor | None = None,
        training: bool | None = None,
        stream: DropoutStream | None = None,
        views: int = 1,
    ) -> tf.Tensor:
        """Returns outputs to predict masked tokens from.

        Args:
          inputs: the encoder's inputs of the masked sentences, int32 `[batch, seq]`.
          vectors: h, float `[batch, embedding_size]`.
          output_positions: the only positions whose outputs are read, int32 `[batch, n]`. Default:
            all.
          training: whether the fusion blocks' dropout is on.
          stream: source of the dropout masks; see `modeling.dropout`.
          views: number of views of the same examples that are concatenated in the batch.

        Returns:
          float `[batch, seq, hidden]`, or `[batch, n, hidden]` with `output_positions`.
        """
        features = {name: inputs[name] for name in INPUT_NAMES}
        if self.widened is not None:
            vectors = self.widened(vectors)
        lexical = self.extractor(features, training=False)["sequence_output"]
        lexical = tf.stop_gradient(tf.cast(lexical, vectors.dtype))
        hidden = tf.concat([vectors[:, tf.newaxis], lexical[:, 1:]], axis=1)
        mask = features["input_mask"][:, tf.newaxis]
        with DropoutMode(views, stream=stream).active():
            for block in self.fusion:
                positions = output_positions if block is self.fusion[-1] else None
                hidden = block_at(block, hidden, mask, positions, training, self._recompute)
        return hidden


class TrainedBert(tf_keras.layers.Layer):
    """DiffCSE's discriminator: a whole BERT that is trained, with h in its input.

    It starts as a copy of the encoder. h takes the place of the first token's embedding, after norm
    and dropout; a linear map brings it to that width if the encoder has a dense layer of another.
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Creates the weights, which `copy_from` then fills."""
        super().__init__(name="auxiliary_network", autocast=False)
        self.bert = build_bert(config.replace(drophead_rate=0.0), random_weights=False)
        self.bert.pooler_layer.trainable = False
        self.widened = _new_widened(config)

    def copy_from(self, encoder: SentenceEncoderModel) -> None:
        """Copies the encoder's current weights."""
        self.bert.set_weights(encoder.bert.get_weights())

    def call(
        self,
        inputs: dict[str, tf.Tensor],
        vectors: tf.Tensor,
        training: bool | None = None,
        stream: DropoutStream | None = None,
        views: int = 1,
    ) -> tf.Tensor:
        """Returns the outputs at all positions, `[batch, seq, hidden]`; see `AuxiliaryNetwork`."""
        if self.widened is not None:
            vectors = self.widened(vectors)
        features = {name: inputs[name] for name in INPUT_NAMES}
        with DropoutMode(views, stream=stream).active():
            outputs = self.bert({**features, "first_inputs": vectors}, training=training)
        return outputs["sequence_output"]


def _new_widened(config: EncoderConfig) -> tf_keras.layers.Dense | None:
    """Returns the map of h to the width of token outputs; None if it has that width."""
    if config.embedding_size == config.hidden_size:
        return None
    return new_dense(config, config.embedding_size, config.hidden_size, "widened")
