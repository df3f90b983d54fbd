"""Logits at masked positions only: the loss of all slots, for shapes that move and that do not."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.masked_prediction import num_masked, predict_masked
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.training.step import compute_at_once
from tests.inputs.blocks import SPECIAL, make_batch, wrap
from tests.modeling.helpers import build, make_masked, make_pairs


def test_the_default_is_berts_number():
    """BERT's release takes `round(512 * 0.15)` of a full sequence, which is 77."""
    mask = MlmConfig().mask_tokens("text", SPECIAL)
    weights = mask(make_batch([wrap([10] * 510)], 512))["text_masked"]["masked_lm_weights"]
    assert float(tf.reduce_sum(weights)) == round(512 * 0.15) == 77


@pytest.mark.parametrize("static", [False, True])
def test_equals_logits_at_all_slots(static):
    """Sum, hits and weight are those of `[batch, slots, vocabulary]` logits with weights."""
    # Used slots of 3 rows of 5 slots each: 8 in all.
    masked = make_masked((6, 2, 9), 11, (3, 1, 4))
    objective = build({"mlm": MlmConfig()}).objectives["mlm"]
    objective.static_shapes = static
    outputs = tf.random.stateless_normal([3, 5, 16], [3, 3])
    slots = tf.broadcast_to(tf.range(5), [3, 5])
    expected = masked_cross_entropy(
        objective.head(outputs, masked_positions=slots),
        masked["masked_lm_ids"],
        masked["masked_lm_weights"],
    )
    got = predict_masked(objective, outputs, masked)
    accuracy, _ = got.metrics["masked_token_accuracy"]
    np.testing.assert_allclose([got.total, accuracy, got.weight], expected, rtol=1e-5)
    assert float(num_masked(masked)) == float(got.weight) == 8.0


def _step(model, features):
    """Returns the loss and all gradients."""
    key, factor = tf.constant(5, tf.int64), tf.constant(1.0)
    loss, gradients, _ = compute_at_once(model, features, key, factor)
    return [loss, *(tf.convert_to_tensor(g) for g in gradients if g is not None)]


@pytest.mark.long
def test_skip_compiles_with_static_shapes():
    """XLA computes the same; `test_step_matrix.py` compiles the other objectives."""
    model = build({"cmlm": CmlmConfig(num_projections=3, architecture="skip")}, num_layers=1)
    features = {"cmlm": {**make_pairs(), "key": tf.range(3, dtype=tf.int64)}}
    expected = _step(model, features)
    model.objectives["cmlm"].static_shapes = True
    got = tf.function(_step, jit_compile=True)(model, features)
    assert len(got) == len(expected) > 20
    for value, wanted in zip(got, expected):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
