"""Finished embeddings: bits, ranges, similarity, each against a definition written out."""

import json
import math

import numpy as np
import pytest

from official_cmlm import embeddings
from official_cmlm.embeddings import EmbeddingId, Ranges
from official_cmlm.errors import UserError

VECTORS = np.random.default_rng(3).normal(size=[50, 13]).astype(np.float32)


def level(value, low, high):
    """Returns the step that a value is in, in exact arithmetic of the float32 numbers."""
    step = (float(high) - float(low)) / 255 or 1.0
    return min(255, max(0, math.floor((float(value) - float(low)) / step)))


def test_eight_bits_are_steps_of_each_dimensions_range():
    ranges = Ranges.of(VECTORS[:40])
    found = embeddings.quantize(VECTORS, "uint8", ranges)
    expected = [
        [level(v, VECTORS[:40, d].min(), VECTORS[:40, d].max()) for d, v in enumerate(row)]
        for row in VECTORS
    ]
    # A value at the border of a step may fall to either side.
    assert found.dtype == np.uint8 and np.abs(found.astype(int) - expected).max() <= 1
    assert (found == expected).mean() > 0.98
    assert found.min() == 0 and found.max() == 255
    signed = embeddings.quantize(VECTORS, "int8", ranges)
    assert signed.dtype == np.int8
    np.testing.assert_array_equal(signed.astype(int) + 128, found)


def test_a_dimension_without_a_range_is_one_step():
    constant = np.ones([3, 2], np.float32)
    found = embeddings.quantize(constant, "uint8", Ranges.of(constant))
    np.testing.assert_array_equal(found, np.zeros([3, 2]))


def test_one_bit_a_dimension():
    found = embeddings.quantize(VECTORS, "ubinary")
    text = ["".join("1" if v > 0 else "0" for v in row).ljust(16, "0") for row in VECTORS]
    np.testing.assert_array_equal(found, [[int(t[:8], 2), int(t[8:], 2)] for t in text])
    assert found.dtype == np.uint8
    signed = embeddings.quantize(VECTORS, "binary")
    assert signed.dtype == np.int8
    np.testing.assert_array_equal(signed.astype(int) + 128, found)


@pytest.mark.parametrize("precision", embeddings.PRECISIONS)
def test_as_sentence_transformers_does_it(precision):
    quantize_embeddings = pytest.importorskip(
        "sentence_transformers.quantization", reason="sentence-transformers is not installed"
    ).quantize_embeddings
    ranges = Ranges.of(VECTORS)
    theirs = quantize_embeddings(VECTORS, precision, np.stack([ranges.low, ranges.high]))
    ours = embeddings.quantize(VECTORS, precision, ranges)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


def test_ranges_are_read_as_they_were_written(tmp_path):
    ranges = Ranges.of(VECTORS, True, EmbeddingId("mean", "pooled", "0123456789abcdef"))
    assert embeddings.read_ranges(tmp_path) is None
    ranges.save(tmp_path)
    found = embeddings.read_ranges(tmp_path)
    np.testing.assert_array_equal(found.low, ranges.low)
    np.testing.assert_array_equal(found.high, ranges.high)
    assert found.origin == ranges.origin
    assert found.normalize is True and found.low.dtype == np.float32


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"low": [1.0], "high": [0.5], "normalize": False},
        {"low": [1.0], "high": [2.0, 3.0], "normalize": False},
        {"low": [1.0], "high": ["x"], "normalize": False},
        {"low": [1.0], "high": [2.0], "normalize": 1},
        {"low": [[1.0]], "high": [[2.0]], "normalize": True},
        {"low": [float("nan")], "high": [2.0], "normalize": True},
        {"low": [1.0], "high": [2.0], "normalize": True, "origin": "mean"},
        {"low": [1.0], "high": [2.0], "normalize": True, "origin": {"pooling": 1}},
        {"low": [1.0], "high": [2.0], "normalize": True, "origin": {"layer": "1"}},
    ],
)
def test_damaged_ranges_are_refused(tmp_path, values):
    (tmp_path / embeddings.RANGES_NAME).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(UserError, match=r"embedding_ranges.json: not ranges"):
        embeddings.read_ranges(tmp_path)


def test_ranges_fit_the_vectors_that_they_were_made_of():
    plain, scaled = Ranges.of(VECTORS), Ranges.of(VECTORS, normalize=True)
    np.testing.assert_array_equal(plain.cut(5, False).high, VECTORS[:, :5].max(axis=0))
    assert scaled.cut(13, True).normalize
    for ranges, dimension, normalize in ((plain, 13, True), (scaled, 5, True), (plain, 14, False)):
        with pytest.raises(UserError, match="stored ranges are of 13 dimensions"):
            ranges.cut(dimension, normalize)
    with pytest.raises(ValueError, match="at least two vectors"):
        Ranges.of(VECTORS[:1])


def test_unknown_precisions_say_where_the_others_are():
    with pytest.raises(ValueError, match=r"got 'bfloat16'; that of the arithmetic .*load"):
        embeddings.quantize(VECTORS, "bfloat16")
    with pytest.raises(UserError, match="needs the range of each dimension"):
        embeddings.quantize(VECTORS, "int8")


@pytest.mark.parametrize("name", embeddings.SIMILARITIES)
def test_similarities_of_pairs(name):
    a, b = VECTORS[:3].astype(float), VECTORS[3:7].astype(float)
    one = {
        "cosine": lambda x, y: x @ y / math.sqrt((x @ x) * (y @ y)),
        "dot": lambda x, y: x @ y,
        "euclidean": lambda x, y: -math.dist(x, y),
        "manhattan": lambda x, y: -sum(abs(p - q) for p, q in zip(x, y)),
    }[name]
    found = embeddings.similarity(VECTORS[:3], VECTORS[3:7], name)
    np.testing.assert_allclose(found, [[one(x, y) for y in b] for x in a], atol=1e-5)
    assert found.dtype == np.float32


def test_what_has_no_similarity():
    bits = embeddings.quantize(VECTORS, "ubinary")
    for a, b, name, says in (
        (VECTORS, VECTORS, "hamming", "one of cosine"),
        (bits, bits, "cosine", "float arrays"),
        (VECTORS[0], VECTORS, "dot", "float arrays"),
        (VECTORS, VECTORS[:, :5], "dot", "one width"),
    ):
        with pytest.raises(ValueError, match=says):
            embeddings.similarity(a, b, name)
