"""Finished embeddings: bits, ranges, similarity, each against a definition written out."""

import json
import math

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.vectors import embeddings
from official_cmlm.vectors.embeddings import EmbeddingId, Ranges, dequantize, quantize

VECTORS = np.random.default_rng(3).normal(size=[50, 13]).astype(np.float32)


def level(value, low, high):
    """Returns the step that a value is in, in exact arithmetic of the float32 numbers."""
    step = (float(high) - float(low)) / 255 or 1.0
    return min(255, max(0, math.floor((float(value) - float(low)) / step)))


def test_eight_bits_are_steps_of_each_dimensions_range():
    ranges = Ranges.of(VECTORS[:40])
    codes = quantize(VECTORS, "uint8", ranges)
    expected = [
        [level(v, VECTORS[:40, d].min(), VECTORS[:40, d].max()) for d, v in enumerate(row)]
        for row in VECTORS
    ]
    # A value at the border of a step may fall to either side.
    assert codes.dtype == np.uint8 and np.abs(codes.astype(int) - expected).max() <= 1
    assert (codes == expected).mean() > 0.98
    assert codes.min() == 0 and codes.max() == 255
    signed = quantize(VECTORS, "int8", ranges)
    assert signed.dtype == np.int8
    np.testing.assert_array_equal(signed.astype(int) + 128, codes)


def test_codes_are_those_of_sentence_transformers():
    """Its `quantize_embeddings` of version 6.2 gave these, of the same ranges."""
    ranges = Ranges(np.array([-1, 0, 2], np.float32), np.array([1, 10, 2], np.float32))
    vectors = [[-1, 0, 2], [1, 10, 2], [0, 5, 3], [-0.99, 0.05, 1], [9, -9, 2], [0.5, 7.77, 2]]
    assert quantize(np.array(vectors, np.float32), "int8", ranges).tolist() == [
        [-128, -128, -128],
        [126, 126, -128],
        [-1, -1, -127],
        [-127, -127, -128],
        [127, -128, -128],
        [63, 70, -128],
    ]


def test_one_bit_a_dimension():
    codes = quantize(VECTORS, "ubinary")
    text = ["".join("1" if v > 0 else "0" for v in row).ljust(16, "0") for row in VECTORS]
    np.testing.assert_array_equal(codes, [[int(t[:8], 2), int(t[8:], 2)] for t in text])
    assert codes.dtype == np.uint8
    signed = quantize(VECTORS, "binary")
    assert signed.dtype == np.int8
    np.testing.assert_array_equal(signed.astype(int) + 128, codes)


@pytest.mark.parametrize("precision", embeddings.PRECISIONS)
def test_codes_are_decoded(precision):
    """Bytes to half a step off at most, a constant dimension to its value, bits to signs."""
    vectors = VECTORS.copy()
    vectors[:, 3] = 0.25
    ranges = Ranges.of(vectors)
    decoded = dequantize(quantize(vectors, precision, ranges), precision, ranges, 13)
    assert decoded.dtype == np.float32
    if precision.endswith("binary"):
        np.testing.assert_array_equal(decoded, np.sign(vectors))
        return
    # In float32; the upper end itself belongs to the last step.
    assert (np.abs(decoded - vectors) <= (ranges.high - ranges.low) / 255 * 0.501).all()
    assert (decoded[:, 3] == 0.25).all()
    none = quantize(vectors[:0], precision, ranges)
    assert dequantize(none, precision, ranges, 13).shape == (0, 13)


def test_ranges_are_read_as_they_were_written(tmp_path):
    ranges = Ranges.of(VECTORS, True, EmbeddingId("mean", "pooled", "0123456789abcdef"))
    assert embeddings.read_ranges(tmp_path) is None
    ranges.save(tmp_path)
    again = embeddings.read_ranges(tmp_path)
    np.testing.assert_array_equal(again.low, ranges.low)
    np.testing.assert_array_equal(again.high, ranges.high)
    assert again.origin == ranges.origin
    assert again.normalize is True and again.low.dtype == np.float32


