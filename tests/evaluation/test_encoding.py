"""The checks of an encoder's vectors, and its fingerprint."""

import numpy as np
import pytest

from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoding import (
    EncoderError,
    Role,
    checked,
    fingerprint,
    for_role,
    prompted,
    roles_of,
)


def _encode(texts):
    """Returns the length and code points of each text."""
    return np.array([[len(t), sum(map(ord, t)), 1.0] for t in texts])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_values(tmp_path, bad):
    """The error quotes the text; nothing of the batch is stored."""

    def encode(texts):
        return np.array([[bad if t == "bad" else 1.0] for t in texts])

    with pytest.raises(EncoderError, match="1 of 2 texts, the first of them 'bad'"):
        CachedEncoder(encode, tmp_path)(["bad", "x"])
    assert CachedEncoder(encode, tmp_path)(["x"]).tolist() == [[1.0]]


@pytest.mark.parametrize(
    "answer",
    [
        np.ones([3, 2]),
        np.ones(2),
        np.ones([2, 2, 1]),
        np.array([["a"], ["b"]]),
        np.ones([2, 1]) * 1j,
        None,
    ],
)
def test_answers_of_another_shape_or_type(answer):
    """Wrong rows, wrong rank, letters, complex numbers, nothing."""
    with pytest.raises(EncoderError, match="the encoder returned"):
        CachedEncoder(lambda texts: answer)(["a", "b"])


def test_changing_width():
    """Within a run it is told by the check."""
    encode = checked(lambda texts: np.ones([len(texts), len(texts[0])]))
    assert encode(["ab"]).shape == (1, 2)
    with pytest.raises(EncoderError, match="width 3 after vectors of width 2"):
        encode(["abc"])


def test_integers_become_floats():
    """An encoder of whole numbers is one too."""
    assert checked(lambda texts: np.ones([1, 2], int))(["a"]).dtype == np.float32


def test_prompts_are_put_before_texts():
    """The prompt is put before every text; a plain function has no role."""
    role = prompted(_encode, "query: ")
    assert role.encode(["a", ""]).tolist() == _encode(["query: a", "query: "]).tolist()
    assert "'query: '" in str(role) and "own" in str(Role(_encode))
    assert roles_of(_encode) == {} and for_role(_encode, "query") is _encode


def test_fingerprint():
    """Equal for equal encoders, different for others."""
    assert fingerprint(_encode) == fingerprint(lambda texts: _encode(texts))
    assert fingerprint(_encode) != fingerprint(lambda texts: 2 * _encode(texts))
    assert len(fingerprint(_encode)) == 16


def test_values_beyond_float32_and_empty_vectors():
    """Values beyond float32 are infinite; a vector needs a value."""
    with pytest.raises(EncoderError, match="NaN or infinity"):
        checked(lambda texts: np.full([len(texts), 2], 1e200))(["a"])
    with pytest.raises(EncoderError, match="width 0"):
        checked(lambda texts: np.zeros([len(texts), 0]))(["a"])


def test_fingerprint_sees_long_texts():
    """Two encoders that differ in where they cut are two; one that fails on a text has a name."""
    cut = [lambda texts, n=n: np.array([[len(t[:n]), 1.0] for t in texts]) for n in (50, 500)]
    assert fingerprint(cut[0]) == fingerprint(cut[0]) != fingerprint(cut[1])
    assert len(fingerprint(lambda texts: 1 / 0)) == 16
