"""Dropout as a function of (seed, step, call, layer, row): chunks, views, steps and layers."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.dropout import (
    AttentionDropout,
    DropoutMode,
    DropoutStream,
    RepeatableDropout,
)


def _stream(key, first_row=0):
    return DropoutStream(tf.constant(key, tf.int64), tf.constant(first_row, tf.int64))


def _drop(layer, inputs, stream, views=1, shared=False):
    with DropoutMode(views, shared, stream).active():
        return layer(inputs, training=True).numpy()


def _layers():
    return {
        "units": RepeatableDropout(0.4, 0),
        "attention": AttentionDropout(0.4, 0.0, 1),
        "heads": AttentionDropout(0.0, 0.4, 3),
        "both": AttentionDropout(0.3, 0.3, 5),
    }


# The last two dimensions' product is not a multiple of four, as with any padded length.
INPUTS = tf.constant(np.random.default_rng(0).uniform(0.5, 1, [12, 3, 5, 5]), tf.float32)


@pytest.mark.parametrize("name", ["units", "attention", "heads", "both"])
@pytest.mark.parametrize(("views", "shared"), [(1, False), (2, False), (2, True)])
def test_a_row_has_the_same_mask_in_any_chunk(name, views, shared):
    """Each view draws for itself, row by row; shared ones draw once."""
    layer = _layers()[name]
    whole = _drop(layer, tf.concat([INPUTS] * views, axis=0), _stream(7), views, shared)
    whole = np.split(whole, views)
    assert np.array_equal(whole[0], whole[-1]) == (shared or views == 1)
    for start, stop in ((0, 12), (4, 8), (11, 12)):
        chunk = tf.concat([INPUTS[start:stop]] * views, axis=0)
        part = _drop(layer, chunk, _stream(7, start), views, shared)
        np.testing.assert_array_equal(part, np.concatenate([rows[start:stop] for rows in whole]))
    assert len(np.unique(whole[0].reshape(12, -1) == 0, axis=0)) > 3


def test_keys_and_layers_differ():
    """The same key gives the same mask; another key, or another layer, another one."""
    layers = _layers()
    ones = tf.ones([8, 16, 16])
    first = _drop(layers["units"], ones, _stream(1))
    np.testing.assert_array_equal(_drop(layers["units"], ones, _stream(1)), first)
    others = [
        _drop(layers["units"], ones, _stream(2)),
        _drop(layers["units"], ones, _stream(-1)),
        _drop(RepeatableDropout(0.4, 7), ones, _stream(1)),
    ]
    for other in others:
        # Independent masks agree where both keep or both drop: 0.36 + 0.16.
        assert np.mean((other != 0) == (first != 0)) == pytest.approx(0.52, abs=0.05)


def test_rate_and_scale():
    """40 % of 40,000 units are dropped, within four standard errors; the others are scaled."""
    dropped = _drop(RepeatableDropout(0.4, 7), tf.ones([40, 1000]), _stream(3))
    assert np.mean(dropped == 0) == pytest.approx(0.4, abs=4 * (0.24 / 40000) ** 0.5)
    np.testing.assert_allclose(dropped[dropped != 0], 1 / 0.6, rtol=1e-6)
    # Neither rows nor columns are alike.
    assert np.abs((dropped == 0).mean(axis=0) - 0.4).max() < 5 * (0.24 / 40) ** 0.5
    assert np.abs((dropped == 0).mean(axis=1) - 0.4).max() < 5 * (0.24 / 1000) ** 0.5
