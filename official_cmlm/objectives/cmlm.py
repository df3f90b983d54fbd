"""Conditional masked language modelling: predict s2's masked tokens, given s1's sentence vector.

CMLM §2: s1 is encoded and pooled to v; v is projected into N vectors v_p; these are concatenated
to the token embeddings of the masked s2, so that its tokens can attend to them; the same encoder
and BERT's head then predict the masked tokens. To predict well, the encoder has to represent the
meaning of s1 in v.
"""

import dataclasses
from typing import Annotated

import tensorflow as tf
import tf_keras

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, between
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.pipeline import Augment
from official_cmlm.inputs.views import AdjacentPairs, RecordFacts, SpecialIds
from official_cmlm.modeling.pooling import Projection
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    Encode,
    Objective,
    Prediction,
    Vectors,
    register,
)
from official_cmlm.objectives.masked_prediction import (
    MASKED_METRICS,
    MaskingConfig,
    at_predictions,
    num_masked,
    predict_masked,
)

ARCHITECTURES = ("concat", "skip")


@dataclasses.dataclass
class CmlmConfig(MaskingConfig):
    """Settings of `cmlm`, besides those of masking, which apply to s2.

    Attributes:
      num_projections: N, the identity included. Default 15 (§3; Table 7 tries 1, 5, 10, 15, 20).
      projection_depth: layers of each projection; 1 is a linear map. Default 3 (appendix C, which
        also tried linear maps and more layers).
      projection_width: width of the intermediate layers, as a multiple of the hidden size. Default
        2 (appendix C, which also tried others).
      architecture: `concat` (default), the projected vectors join s2's token embeddings; `skip`,
        they are also concatenated with each output that a masked token is predicted from, and a
        linear layer brings the result back to the hidden size (§5.1, Table 7 "skip"; the paper does
        not print the layer).
      masking_rate: number of predicted tokens as a share of s2's length, which counts special
        tokens. Default 0.3125: 80 of 256 (§3; Table 10).
      max_predictions: most predictions a sequence. Default 80 (§3).
    """

    num_projections: Annotated[int, between(1, 1024)] = 15
    projection_depth: Annotated[int, between(1, 64)] = 3
    projection_width: Annotated[float, between(0, 64, above_low=True)] = 2.0
    architecture: Annotated[str, OneOf(ARCHITECTURES)] = "concat"
    masking_rate: Annotated[float, between(0, 1, above_low=True)] = 0.3125
    max_predictions: Annotated[int, between(1, 1 << 20)] = 80

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if encoder_config.embedding_width:
            raise UserError(
                f"{where}: encoder.embedding_width is {encoder_config.embedding_width}, but the "
                "projected sentence vectors, which join the embeddings of tokens, are as wide as "
                "encoder.hidden_size; take another encoder, or another objective"
            )
        for field in ("num_projections", "projection_depth", "projection_width"):
            own, carried = getattr(self, field), getattr(encoder_config, field)
            if encoder_config.num_projections and carried != own:
                raise UserError(
                    f"{where}.{field} is {own} but encoder.{field} is {carried}; they share one "
                    "projection, make them equal"
                )

    def view(self, data: DataConfig, facts: RecordFacts) -> AdjacentPairs:
        return AdjacentPairs(data.segment, data.seq_length, data.swap_probability, facts.special)

    def needs_language_model_head(self) -> bool:
        return True

    def augments(self, special: SpecialIds) -> list[Augment]:
        return [self.mask_tokens("second", special)]

    def extra_positions(self) -> int:
        return self.num_projections


@register("cmlm")
class Cmlm(Objective):
    """Loss per masked token of s2, given s1."""

    config_class = CmlmConfig
    metric_directions = MASKED_METRICS

    def __init__(
        self,
        config: CmlmConfig,
        encoder: SentenceEncoderModel,
        head: tf_keras.layers.Layer,
        static_shapes: bool = False,
    ) -> None:
        super().__init__(config, encoder, head, static_shapes)
        size, stddev = encoder.config.hidden_size, encoder.config.initializer_range
        # With `sentence_vector: projected_mean` the encoder has the projection, and exports it.
        self.projection = encoder.projection or Projection(
            config.num_projections, size, stddev, config.projection_depth, config.projection_width
        )
        self.skip = None
        if config.architecture == "skip":
            self.skip = tf_keras.layers.Dense(
                size,
                kernel_initializer=tf_keras.initializers.TruncatedNormal(stddev=stddev),
                name="skip",
            )
            self.skip.build([None, None, (config.num_projections + 1) * size])

    def predict(self, features: dict, encode: Encode, vectors: Vectors) -> Prediction:
        vector = encode(features["first"], "first")["vector"]
        projected = self.projection(vector)
        masked = features["second_masked"]
        inputs = {**at_predictions(masked), "dense_inputs": projected}
        outputs = encode(inputs, "second_masked")["sequence_output"]
        if self.skip is not None:
            outputs = self._with_skip(outputs, projected)
        return predict_masked(self, outputs, masked)

    def num_predictions(self, features: dict) -> tf.Tensor:
        return num_masked(features["second_masked"])

    def _with_skip(self, outputs: tf.Tensor, projected: tf.Tensor) -> tf.Tensor:
        """Returns `[batch, slots, hidden]`, made of each output and all N projected vectors."""
        shape = tf.shape(projected)
        size = self.projection.num_projections * projected.shape[-1]
        flat = tf.reshape(projected, [shape[0], 1, size])
        beside = tf.broadcast_to(flat, [shape[0], tf.shape(outputs)[1], size])
        return self.skip(tf.concat([outputs, tf.cast(beside, outputs.dtype)], axis=-1))
