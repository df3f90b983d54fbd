"""CMLM-CSE's auxiliary network: a frozen copy of the first layers, and the fusion on top."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.modeling.auxiliary_network import AuxiliaryNetwork
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import NUM_HEADS, make_tokens, oracle_block, randomize
from tests.oracles import bert_numpy as oracle

pytestmark = pytest.mark.usefixtures("fixed_seed")

LENGTHS = [6, 2, 9, 4]
ON = {"dropout_rate": 0.3, "attention_dropout_rate": 0.3, "drophead_rate": 0.3}


def _build(lexical_layers=2, fusion_layers=2, **overrides):
    """Returns an encoder of three layers, and the network that is copied from it."""
    encoder = randomize(SentenceEncoderModel(tiny_encoder_config(num_layers=3, **overrides)))
    auxiliary = AuxiliaryNetwork(encoder.config, lexical_layers, fusion_layers)
    randomize(auxiliary, seed=7)
    auxiliary.copy_from(encoder)
    return encoder, auxiliary


def _vectors(seed=3):
    return tf.constant(np.random.default_rng(seed).normal(size=[4, 16]), tf.float32)


def _fusion_input(auxiliary, tokens, vectors, training=False):
    """Returns what the first fusion block gets: `[batch, seq, hidden]` and the attention mask."""
    seen, block = [], auxiliary.fusion[0]
    original = block.call

    def recording(inputs, output_range=None):
        seen.append(inputs)
        return original(inputs, output_range)

    block.call = recording
    auxiliary(tokens, vectors, training=training)
    block.call = original
    ((hidden, mask),) = seen
    return hidden.numpy(), mask.numpy()


@pytest.mark.parametrize(
    ("lexical_layers", "overrides"),
    [
        (1, ON),
        (3, ON),
        (2, {"layer_norm_epsilon": 0.1, "hidden_activation": "relu"}),
        (2, {"position_offset": 2, "type_vocab_size": 1}),
        (2, {"type_vocab_size": 0, "pooling": "cls_pooler"}),
        (2, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
    ids=str,
)
def test_extractor_is_the_first_layers_of_the_encoder(lexical_layers, overrides):
    """After `copy_from` it has exactly the encoder's outputs of that layer."""
    encoder, auxiliary = _build(lexical_layers, 1, **overrides)
    tokens = make_tokens(LENGTHS, 9)
    expected = encoder(tokens, training=False)["encoder_outputs"][lexical_layers - 1].numpy()
    got = auxiliary.extractor(tokens)["sequence_output"]
    np.testing.assert_array_equal(got, expected)
    for training in (False, True):
        hidden, _ = _fusion_input(auxiliary, tokens, _vectors(), training)
        np.testing.assert_array_equal(hidden[:, 1:], expected[:, 1:])


def test_no_gradient_reaches_the_extractor():
    """The fusion and the vector learn; no optimizer sees the extractor, nor would it learn."""
    _, auxiliary = _build()
    frozen, trained = auxiliary.extractor.weights, auxiliary.trainable_variables
    assert {v.ref() for v in trained} == {v.ref() for b in auxiliary.fusion for v in b.weights}
    assert len(trained) == 2 * 16 and len(auxiliary.weights) == len(trained) + len(frozen)
    vectors = _vectors()
    with tf.GradientTape() as tape:
        tape.watch([vectors, *frozen])
        outputs = auxiliary(make_tokens(LENGTHS, 9), vectors, training=True)
        loss = tf.reduce_sum(outputs * tf.random.normal(tf.shape(outputs)))
    of_vectors, *of_frozen = tape.gradient(loss, [vectors, *frozen])
    assert np.abs(of_vectors).max() > 1e-5 and of_frozen == [None] * len(frozen)


@pytest.mark.parametrize(
    ("overrides", "activation"),
    [
        ({}, oracle.gelu_tanh),
        ({"hidden_activation": "gelu_exact"}, oracle.gelu_erf),
        ({"hidden_activation": "relu", "layer_norm_epsilon": 0.1}, oracle.relu),
    ],
)
@pytest.mark.parametrize("fusion_layers", [pytest.param(1, marks=pytest.mark.long), 3])
def test_fusion_equals_the_reference(overrides, activation, fusion_layers):
    """The fusion's blocks are BERT's, with the encoder's shape, activation and epsilon."""
    encoder, auxiliary = _build(2, fusion_layers, **overrides)
    tokens, vectors = make_tokens(LENGTHS, 9), _vectors().numpy()
    got = auxiliary(tokens, tf.constant(vectors), training=True).numpy()
    lexical = encoder(tokens)["encoder_outputs"][1].numpy()
    epsilon = encoder.config.layer_norm_epsilon
    for row, length in enumerate(LENGTHS):
        states = np.concatenate([vectors[row : row + 1], lexical[row, 1:length]]).astype(float)
        for block in auxiliary.fusion:
            states = oracle._encoder_block(
                oracle_block(block), states, NUM_HEADS, activation, epsilon
            )
        np.testing.assert_allclose(got[row, :length], states, 1e-4, 1e-5)


def test_in_half_precision(bfloat16):
    """Under bfloat16 outputs are near full precision's and the vector's gradient is finite."""
    encoder, auxiliary = _build()
    tokens, vectors = make_tokens(LENGTHS, 9), _vectors()
    with tf.GradientTape() as tape:
        tape.watch(vectors)
        outputs = auxiliary(tokens, vectors, training=True)
        loss = tf.reduce_sum(tf.cast(outputs, tf.float32) ** 2)
    assert auxiliary.fusion[0].compute_dtype == "bfloat16"
    activated = auxiliary.fusion[0]._intermediate_activation_layer(tf.constant([1.0], tf.bfloat16))
    assert activated.dtype == tf.bfloat16
    gradient = tape.gradient(loss, vectors)
    assert gradient.dtype == tf.float32 and np.isfinite(gradient).all()
    tf_keras.mixed_precision.set_global_policy("float32")
    exact = AuxiliaryNetwork(encoder.config, 2, 2)
    exact.set_weights(auxiliary.get_weights())
    difference = tf.cast(outputs, tf.float32) - exact(tokens, vectors)
    assert 0 < np.abs(difference).mean() < 0.1
