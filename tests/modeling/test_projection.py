"""CMLM's projection P against the reference."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.modeling.pooling import Projection
from official_cmlm.objectives.cmlm import CmlmConfig
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import build, oracle_projection, randomize
from tests.oracles import cmlm_numpy as oracle


@pytest.mark.parametrize("count", [1, 2, 5])
def test_projection_equals_the_reference(count):
    """Row 0 is the vector itself; row n is network n − 1 of three layers."""
    projection = randomize(Projection(count, 16))
    vectors = np.random.default_rng(0).normal(size=[3, 16]).astype(np.float32)
    projected = projection(tf.constant(vectors))
    assert projected.shape == [3, count, 16]
    networks = oracle_projection(projection)
    expected = [oracle.project(vector, networks) for vector in vectors]
    np.testing.assert_allclose(projected, expected, 1e-4, 1e-5)
    np.testing.assert_array_equal(projected[:, 0], vectors)


@pytest.mark.parametrize(("depth", "width", "between"), [(1, 2.0, 32), (2, 1.0, 16), (4, 0.5, 8)])
def test_other_depths_and_widths_equal_the_reference(depth, width, between):
    """Appendix C tried projections without layers between, more of them, and other widths."""
    config = CmlmConfig(num_projections=3, projection_depth=depth, projection_width=width)
    shape = {"projection_depth": depth, "projection_width": width}
    carried = {"sentence_vector": "projected_mean", "num_projections": 3}
    projection = build({"cmlm": config}).objectives["cmlm"].projection
    assert len(projection.weights) == 2 * depth
    vectors = np.random.default_rng(0).normal(size=[3, 16]).astype(np.float32)
    networks = oracle_projection(projection)
    expected = [oracle.project(vector, networks, depth, between) for vector in vectors]
    np.testing.assert_allclose(projection(tf.constant(vectors)), expected, 1e-4, 1e-5)
    model = build({"cmlm": config}, **carried, **shape)
    assert model.objectives["cmlm"].projection is model.encoder.projection
    assert [w.shape for w in model.encoder.projection.weights] == [
        w.shape for w in projection.weights
    ]
    plain = tiny_encoder_config(vocab_size=100)
    more = plain.replace(**carried, **shape).num_weights() - plain.num_weights()
    assert more == sum(int(np.prod(w.shape)) for w in projection.weights)
    with pytest.raises(UserError, match=r"cmlm.projection_\w+ is .* share one"):
        config.check(plain.replace(**carried), "task.objectives.cmlm")


def test_the_identity_is_counted():
    """N = 1 has no weights, and there is no N = 0."""
    assert Projection(1, 16).weights == []
    with pytest.raises(ValueError, match="at least 1"):
        Projection(0, 16)


def test_networks_begin_different():
    """No two networks begin with the same kernels; equal ones would stay equal for ever."""
    kernels = Projection(5, 16).kernels
    for kernel in kernels:
        flat = kernel.numpy().reshape(4, -1)
        distances = np.abs(flat[:, np.newaxis] - flat[np.newaxis]).max(axis=-1)
        assert (distances[~np.eye(4, dtype=bool)] > 1e-3).all()
