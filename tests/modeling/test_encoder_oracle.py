"""`SentenceEncoderModel` against the reference that was written from the papers."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import (
    NUM_HEADS,
    make_tokens,
    oracle_encoder,
    oracle_projection,
    randomize,
)
from tests.oracles import cmlm_numpy as oracle

ACTIVATIONS = {
    "gelu": oracle.gelu_tanh,
    "gelu_exact": oracle.gelu_erf,
    "relu": oracle.relu,
}


def _encoder(**overrides):
    return randomize(SentenceEncoderModel(tiny_encoder_config(**overrides)))


@pytest.fixture(scope="module")
def tokens():
    return make_tokens([6, 1, 9], 9, types=True)


def _reference(model, tokens):
    """Outputs of every layer, `[layers][batch]`."""
    weights, activation = oracle_encoder(model), ACTIVATIONS[model.config.hidden_activation]
    rows = [
        oracle.bert_encode(weights, *row, num_heads=NUM_HEADS, activation=activation)
        for row in zip(*(tokens[f"input_{n}"].numpy() for n in ("word_ids", "mask", "type_ids")))
    ]
    return list(zip(*rows))


@pytest.mark.parametrize(
    "overrides",
    [
        *({"hidden_activation": name} for name in ACTIVATIONS),
        # As ALBERT's: normalised at their width, then a linear layer to the encoder's.
        {"embedding_width": 6},
        {"embedding_width": 24},
    ],
    ids=str,
)
def test_every_layer_equals_the_reference(tokens, overrides):
    """Real tokens have the reference's outputs in every layer, whatever the padding holds."""
    model = _encoder(**overrides)
    outputs, reference = model(tokens), _reference(model, tokens)
    assert len(reference) == 2
    real = tokens["input_mask"].numpy() > 0
    for got, expected in zip(outputs["encoder_outputs"], reference, strict=True):
        np.testing.assert_allclose(got.numpy()[real], np.stack(expected)[real], 1e-4, 1e-5)
    np.testing.assert_array_equal(outputs["sequence_output"], outputs["encoder_outputs"][-1])


def test_projected_mean_is_the_mean_of_the_projections(tokens):
    """`default` is the mean over all N projections, the identity included; `vector` stays v."""
    model = _encoder(sentence_vector="projected_mean", num_projections=4)
    outputs = model(tokens)
    networks = oracle_projection(model.projection)
    last = _reference(model, tokens)[-1]
    vectors = [oracle.mean_pool(*row) for row in zip(last, tokens["input_mask"].numpy())]
    expected = [oracle.project(vector, networks).mean(axis=0) for vector in vectors]
    np.testing.assert_allclose(outputs["default"], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(outputs["vector"], vectors, 1e-4, 1e-5)
    assert outputs["default"].dtype == tf.float32
