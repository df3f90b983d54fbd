"""The checks of an encoder's vectors, and its fingerprint."""

import numpy as np
import pytest

from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import (
    EncoderError,
    Role,
    add_prompt,
    check_vectors,
    fingerprint,
    for_role,
    roles_of,
)


def _encode(texts):
    """Returns the length and code points of each text."""
    return np.array([[len(t), sum(map(ord, t)), 1.0] for t in texts])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_values_are_refused(tmp_path, bad):
    """The error quotes the text; nothing of the batch is stored."""

    def encode(texts):
        return np.array([[bad if t == "bad" else 1.0] for t in texts])

    with pytest.raises(EncoderError, match="1 of 2 texts, the first of them 'bad'"):
        CachedEncoder(encode, tmp_path)(["bad", "x"])
    assert CachedEncoder(encode, tmp_path)(["x"]).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.ones([3, 2]), "an array of shape .3, 2. for 2 texts"),
        (np.ones(2), "an array of shape .2. for"),
        (np.ones([2, 2, 1]), "an array of shape .2, 2, 1. for"),
        (np.array([["a"], ["b"]]), "<U1; expected real numbers"),
        (np.ones([2, 1]) * 1j, "complex128; expected real numbers"),
        (None, "an array of shape .. for"),
        (np.zeros([2, 0]), "vectors of width 0"),
        (np.full([2, 2], 1e200), "NaN or infinity .in float32."),
    ],
)
def test_other_answers_are_refused(answer, message):
    """Wrong rows, wrong rank, letters, complex numbers, nothing, values beyond float32."""
    with pytest.raises(EncoderError, match=f"the encoder returned {message}"):
        check_vectors(lambda texts: answer)(["a", "b"])


def test_changing_width_is_refused():
    """Within a run it is told by the check; whole numbers become floats."""
    encode = check_vectors(lambda texts: np.ones([len(texts), len(texts[0])], int))
    assert encode(["ab"]).shape == (1, 2) and encode(["ab"]).dtype == np.float32
    with pytest.raises(EncoderError, match="width 3 after vectors of width 2"):
        encode(["abc"])


def test_prompts_are_put_before_texts():
    """The prompt is put before every text; a plain function has no role."""
    role = add_prompt(_encode, "query: ")
    assert role.encode(["a", ""]).tolist() == _encode(["query: a", "query: "]).tolist()
    assert "'query: '" in str(role) and "own" in str(Role(_encode))
    assert roles_of(_encode) == {} and for_role(_encode, "query") is _encode


def test_fingerprints_tell_encoders_apart():
    """Equal for equal encoders, different for others, also for those that cut elsewhere.

    One that fails on a text has a name too.
    """
    cut = [lambda texts, n=n: np.array([[len(t[:n]), 1.0] for t in texts]) for n in (50, 500)]
    encoders = (_encode, lambda texts: 2 * _encode(texts), *cut, lambda texts: 1 / 0)
    fingerprints = [fingerprint(encode) for encode in encoders]
    assert len(set(fingerprints)) == 5 and {len(one) for one in fingerprints} == {16}
    assert fingerprint(lambda texts: _encode(texts)) == fingerprints[0]
