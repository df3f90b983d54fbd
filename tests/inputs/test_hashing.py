"""Random numbers by hashing: SplitMix64 bit for bit."""

import numpy as np
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


def _to_signed(word: int) -> int:
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
    assert drawn == [_to_signed(_fold(key, data)) for key in keys]


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
    hashes = [_to_signed(_fold(key, hashing.SALT_SHUFFLE)) for key in keys]
    assert order == sorted(range(len(keys)), key=lambda row: (hashes[row], row))


def test_salts_are_different():
    """Two uses of the same keys see different numbers."""
    salts = [value for name, value in vars(hashing).items() if name.startswith("SALT_")]
    assert len(set(salts)) == len(salts) >= 6
