"""The CMLM objective end to end against the reference, and what its loss depends on."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.cmlm import CmlmConfig
from tests.modeling.helpers import (
    NUM_HEADS,
    build,
    make_pairs,
    oracle_encoder,
    oracle_head,
    oracle_pairs,
    oracle_projection,
)
from tests.objectives.helpers import compute_masked_tokens
from tests.oracles import cmlm_numpy as oracle

P = 48


def _model(count=3, architecture="concat", **encoder):
    config = CmlmConfig(num_projections=count, architecture=architecture)
    return build({"cmlm": config}, **encoder)


@pytest.mark.parametrize(
    ("count", "encoder"),
    [
        (1, {}),
        (3, {}),
        (15, {}),
        (3, {"pooling": "max"}),
        (3, {"pooling": "cls"}),
        (3, {"hidden_activation": "relu"}),
        (3, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
)
def test_loss_equals_the_reference(count, encoder):
    """Loss per masked token over the whole batch, for each N and pooling."""
    model = _model(count, **encoder)
    features = make_pairs()
    expected = oracle.cmlm_loss(
        oracle_pairs(features),
        oracle_encoder(model.encoder),
        oracle_projection(model.objectives["cmlm"].projection),
        oracle_head(model.head),
        NUM_HEADS,
        count,
        range(P - count, P),
        pooling=encoder.get("pooling", "mean"),
        activation=oracle.relu if encoder.get("hidden_activation") else oracle.gelu_tanh,
    )
    output = model({"cmlm": features})["cmlm"]
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    total, weight = output.metrics["masked_token_loss"]
    assert float(weight) == 8.0
    assert float(total) == pytest.approx(8.0 * expected, rel=1e-4)


def test_skip_equals_the_reference():
    """`skip`: each output beside all N vectors in order, through one linear layer to the head."""
    model, features = _model(architecture="skip"), make_pairs()
    cmlm, masked = model.objectives["cmlm"], features["second_masked"]
    projected = cmlm.projection(model.encoder(features["first"])["vector"])
    outputs = model.encoder({**masked, "dense_inputs": projected})["sequence_output"].numpy()
    kernel, bias = (w.numpy() for w in cmlm.skip.weights)
    beside = [
        [np.concatenate([output, *vectors]) @ kernel + bias for output in row]
        for row, vectors in zip(outputs, projected.numpy())
    ]
    expected, _, _ = compute_masked_tokens(model, [masked], [beside])
    assert float(model({"cmlm": features})["cmlm"].loss) == pytest.approx(expected, rel=1e-4)


def test_gradient_reaches_the_words_of_the_first_sentence():
    """Through the vector alone: seen at token types, of which only s1 has the second one."""
    model, features = _model(), make_pairs()
    first = features["first"]
    features["first"] = {**first, "input_type_ids": tf.ones_like(first["input_type_ids"])}
    types = model.encoder.bert._type_embedding_layer.weights[0]
    with tf.GradientTape() as tape:
        loss = model({"cmlm": features})["cmlm"].loss
    gradient = tf.convert_to_tensor(tape.gradient(loss, types)).numpy()
    assert np.abs(gradient[1]).max() > 1e-5


def test_nothing_to_predict():
    """A batch without predictions has the loss 0 and finite gradients."""
    model, features = _model(), make_pairs()
    masked = features["second_masked"]
    nothing = tf.zeros_like(masked["masked_lm_weights"])
    features["second_masked"] = {**masked, "masked_lm_weights": nothing}
    with tf.GradientTape() as tape:
        loss = model({"cmlm": features})["cmlm"].loss
    assert float(loss) == 0.0
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert not np.abs(tf.convert_to_tensor(gradient)).any()
