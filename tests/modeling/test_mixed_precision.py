"""Under bfloat16 the encoder computes in half precision; losses and embeddings stay float32."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.bert import get_activation
from official_cmlm.modeling.dropout import DropoutStream
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import build, make_pairs, make_tokens, randomize
from tests.training.helpers import DROPOUT


def _build(architecture):
    objectives = {
        "cmlm": CmlmConfig(num_projections=3, architecture=architecture),
        "mlm": MlmConfig(),
        "quick_thought": QuickThoughtConfig(logit_scale=5.0),
    }
    return build(objectives, sentence_vector="projected_mean", num_projections=3)


def test_embedding_is_float32(bfloat16):
    """`default` and `vector` are float32 although the layers are not; weights are float32."""
    model = _build("concat")
    outputs = model.encoder(make_pairs()["first"])
    assert model.encoder.bert.compute_dtype == "bfloat16"
    assert outputs["default"].dtype == outputs["vector"].dtype == tf.float32
    assert np.isfinite(outputs["default"]).all()
    assert {variable.dtype for variable in model.weights} == {tf.float32}


def test_weights_of_predictions_are_counted_exactly(bfloat16):
    """301 predictions count as 301; bfloat16 knows no number between 300 and 302."""
    model = build({"mlm": MlmConfig()})
    lengths = [43] * 7
    masked = make_pairs(43, lengths, lengths, lengths)["second_masked"]
    output = model({"mlm": {"segment_masked": masked}})["mlm"]
    assert float(output.metrics["masked_token_loss"][1]) == 301.0


@pytest.mark.parametrize("activation", ["gelu", "gelu_exact"])
def test_activations_and_norms_that_are_computed_again(bfloat16, activation):
    """Compiled steps keep their inputs in 16 bits; gradients are those of other steps."""
    config = tiny_encoder_config(num_layers=2, hidden_activation=activation, **DROPOUT)
    model, tokens = randomize(SentenceEncoderModel(config)), make_tokens([6, 2, 9], 9)
    for inputs in (tf.constant([-3.0, -0.5, 1.0], tf.bfloat16), tf.constant([-3.0, -0.5, 1.0])):
        outputs = get_activation(activation)(inputs)
        exact = tf.nn.gelu(tf.cast(inputs, tf.float32), approximate=activation == "gelu")
        np.testing.assert_array_equal(outputs, tf.cast(exact, inputs.dtype))

    def gradients(recomputes):
        stream = DropoutStream(tf.constant(7, tf.int64), tf.constant(0, tf.int64), recomputes)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tokens, training=True, stream=stream)["default"][:, ::2])
        values = tape.gradient(loss, model.bert.transformer_layers[0].trainable_weights)
        assert {gradient.dtype for gradient in values} == {tf.float32}
        return np.concatenate([np.ravel(gradient) for gradient in values])

    kept, again = gradients(False), gradients(True)
    assert 0 < np.linalg.norm(kept - again) < 0.02 * np.linalg.norm(kept)
