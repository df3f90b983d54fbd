"""Under bfloat16 the encoder computes in half precision; losses and embeddings stay float32."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from tests.modeling.helpers import build, make_pairs


def _build(architecture):
    objectives = {
        "cmlm": CmlmConfig(num_projections=3, architecture=architecture),
        "mlm": MlmConfig(),
        "quick_thought": QuickThoughtConfig(logit_scale=5.0),
    }
    return build(objectives, sentence_vector="projected_mean", num_projections=3)


def _features():
    pairs = make_pairs()
    return {
        "cmlm": pairs,
        "mlm": {"segment_masked": pairs["second_masked"]},
        "quick_thought": pairs,
    }


@pytest.mark.parametrize("architecture", ["concat", "skip"])
def test_losses_are_float32_and_finite(bfloat16, architecture):
    """Losses, metrics, embeddings and gradients are float32, finite and near full precision's."""
    model = _build(architecture)
    with tf.GradientTape() as tape:
        outputs = model(_features())
        total = tf.add_n([output.loss for output in outputs.values()])
    tf_keras.mixed_precision.set_global_policy("float32")
    exact = _build(architecture)
    exact.set_weights(model.get_weights())
    for name, expected in exact(_features()).items():
        loss = outputs[name].loss
        assert loss.dtype == tf.float32
        assert float(loss) == pytest.approx(float(expected.loss), rel=0.1)
        # Equal would mean that the policy did nothing.
        assert float(loss) != float(expected.loss)
        for values in outputs[name].metrics.values():
            assert all(value.dtype == tf.float32 for value in values)
    for gradient in tape.gradient(total, model.trainable_variables):
        assert gradient.dtype == tf.float32
        assert np.isfinite(tf.convert_to_tensor(gradient)).all()


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
