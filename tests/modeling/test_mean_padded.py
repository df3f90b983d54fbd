"""The mean that includes padding: against NumPy, and the same whatever a batch is padded to."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.modeling.cpu_forward import embed, inference_weights
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import NUM_HEADS, make_tokens, oracle_encoder, pooling_of, randomize
from tests.oracles import cmlm_numpy as oracle
from tests.oracles.bert_numpy import _encoder_block

LENGTHS = [6, 1, 9, 12]


def _encoder(length, **overrides):
    config = tiny_encoder_config(**pooling_of("mean_padded", length), **overrides)
    return randomize(SentenceEncoderModel(config))


def _reference(weights, ids, length, padding_id):
    """Computes the mean over outputs of real tokens and of padding, which no token attends to."""
    real = len(ids)
    ids = [*ids, *[padding_id] * (length - real)]
    embedded = weights["word_embeddings"][ids] + weights["position_embeddings"][: len(ids)]
    states = oracle.layer_norm(
        embedded.astype(np.float64) + weights["type_embeddings"][0],
        weights["embeddings_norm_gamma"],
        weights["embeddings_norm_beta"],
        1e-12,
    )
    for layer in weights["layers"]:
        states = _encoder_block(layer, states, NUM_HEADS, oracle.gelu_tanh, 1e-12, attended=real)
    return states.mean(axis=0)


def _rows(tokens):
    ids, mask = tokens["input_word_ids"].numpy(), tokens["input_mask"].numpy()
    return [row[: real.sum()] for row, real in zip(ids, mask)]


@pytest.mark.parametrize("length", [9, 25, pytest.param(10, marks=pytest.mark.long)])
def test_equals_numpy_whatever_the_batch_is_padded_to(length):
    """Padding counts up to `padded_length` and not after it; a longer row has its plain mean."""
    model = _encoder(length)
    weights = oracle_encoder(model)
    expected = [
        _reference(weights, row, length, padding_id=3) for row in _rows(make_tokens(LENGTHS, 12))
    ]
    for padded in (12, 20, 30):
        tokens = make_tokens(LENGTHS, padded)
        for vector_only in (False, True):
            got = model(tokens, vector_only=vector_only)["default"]
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
        forward = embed(
            inference_weights(model, "float32"),
            model.config,
            None,
            tokens["input_word_ids"],
            tf.constant(LENGTHS),
        )
        np.testing.assert_allclose(forward, expected, rtol=1e-4, atol=1e-5)


def test_token_outputs_keep_the_shape_of_the_batch():
    """Padding that the encoder adds is cut off again; outputs at positions need none."""
    model, tokens = _encoder(25), make_tokens(LENGTHS, 12)
    plain = randomize(SentenceEncoderModel(tiny_encoder_config()))(tokens)
    outputs = model(tokens)
    real = tokens["input_mask"].numpy() > 0
    for got, expected in zip(outputs["encoder_outputs"], plain["encoder_outputs"]):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got.numpy()[real], expected.numpy()[real], atol=1e-5)
    positions = tf.constant([[0]] * 4)
    got = model({**tokens, "output_positions": positions})["sequence_output"][:, 0]
    np.testing.assert_allclose(got, plain["sequence_output"][:, 0], atol=1e-5)


def test_row_without_tokens():
    """The padding of a batch has a vector of zeros, as with the other means."""
    tokens = make_tokens([4, 0], 6)
    vectors = _encoder(9)(tokens)["default"].numpy()
    np.testing.assert_array_equal(vectors[1], np.zeros(16))
    assert np.abs(vectors[0]).max() > 0.1


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"pooling": "mean_padded"}, "padded_length must be above 0"),
        ({"pooling": "mean", "padded_length": 9}, "padded_length must be above 0"),
        ({"pooling": "mean_padded", "padded_length": 513}, "padded_length .513. is longer"),
    ],
)
def test_length_and_pooling_go_together(fields, named):
    """A length without the pooling, and the pooling without a length, say nothing."""
    with pytest.raises(UserError, match=named):
        EncoderConfig(**fields).check()