@pytest.mark.parametrize(
    "values",
    [
        {"low": None},
        {"low": [1.0], "high": [0.5]},
        {"low": [1.0], "high": [2.0, 3.0]},
        {"low": [1.0], "high": ["x"]},
        {"low": [1.0], "high": [10**400]},
        {"normalize": 1},
        {"low": [[1.0]], "high": [[2.0]]},
        {"low": [float("nan")], "high": [2.0]},
        {"origin": "mean"},
        {"origin": {"pooling": 1}},
        {"origin": {"layer": "1"}},
    ],
)
def test_damaged_ranges_are_refused(tmp_path, values):
    whole = {"low": [1.0], "high": [2.0], "normalize": True}
    path = tmp_path / embeddings.RANGES_NAME
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert embeddings.read_ranges(tmp_path).normalize
    path.write_text(json.dumps(whole | values), encoding="utf-8")
    with pytest.raises(UserError, match=r"embedding_ranges.json: (damaged|origin)"):
        embeddings.read_ranges(tmp_path)


def test_ranges_fit_only_their_own_vectors():
    plain, scaled = Ranges.of(VECTORS), Ranges.of(VECTORS, normalize=True)
    np.testing.assert_array_equal(plain.cut(5, False).high, VECTORS[:, :5].max(axis=0))
    assert scaled.cut(13, True).normalize
    for ranges, dimension, normalize in ((plain, 13, True), (scaled, 5, True), (plain, 14, False)):
        with pytest.raises(UserError, match="stored ranges are of 13 dimensions"):
            ranges.cut(dimension, normalize)
    with pytest.raises(ValueError, match="ranges of 13 dimensions, vectors of width 12"):
        quantize(VECTORS[:, :12], "int8", plain)
    with pytest.raises(ValueError, match="at least two vectors"):
        Ranges.of(VECTORS[:1])
    with pytest.raises(ValueError, match="no minimum above"):
        Ranges(plain.high, plain.low)


def test_unknown_precisions_say_where_the_others_are():
    with pytest.raises(ValueError, match=r"got 'bfloat16'; that of the arithmetic .*load"):
        quantize(VECTORS, "bfloat16")
    with pytest.raises(UserError, match="needs the range of each dimension"):
        quantize(VECTORS, "int8")


@pytest.mark.parametrize("name", embeddings.SIMILARITIES)
def test_similarities(name):
    """All pairs, and the pairs of a diagonal, as plain loops compare them."""
    a, b = VECTORS[:4].astype(float), VECTORS[3:7].astype(float)
    compare = {
        "cosine": lambda x, y: x @ y / math.sqrt((x @ x) * (y @ y)),
        "dot": lambda x, y: x @ y,
        "euclidean": lambda x, y: -math.dist(x, y),
        "manhattan": lambda x, y: -sum(abs(p - q) for p, q in zip(x, y)),
    }[name]
    similarities = embeddings.similarity(VECTORS[:4], VECTORS[3:7], name)
    np.testing.assert_allclose(similarities, [[compare(x, y) for y in b] for x in a], atol=1e-5)
    assert similarities.dtype == np.float32
    pairs = embeddings.similarity_pairwise(VECTORS[:4], VECTORS[3:7], name)
    np.testing.assert_allclose(pairs, np.diagonal(similarities), atol=1e-5)
    with pytest.raises(ValueError, match="as many rows, got 3 and 2"):
        embeddings.similarity_pairwise(VECTORS[:3], VECTORS[:2], name)


def test_arrays_without_similarity_are_refused():
    bits = quantize(VECTORS, "ubinary")
    for a, b, name, says in (
        (VECTORS, VECTORS, "hamming", "one of cosine"),
        (bits, bits, "cosine", "float arrays"),
        (VECTORS[0], VECTORS, "dot", "float arrays"),
        (VECTORS, VECTORS[:, :5], "dot", "one width"),
    ):
        with pytest.raises(ValueError, match=says):
            embeddings.similarity(a, b, name)
