"""The last block at some positions only: the same outputs there, and nothing else computed."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.encoder import POOLINGS
from official_cmlm.modeling.auxiliary_network import AuxiliaryNetwork
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_tokens, pooling_of, randomize

# In any order, twice, and on padding.
POSITIONS = np.array([[3, 0, 3], [1, 0, 0], [8, 7, 2]], np.int32)


def _encoder(**config):
    return randomize(SentenceEncoderModel(tiny_encoder_config(**config)))


@pytest.mark.parametrize("dense", [False, True])
def test_outputs_at_positions_are_those_of_the_whole(dense):
    """Each row's outputs in the order asked for; dense inputs are still attended to."""
    model, inputs = _encoder(), make_tokens([6, 2, 9], 9)
    if dense:
        vectors = np.random.default_rng(0).normal(size=[3, 2, 16])
        inputs["dense_inputs"] = tf.constant(vectors, tf.float32)
    whole = model(inputs)["sequence_output"].numpy()
    got = model({**inputs, "output_positions": tf.constant(POSITIONS)})
    assert list(got) == ["sequence_output"]
    expected = np.stack([row[at] for row, at in zip(whole, POSITIONS)])
    np.testing.assert_allclose(got["sequence_output"], expected, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_alone_are_the_same(pooling):
    """For each pooling; those of the first token ask the last block for nothing else."""
    model, inputs = _encoder(**pooling_of(pooling)), make_tokens([6, 2, 9], 9)
    asked = []
    block = model.bert.transformer_layers[-1]
    dense = block._intermediate_dense.call
    block._intermediate_dense.call = lambda x: asked.append(x.shape) or dense(x)
    expected, got = model(inputs), model(inputs, vector_only=True)
    assert sorted(got) == ["default", "embedding", "pooled_output", "vector"]
    np.testing.assert_allclose(got["vector"], expected["vector"], atol=1e-5)
    of_last = 1 if pooling in ("cls", "cls_pooler") else 9
    assert [tuple(shape) for shape in asked] == [(3, 9, 16), (3, of_last, 16)]


def test_auxiliary_network_at_positions():
    """Its last fusion block too, also where it is the only one."""
    for fusion_layers in (1, 2):
        auxiliary = randomize(AuxiliaryNetwork(tiny_encoder_config(), 1, fusion_layers))
        vectors = tf.constant(np.random.default_rng(0).normal(size=[3, 16]), tf.float32)
        inputs = make_tokens([6, 2, 9], 9)
        whole = auxiliary(inputs, vectors).numpy()
        got = auxiliary(inputs, vectors, tf.constant(POSITIONS))
        expected = np.stack([row[at] for row, at in zip(whole, POSITIONS)])
        np.testing.assert_allclose(got, expected, atol=1e-5)
