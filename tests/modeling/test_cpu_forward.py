"""The forward pass of `encode` against the Keras encoder, for every kind of encoder."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.encoder import POOLINGS
from official_cmlm.modeling.cpu_forward import embed, inference_weights, join_kernels
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.export.serving_ops import trace_ops
from tests.modeling.helpers import make_tokens, pooling_of, randomize

LENGTHS = [6, 1, 9, 3]


def _both(precision="float32", joined=False, **overrides):
    """`embed` in a graph of unknown shapes, and the model's own `default`.

    With `joined` the weights are constants with one product for query, key and value.
    """
    model = randomize(SentenceEncoderModel(tiny_encoder_config(**overrides)))
    tokens = make_tokens(LENGTHS, 11)
    weights = inference_weights(model, precision)
    if joined:
        arrays = {name: variable.numpy() for name, variable in weights.items()}
        weights = {k: tf.constant(v) for k, v in join_kernels(arrays, model.config).items()}
        apart = sum("self_attention/query/kernel" in name for name in weights)
        assert apart == model.config.pooled_by.first_token
    forward = tf.function(
        lambda ids, lengths: embed(weights, model.config, model.projection, ids, lengths),
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None], tf.int32)],
    )
    ids = tokens["input_word_ids"]
    return forward(ids, tf.constant(LENGTHS)).numpy(), model(tokens)["default"].numpy()


@pytest.mark.parametrize("joined", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"pooling": "cls"},
        {"pooling": "max"},
        {"pooling": "cls_pooler"},
        {"pooling": "first_last"},
        {"pooling": "embedding_last", "embedding_width": 6},
        pooling_of("mean_padded", 8),
        pooling_of("mean_padded", 20),
        {"hidden_activation": "gelu_exact"},
        {"hidden_activation": "relu"},
        {"layer_norm_epsilon": 0.1},
        {"position_offset": 2, "type_vocab_size": 1},
        {"type_vocab_size": 0},
        {"relative_position_buckets": 32},
        {"embedding_width": 6},
        {"embedding_width": 24, "position_offset": 2, "type_vocab_size": 0},
        {"normalize": True},
        {"sentence_vector": "projected_mean", "num_projections": 4},
        {"sentence_vector": "projected_mean", "num_projections": 4, "normalize": True},
        {"num_layers": 1, "pooling": "cls", "num_attention_heads": 4},
        {"num_layers": 1, "pooling": "cls_pooler", "normalize": True},
        {"num_layers": 1, "pooling": "first_last"},
        {"pooling": "weighted_mean"},
        {"num_layers": 0, "pooling": "weighted_mean", "dense_size": 5, "normalize": True},
        {"num_layers": 0, "embedding_width": 6},
        {"num_layers": 3, "pooling": "first_last", "normalize": True},
        {"pooling": "cls_pooler", "sentence_vector": "projected_mean", "num_projections": 4},
    ],
    ids=lambda overrides: "-".join(f"{k}={v}" for k, v in overrides.items()) or "default",
)
def test_same_embedding(overrides, joined):
    """To 1e-5, whatever the padding holds."""
    got, expected = _both(joined=joined, **overrides)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert got.dtype == np.float32 and np.abs(np.diff(expected, axis=0)).min() > 0


@pytest.mark.parametrize("pooling", POOLINGS)
def test_poolings_in_bfloat16(pooling):
    """Copies in half precision give nearly the same vector with every pooling."""
    got, expected = _both("bfloat16", **pooling_of(pooling))
    assert got.dtype == np.float32
    cosines = (got * expected).sum(1) / np.linalg.norm(got, axis=1)
    assert (cosines / np.linalg.norm(expected, axis=1)).min() > 0.99


@pytest.mark.parametrize("optimised", [True, False])
def test_layer_normalisation(optimised, monkeypatch):
    """Equal ways; where graphs stay as written, none that oneDNN cannot compute in two threads."""
    options = {} if optimised else {"disable_meta_optimizer": True}
    monkeypatch.setattr(tf.config.optimizer, "get_experimental_options", lambda: options)
    model = randomize(SentenceEncoderModel(tiny_encoder_config()))
    tokens, weights = make_tokens(LENGTHS, 11), inference_weights(model, "float32")
    forward = tf.function(
        lambda ids, lengths: embed(weights, model.config, model.projection, ids, lengths)
    )
    given = tokens["input_word_ids"], tf.constant(LENGTHS)
    np.testing.assert_allclose(forward(*given), model(tokens)["default"], atol=1e-5)
    assert ("FusedBatchNormV3" in trace_ops(forward, *given)) == optimised


def test_unknown_precision():
    model = SentenceEncoderModel(tiny_encoder_config())
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16; got 'int8'"):
        inference_weights(model, "int8")
