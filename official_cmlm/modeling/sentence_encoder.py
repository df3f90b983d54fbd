"""The one encoder: BERT and a pooling. Every objective shares it and only it is exported."""

import tensorflow as tf
import tf_keras

from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.modeling.bert import bert_variables, build_bert, new_dense
from official_cmlm.modeling.dropout import DropoutMode, DropoutStream
from official_cmlm.modeling.pooling import (
    Projection,
    TokenWeights,
    pad,
    sentence_vector,
    unit_length,
    with_padding,
)

INPUT_NAMES = ("input_word_ids", "input_mask", "input_type_ids")


class SentenceEncoderModel(tf_keras.Model):
    """The encoder, which maps token ids to sentence vectors and token outputs.

    Inputs are a dict, never a list (Keras would match a list to the names by sorted order):
    `input_word_ids`, `input_mask`, `input_type_ids`, int32 `[batch, seq]`, and optionally
    `dense_inputs`, float `[batch, n, config.token_width]`: extra sequence elements that the tokens
    attend to;
    `output_positions`, int32 `[batch, n]`: the only tokens whose outputs will be read.

    Attributes:
      config: the `EncoderConfig` that it was built from.
      bert: Model Garden's encoder.
      projection: CMLM's projection where `config.sentence_vector` is `projected_mean`, else None.
      dense: the layer that makes the embedding where `config.dense_size` is above 0, else None.
      token_weights: the weights of tokens where the pooling is weighted, else None.
    """

    def __init__(self, config: EncoderConfig, random_weights: bool = True) -> None:
        """Builds the encoder.

        Args:
          config: its shape.
          random_weights: draw initial weights. False leaves them at zero, for an encoder whose
            weights are then restored: TensorFlow does not free the memory used for drawing.
        """
        super().__init__(name="sentence_encoder", autocast=False)
        config.check()
        config.check_memory()
        self.config = config
        self.bert = build_bert(config, random_weights)
        self.projection = (
            Projection(
                config.num_projections,
                config.hidden_size,
                config.initializer_range,
                config.projection_depth,
                config.projection_width,
            )
            if config.num_projections
            else None
        )
        self.token_weights = TokenWeights(config.vocab_size) if config.pooled_by.weighted else None
        self.dense = None
        if config.dense_size:
            activation = "tanh" if config.dense_activation == "tanh" else None
            sizes = config.hidden_size, config.dense_size
            self.dense = new_dense(config, *sizes, "dense", activation=activation)

    def call(
        self,
        inputs: dict[str, tf.Tensor],
        training: bool | None = None,
        views: int = 1,
        shared_masks: bool = False,
        stream: DropoutStream | None = None,
        vector_only: bool = False,
    ) -> dict[str, tf.Tensor | list[tf.Tensor]]:
        """Encodes a batch.

        Args:
          inputs: see the class.
          training: whether dropout is on.
          views: number of views of the same examples that are concatenated in the batch.
          shared_masks: whether the views share their dropout masks.
          stream: determines dropout masks, see `modeling.dropout`. Default: Keras's generator draws
            them.
          vector_only: do not return token outputs. Outputs of the last block that the pooling does
            not read are then not computed.

        Returns:
          A dict: `default`, the sentence embedding, float32 `[batch, embedding_size]`, of length 1
          only if the config says `normalize`;
          `pooled_output`, the same; `embedding`, `default` before it is normalised; `vector`, what
          CMLM conditions on, before any projection or dense layer, `[batch, hidden]`;
          `sequence_output`, `[batch, seq, hidden]`, and `encoder_outputs`, one such tensor a block.
          Elements that `dense_inputs` added are left out of all of them. With `output_positions`,
          the dict has only `sequence_output`, at these positions, `[batch, n, hidden]`.
        """
        features = {name: inputs[name] for name in INPUT_NAMES}
        length = tf.shape(features["input_word_ids"])[1]
        # Outputs at single positions are not pooled.
        padded = self.config.padded_length if "output_positions" not in inputs else 0
        if padded:
            features = self._pad(features)
        dense = inputs.get("dense_inputs")
        if dense is not None:
            present = tf.ones(tf.shape(dense)[:2], tf.int32)
            features.update(
                dense_inputs=dense, dense_mask=present, dense_type_ids=tf.zeros_like(present)
            )
        if "output_positions" in inputs:
            features["output_positions"] = inputs["output_positions"]
        elif vector_only and self.config.pooled_by.first_token:
            features["output_positions"] = tf.zeros_like(features["input_word_ids"][:, :1])
        # Keras could not save a layer that takes the mode as an argument.
        with DropoutMode(views, shared_masks, stream).active():
            outputs = self.bert(features, training=training)
        if "output_positions" in inputs:
            return {"sequence_output": outputs["sequence_output"]}
        layers = [outputs["embedding_output"], *outputs["encoder_outputs"]]
        mask = features["input_mask"]
        if dense is not None:
            layers = [layer[:, : tf.shape(mask)[1]] for layer in layers]
        counted = with_padding(mask, padded) if padded else mask
        if self.token_weights is not None:
            counted = self.token_weights(features["input_word_ids"], mask)
        vector = sentence_vector(layers, outputs["pooled_output"], counted, self.config.pooled_by)
        if padded:
            layers = [layer[:, :length] for layer in layers]
        embedding = vector
        if self.projection is not None:
            embedding = tf.cast(tf.reduce_mean(self.projection(vector), axis=1), tf.float32)
        if self.dense is not None:
            embedding = tf.cast(self.dense(vector), tf.float32)
        default = unit_length(embedding) if self.config.normalize else embedding
        vectors = {"default": default, "pooled_output": default}
        vectors |= {"embedding": embedding, "vector": vector}
        if vector_only:
            return vectors
        return {**vectors, "sequence_output": layers[-1], "encoder_outputs": layers[1:]}

    def _pad(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the inputs, padded to `config.padded_length` at least; see `pooling.pad`."""
        ids, mask, types = (features[name] for name in INPUT_NAMES)
        length = self.config.padded_length
        ids, mask_of_ids = pad(ids, mask, length, self.config.padding_id)
        types, _ = pad(types, mask, length, 0)
        return dict(zip(INPUT_NAMES, (ids, mask_of_ids, types)))


def encoder_variables(model: SentenceEncoderModel) -> dict[str, tf.Variable]:
    """Returns the encoder's weights by Model Garden's names, without the scopes around the encoder.

    Returns:
      Name -> variable, e.g. `word_embeddings/embeddings` `[vocab, width]`,
      `embedding_projection/kernel` `[width, hidden]` if the table is not as wide as the encoder,
      `transformer/layer_0/self_attention/query/kernel` `[hidden, heads, hidden / heads]`,
      `transformer/layer_0/output/kernel` `[inner, hidden]`, `pooler_transform/bias` `[hidden]`,
      `dense/kernel`, `dense/bias` if the encoder has such a layer, and
      `token_weights/embeddings` `[vocab, 1]` if its pooling is weighted.
    """
    variables = bert_variables(model.bert)
    if model.dense is not None:
        variables |= {"dense/kernel": model.dense.kernel, "dense/bias": model.dense.bias}
    if model.token_weights is not None:
        variables["token_weights/embeddings"] = model.token_weights.embeddings
    return variables
