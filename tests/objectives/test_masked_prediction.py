"""Logits at masked positions only: the loss of all slots, for shapes that move and that do not."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.masked_prediction import num_masked, predict_masked
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.training.step import whole_gradients
from tests.inputs.blocks import SPECIAL, make_batch, wrap
from tests.modeling.helpers import build, make_masked, make_pairs
from tests.training.helpers import DROPOUT

# Used slots of 3 rows of 5 slots each: 8 in all.
COUNTS = (3, 1, 4)


def test_the_default_is_berts_number():
    """BERT's release takes `round(512 * 0.15)` of a full sequence, which is 77."""
    mask = MlmConfig().masked_copy("text", SPECIAL)
    weights = mask(make_batch([wrap([10] * 510)], 512))["text_masked"]["masked_lm_weights"]
    assert float(tf.reduce_sum(weights)) == round(512 * 0.15) == 77


def _mlm(static, **encoder):
    model = build({"mlm": MlmConfig()}, **encoder)
    model.objectives["mlm"].static_shapes = static
    return model.objectives["mlm"], model


def _outputs(masked):
    shape = [*masked["masked_lm_weights"].shape, 16]
    return tf.constant(np.random.default_rng(3).normal(size=shape), tf.float32)


@pytest.mark.parametrize("static", [False, True])
def test_equals_logits_at_all_slots(static):
    """Sum, hits and weight are those of `[batch, slots, vocabulary]` logits with weights."""
    masked = make_masked((6, 2, 9), 11, COUNTS)
    objective, _ = _mlm(static)
    outputs = _outputs(masked)
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
    """Loss and gradients, with dropout where the encoder has it."""
    key, factor = tf.constant(5, tf.int64), tf.constant(1.0)
    loss, gradients, _ = whole_gradients(model, features, key, factor)
    return [loss, *(tf.convert_to_tensor(g) for g in gradients if g is not None)]


def _long(name, *values):
    return pytest.param(*values, id=name, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("config", "dropout"),
    [
        pytest.param(MlmConfig(), {}, id="mlm"),
        _long("cmlm_skip", CmlmConfig(num_projections=3, architecture="skip"), {}),
        _long("cmlm_dropout", CmlmConfig(num_projections=3), DROPOUT),
    ],
)
def test_static_shapes_compile(config, dropout):
    """XLA compiles loss and gradients, which are those of free shapes, dropout's masks included."""
    name = "mlm" if isinstance(config, MlmConfig) else "cmlm"
    model = build({name: config}, num_layers=1, **dropout)
    batch = {**make_pairs(), "segment_masked": make_masked((6, 2, 9), 11, COUNTS)}
    features = {name: {**batch, "key": tf.range(3, dtype=tf.int64)}}
    expected = _step(model, features)
    model.objectives[name].static_shapes = True
    got = tf.function(_step, jit_compile=True)(model, features)
    assert len(got) == len(expected) > 20
    for value, wanted in zip(got, expected):
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
