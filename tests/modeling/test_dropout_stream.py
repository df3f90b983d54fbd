"""Dropout as a function of (seed, step, call, layer, row): chunks, views, steps and layers."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.dropout import (
    AttentionDropout,
    DropoutMode,
    DropoutStream,
    RepeatableDropout,
    current_mode,
)


def _stream(key, first_row=0):
    return DropoutStream(tf.constant(key, tf.int64), tf.constant(first_row, tf.int64))


def _dropped(layer, inputs, stream, views=1, shared=False):
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
def test_a_row_has_the_same_mask_in_any_chunk(name):
    """The masks of rows 4 to 8 are those rows of the whole batch's."""
    layers = _layers()
    whole = _dropped(layers[name], INPUTS, _stream(7))
    for start, stop in ((0, 12), (4, 8), (11, 12)):
        part = _dropped(layers[name], INPUTS[start:stop], _stream(7, start))
        np.testing.assert_array_equal(part, whole[start:stop])
    assert len(np.unique(whole.reshape(12, -1) == 0, axis=0)) > 3


@pytest.mark.parametrize("name", ["units", "attention", "heads", "both"])
def test_views_in_chunks(name):
    """Each view draws for itself, row by row; shared ones draw once."""
    layers = _layers()
    both = tf.concat([INPUTS, INPUTS], axis=0)
    for shared in (False, True):
        whole = _dropped(layers[name], both, _stream(7), 2, shared)
        first, second = np.split(whole, 2)
        assert np.array_equal(first, second) == shared
        chunk = tf.concat([INPUTS[4:8], INPUTS[4:8]], axis=0)
        part = _dropped(layers[name], chunk, _stream(7, 4), 2, shared)
        np.testing.assert_array_equal(part, np.concatenate([first[4:8], second[4:8]]))


def test_keys_and_layers_differ():
    """The same key gives the same mask; another key, or another layer, another one."""
    layers = _layers()
    ones = tf.ones([8, 16, 16])
    first = _dropped(layers["units"], ones, _stream(1))
    np.testing.assert_array_equal(_dropped(layers["units"], ones, _stream(1)), first)
    others = [
        _dropped(layers["units"], ones, _stream(2)),
        _dropped(layers["units"], ones, _stream(-1)),
        _dropped(RepeatableDropout(0.4, 7), ones, _stream(1)),
    ]
    for other in others:
        # Independent masks agree where both keep or both drop: 0.36 + 0.16.
        assert np.mean((other != 0) == (first != 0)) == pytest.approx(0.52, abs=0.05)


def test_rate_and_scale():
    """40 % of 40,000 units are dropped, within four standard errors; the others are scaled."""
    dropped = _dropped(RepeatableDropout(0.4, 7), tf.ones([40, 1000]), _stream(3))
    assert np.mean(dropped == 0) == pytest.approx(0.4, abs=4 * (0.24 / 40000) ** 0.5)
    np.testing.assert_allclose(dropped[dropped != 0], 1 / 0.6, rtol=1e-6)
    # Neither rows nor columns are alike.
    assert np.abs((dropped == 0).mean(axis=0) - 0.4).max() < 5 * (0.24 / 40) ** 0.5
    assert np.abs((dropped == 0).mean(axis=1) - 0.4).max() < 5 * (0.24 / 1000) ** 0.5


def test_in_a_graph_of_unknown_shape():
    """Traced once, a layer follows the key and the row that it is given."""
    layer = RepeatableDropout(0.4, 0)

    @tf.function(input_signature=[tf.TensorSpec([None, None, None]), tf.TensorSpec([], tf.int64)])
    def run(inputs, first_row):
        with DropoutMode(stream=DropoutStream(tf.constant(5, tf.int64), first_row)).active():
            return layer(inputs, training=True)

    inputs = tf.ones([6, 3, 7])
    whole = run(inputs, tf.constant(0, tf.int64)).numpy()
    np.testing.assert_array_equal(run(inputs[2:], tf.constant(2, tf.int64)), whole[2:])
    assert current_mode() == DropoutMode()


def test_gradients_have_the_mask():
    """A dropped unit has no gradient, a kept one the scale."""
    layer, inputs = RepeatableDropout(0.4, 0), tf.ones([4, 9])
    with tf.GradientTape() as tape, DropoutMode(stream=_stream(1)).active():
        tape.watch(inputs)
        outputs = layer(inputs, training=True)
    np.testing.assert_allclose(tape.gradient(outputs, inputs), outputs, rtol=1e-6)
