"""Under bfloat16 the encoder computes in half precision; losses and embeddings stay float32."""

import numpy as np
import tensorflow as tf

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
