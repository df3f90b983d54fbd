"""Embeddings of a byte or a bit a dimension."""

import numpy as np
import pytest

from official_cmlm.quantization import from_int8, ranges_of, to_int8, to_ubinary


def _vectors(count=200, width=24, seed=0):
    return np.random.default_rng(seed).standard_normal([count, width]).astype(np.float32)


def test_codes_are_those_of_sentence_transformers():
    """Its `quantize_embeddings` of version 6.2 gave these, of the same ranges."""
    ranges = np.array([[-1, 0, 2], [1, 10, 2]], np.float32)
    vectors = np.array(
        [[-1, 0, 2], [1, 10, 2], [0, 5, 3], [-0.99, 0.05, 1], [9, -9, 2], [0.5, 7.77, 2]],
        np.float32,
    )
    expected = [
        [-128, -128, -128],
        [126, 126, -128],
        [-1, -1, -127],
        [-127, -127, -128],
        [127, -128, -128],
        [63, 70, -128],
    ]
    assert to_int8(vectors, ranges).tolist() == expected


def test_codes_of_int8_are_half_a_step_off_at_most():
    vectors = _vectors()
    ranges = ranges_of(vectors)
    step = (ranges[1] - ranges[0]) / 255
    off = np.abs(from_int8(to_int8(vectors, ranges), ranges) - vectors)
    # In float32; the upper end itself belongs to the last step.
    assert (off <= step * 0.501).all()
    assert (off > step * 0.4).any()


def test_values_outside_of_the_range_get_its_ends():
    ranges = ranges_of(_vectors())
    codes = to_int8(np.array([[-1e6], [1e6]]) * np.ones([1, 24]), ranges)
    assert (codes[0] == -128).all() and (codes[1] == 127).all()


def test_a_constant_dimension_is_kept():
    vectors = _vectors()
    vectors[:, 3] = 0.25
    ranges = ranges_of(vectors)
    assert (from_int8(to_int8(vectors, ranges), ranges)[:, 3] == 0.25).all()


def test_the_first_dimension_is_the_highest_bit():
    """The bits are those of `numpy.packbits`; 0 is not positive."""
    assert to_ubinary(np.array([[1, 0, -1, 0, 0, 0, 0, 2, 3.0]])).tolist() == [[129, 128]]


def test_wrong_shapes_are_refused():
    ranges = ranges_of(_vectors())
    with pytest.raises(ValueError, match="at least two vectors"):
        ranges_of(_vectors(1))
    with pytest.raises(ValueError, match="width 23"):
        to_int8(_vectors(width=23), ranges)
    with pytest.raises(ValueError, match="no minimum above"):
        to_int8(_vectors(), ranges[::-1])
    with pytest.raises(ValueError, match="finite"):
        ranges_of(np.array([[1.0, np.nan], [0, 0]]))


def test_no_vectors_are_no_codes():
    ranges = ranges_of(_vectors())
    assert to_int8(np.zeros([0, 24]), ranges).shape == (0, 24)
    assert to_ubinary(np.zeros([0, 24])).shape == (0, 3)
