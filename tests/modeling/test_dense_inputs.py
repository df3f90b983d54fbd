"""Sentence vectors as extra elements of the sequence, at the last rows of the position table."""

import numpy as np
import tensorflow as tf

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
)
from tests.oracles import cmlm_numpy as oracle

P, N = 48, 3


def test_dense_inputs_equal_the_reference():
    """Tokens see N more elements with rows P − N … P − 1, which leave no output of their own."""
    encoder = randomize(SentenceEncoderModel(tiny_encoder_config()))
    tokens = make_tokens([6, 2, 9], 9)
    dense = np.random.default_rng(9).normal(size=[3, N, 16]).astype(np.float32)
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


def test_gradient_of_the_position_table():
    """Exactly the rows of real tokens and the last N learn."""
    model = build({"cmlm": CmlmConfig(num_projections=N)})
    table = model.encoder.bert._position_embedding_layer.weights[0]
    with tf.GradientTape() as tape:
        loss = model({"cmlm": make_pairs()})["cmlm"].loss
    gradient = tf.convert_to_tensor(tape.gradient(loss, table)).numpy()
    learning = np.flatnonzero(np.abs(gradient).max(axis=1) > 1e-7)
    assert learning.tolist() == [*range(10), *range(P - N, P)]
