"""Dropout as a function of (seed, step, call, layer, row): chunks, views, steps and layers."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.dropout import (
    AttentionDropout,
    DropoutMode,
    DropoutStream,
    RepeatableDropout,
    threshold_of,
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


@pytest.mark.parametrize(("rate", "exact"), [(0.4, 102 / 256), (0.01, 655 / 65536)])
def test_rate_and_scale(rate, exact):
    """Units are dropped at the nearest rate of 8 bits, or of 16; the others are scaled by it."""
    bits, threshold = threshold_of(rate)
    assert threshold / 2**bits == exact
    dropped = _drop(RepeatableDropout(rate, 7), tf.ones([40, 1000]), _stream(3))
    deviation = (rate * (1 - rate)) ** 0.5
    # Five standard errors.
    assert np.mean(dropped == 0) == pytest.approx(exact, abs=5 * deviation / 40000**0.5)
    np.testing.assert_allclose(dropped[dropped != 0], 1 / (1 - exact), rtol=1e-6)
    # Neither rows nor columns are alike, and the parts of a random number neither.
    assert np.abs((dropped == 0).mean(axis=0) - exact).max() < 6 * deviation / 40**0.5
    assert np.abs((dropped == 0).mean(axis=1) - exact).max() < 5 * deviation / 1000**0.5
    quarters = np.split(dropped[:, :992] == 0, 4, axis=1)
    for other in quarters[1:]:
        both = np.mean(quarters[0] & other)
        assert both == pytest.approx(exact**2, abs=5 * exact / (40 * 248) ** 0.5)


def test_rate_0_changes_nothing():
    np.testing.assert_array_equal(_drop(RepeatableDropout(0.0, 7), INPUTS, _stream(3)), INPUTS)


@pytest.mark.parametrize("rate", [1e-9, 0.001, 0.05, 0.1, 0.3, 0.999, 1 - 1e-9])
def test_the_rate_of_few_bits_is_near(rate):
    """Within 2 % of the rate, or a 65,536th; never all units."""
    bits, threshold = threshold_of(rate)
    assert abs(threshold / 2**bits - rate) <= max(0.02 * rate, 2**-16) and threshold < 2**bits


@pytest.mark.parametrize("name", ["units", "both"])
@pytest.mark.parametrize("compiled", [False, True])
def test_masks_that_are_drawn_again_are_the_same(name, compiled):
    """Outputs and gradients are those of masks that are kept."""
    layer, weights = _layers()[name], tf.random.stateless_normal(INPUTS.shape, [1, 2])

    @tf.function(jit_compile=compiled)
    def outputs(recomputes):
        stream = dataclasses.replace(_stream(7, 3), recomputes=recomputes)
        with tf.GradientTape() as tape, DropoutMode(2, stream=stream).active():
            tape.watch(INPUTS)
            dropped = layer(INPUTS, training=True)
        return dropped, tape.gradient(dropped, INPUTS, weights)

    kept, again = outputs(False), outputs(True)
    np.testing.assert_array_equal(kept[0], again[0])
    np.testing.assert_allclose(kept[0], _drop(layer, INPUTS, _stream(7, 3), 2), rtol=1e-6)
    np.testing.assert_allclose(kept[1], again[1], rtol=1e-6)
    assert 0 < np.count_nonzero(kept[1]) < kept[1].numpy().size
