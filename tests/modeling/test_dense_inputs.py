"""Sentence vectors as extra elements of the sequence, at the last rows of the position table."""

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.configs import encoders

from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.cmlm import CmlmConfig
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import (
    NUM_HEADS,
    build,
    make_pairs,
    make_tokens,
    oracle_encoder,
    randomize,
    with_row,
)
from tests.oracles import cmlm_numpy as oracle

P, N = 48, 3


@pytest.fixture(scope="module")
def encoder():
    return randomize(SentenceEncoderModel(tiny_encoder_config()))


@pytest.fixture(scope="module")
def model():
    return build({"cmlm": CmlmConfig(num_projections=N)})


@pytest.fixture
def table(model):
    """The position table; its rows are restored after the test."""
    variable = model.encoder.bert._position_embedding_layer.weights[0]
    value = variable.numpy()
    yield variable
    variable.assign(value)


def _dense(batch=3):
    return np.random.default_rng(9).normal(size=[batch, N, 16]).astype(np.float32)


def test_dense_inputs_equal_the_reference(encoder):
    """Tokens see N more elements with rows P − N … P − 1, which leave no output of their own."""
    tokens, dense = make_tokens([6, 2, 9], 9), _dense()
    outputs = encoder({**tokens, "dense_inputs": tf.constant(dense)})
    weights, mask = oracle_encoder(encoder), tokens["input_mask"].numpy()
    for row in range(3):
        reference = oracle.bert_encode(
            weights,
            tokens["input_word_ids"].numpy()[row],
            mask[row],
            [0] * 9,
            NUM_HEADS,
            dense_inputs=dense[row],
            dense_positions=range(P - N, P),
        )
        real = mask[row] > 0
        for layer, expected in zip(outputs["encoder_outputs"], reference):
            assert layer.shape == [3, 9, 16]
            np.testing.assert_allclose(layer[row].numpy()[real], expected[:9][real], 1e-4, 1e-5)
        vector = oracle.mean_pool(reference[-1][:9], mask[row])
        np.testing.assert_allclose(outputs["default"][row], vector, 1e-4, 1e-5)


def test_gradient_of_the_position_table(model, table):
    """Exactly the rows of real tokens and the last N learn."""
    with tf.GradientTape() as tape:
        loss = model({"cmlm": make_pairs()})["cmlm"].loss
    gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
    learning = np.flatnonzero(np.abs(gradient).max(axis=1) > 1e-7)
    assert learning.tolist() == [*range(10), *range(P - N, P)]


def test_rows_of_dense_inputs_do_not_move_plain_encoding(model, table):
    """Without dense inputs the last rows mean nothing."""
    tokens = make_tokens([6, 2], 9)
    before = model.encoder(tokens)["default"].numpy()
    table.assign(with_row(table, P - 1))
    np.testing.assert_array_equal(model.encoder(tokens)["default"], before)


def _change_by_dense_inputs(encode, tokens):
    """Returns how much the token outputs change with the dense inputs."""
    ones = tf.ones([2, N], tf.int32)
    extra = {"dense_mask": ones, "dense_type_ids": tf.zeros_like(ones)}
    one, other = (
        encode({**tokens, **extra, "dense_inputs": tf.constant(scale * _dense(2))}).numpy()
        for scale in (1.0, -1.0)
    )
    return np.abs(one - other)[:, :5].max()


def test_dense_inputs_are_never_ignored(encoder):
    """Our encoder heeds dense inputs; Model Garden's factory type `bert` drops them silently."""
    tokens = make_tokens([5, 5], 5)
    assert _change_by_dense_inputs(lambda x: encoder(x)["sequence_output"], tokens) > 0.1
    settings = encoders.BertEncoderConfig(
        vocab_size=100,
        hidden_size=16,
        num_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=P,
        initializer_range=0.3,
    )
    theirs = encoders.build_encoder(encoders.EncoderConfig(type="bert", bert=settings))
    names = {tensor.name for tensor in theirs.inputs}
    assert names == set(tokens)
    ignored = _change_by_dense_inputs(
        lambda x: theirs({name: x[name] for name in names})["sequence_output"], tokens
    )
    assert ignored == 0
