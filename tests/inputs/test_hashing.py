"""Random numbers by hashing: SplitMix64 bit for bit, independence, and the usual statistics."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs import hashing
from tests.inputs.blocks import SLOW

WORD = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
INT64 = st.integers(-(2**63), 2**63 - 1)


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def _fold(key: int, data: int) -> int:
    """Computes the fold with plain integers of any size, as an unsigned word."""
    return _mix((_mix(key & WORD) + (data + 1) * GAMMA) & WORD)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _keys(*values: int) -> tf.Tensor:
    return tf.constant(values, tf.int64)


def test_the_published_sequence():
    """Key 0 gives SplitMix64's own output for seed 0."""
    # As in the reference implementation's test vectors (Vigna, splitmix64.c).
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [_mix((i + 1) * GAMMA & WORD) for i in range(4)] == words
    drawn = hashing.fold(tf.constant(0, tf.int64), tf.range(4)).numpy()
    assert [int(word) & WORD for word in drawn] == words


@SLOW
@given(keys=st.lists(INT64, min_size=1, max_size=8), data=st.integers(-(2**31), 2**31 - 1))
def test_fold_against_integers(keys, data):
    """Every bit of `fold` is that of the integer implementation, negative keys included."""
    drawn = hashing.fold(_keys(*keys), data).numpy().tolist()
    assert drawn == [_signed(_fold(key, data)) for key in keys]


@SLOW
@given(keys=st.lists(INT64, min_size=1, max_size=5), count=st.integers(0, 20))
def test_uniform_against_integers(keys, count):
    """Number j of a key is the top 24 bits of fold(fold(key, salt), j)."""
    drawn = hashing.uniform(_keys(*keys), count, 3).numpy()
    expected = [[(_fold(_fold(k, 3), j) >> 40) / 2**24 for j in range(count)] for k in keys]
    assert drawn.shape == (len(keys), count) and drawn.dtype == np.float32
    assert drawn.tolist() == expected


@SLOW
@given(keys=st.lists(st.integers(-3, 30), min_size=1, max_size=40))
def test_permutation(keys):
    """Every row occurs once, rows ordered by the hash of their key, equal keys in order."""
    order = hashing.permutation(_keys(*keys), hashing.SALT_SHUFFLE).numpy().tolist()
    hashes = [_signed(_fold(key, hashing.SALT_SHUFFLE)) for key in keys]
    assert order == sorted(range(len(keys)), key=lambda row: (hashes[row], row))


@pytest.mark.parametrize("axis", ["across keys", "along one key"])
def test_uniform_statistics(axis):
    """200 000 numbers: range, mean, variance, 256 bins, and no serial correlation."""
    n = 200_000
    if axis == "across keys":
        drawn = hashing.uniform(tf.range(n, dtype=tf.int64), 1, hashing.SALT_SWAP).numpy()
    else:
        drawn = hashing.uniform(_keys(12345), n, hashing.SALT_MASK_SELECT).numpy()
    drawn = drawn.ravel().astype(np.float64)
    assert 0 <= drawn.min() and drawn.max() < 1
    # Five standard deviations each; the numbers are always the same ones.
    assert abs(drawn.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / n)
    assert abs(drawn.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)
    counts = np.bincount((drawn * 256).astype(int), minlength=256)
    chi_square = ((counts - n / 256) ** 2 / (n / 256)).sum()
    assert abs(chi_square - 255) < 5 * math.sqrt(2 * 255)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / math.sqrt(n)


def test_salts_are_uncorrelated():
    """Two uses of the same keys see numbers that have nothing to do with each other."""
    keys = tf.range(50_000, dtype=tf.int64)
    salts = [value for name, value in vars(hashing).items() if name.startswith("SALT_")]
    assert len(set(salts)) == len(salts) >= 6
    drawn = [hashing.uniform(keys, 1, salt).numpy()[:, 0].astype(np.float64) for salt in salts]
    correlation = np.corrcoef(drawn) - np.eye(len(salts))
    assert np.abs(correlation).max() < 5 / math.sqrt(50_000)
