"""Measures of geometry against their formulas in plain loops, and spaces with known values."""

import math

import numpy as np
import pytest

from official_cmlm.evaluation.metrics import geometry


def _vectors(count=40, dim=5, seed=0, shift=0.3):
    return np.random.default_rng(seed).normal(size=[count, dim]) + shift


@pytest.mark.parametrize("by_rows", [False, True])
def test_isotropy_by_loops(by_rows):
    """Smallest over largest sum of exponentials, both signs of each eigenvector, or of each row."""
    vectors = _vectors()
    matrix = np.linalg.eigh(vectors.T @ vectors)[1]
    sums = []
    for i in range(len(matrix)):
        # The eigenvectors are the columns.
        direction = matrix[i, :] if by_rows else matrix[:, i]
        for sign in (1, -1):
            sums.append(sum(math.exp(sign * float(direction @ v)) for v in vectors))
    assert geometry.isotropy_score(vectors, by_rows) == pytest.approx(min(sums) / max(sums))


def test_isotropy_of_known_spaces():
    """1 where all axes are alike; e^-2t for one vector of length t, of which no sum overflows."""
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    assert geometry.isotropy_score(axes) == pytest.approx(1.0)
    assert geometry.isotropy_score(np.array([[0.5, 0.0]])) == pytest.approx(math.exp(-1.0))
    assert geometry.isotropy_score(np.array([[5000.0, 0.0]])) == 0.0
    assert geometry.isotropy_score(np.zeros([4, 2])) == 1.0


def test_mean_vector_norm():
    """Vectors are not scaled: twice as long, twice the norm; 0 if centred."""
    assert geometry.mean_vector_norm(np.array([[3.0, 0.0], [3.0, 8.0]])) == pytest.approx(5.0)
    vectors = _vectors()
    norm = geometry.mean_vector_norm(vectors)
    assert geometry.mean_vector_norm(2 * vectors) == pytest.approx(2 * norm)
    assert geometry.mean_vector_norm(vectors - vectors.mean(axis=0)) == pytest.approx(0, abs=1e-12)


def test_alignment_by_loops():
    """Mean squared distance of unit vectors; the lengths do not matter."""
    first, second = _vectors(seed=1), _vectors(seed=2)
    wanted = 0.0
    for x, y in zip(first, second):
        wanted += np.sum((x / np.linalg.norm(x) - y / np.linalg.norm(y)) ** 2) / len(first)
    assert geometry.alignment(first, second) == pytest.approx(wanted)
    assert geometry.alignment(first, 7 * first) == pytest.approx(0, abs=1e-12)
    assert geometry.alignment(first, -first) == pytest.approx(4)


@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_uniformity_by_loops(monkeypatch, rows):
    """All pairs once, whatever the size of a block."""
    monkeypatch.setattr(geometry, "_ROWS", rows)
    vectors = _vectors()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    terms = [
        math.exp(-2 * float(np.sum((unit[i] - unit[j]) ** 2)))
        for i in range(len(unit))
        for j in range(i)
    ]
    wanted = math.log(sum(terms) / len(terms))
    assert geometry.uniformity(vectors) == pytest.approx(wanted, rel=1e-5)


def test_uniformity_of_known_spaces():
    """0 if all are one, -8 for a pair of opposites, -2 where one is zero: its distance is 1."""
    assert geometry.uniformity(np.ones([3, 2])) == pytest.approx(0, abs=1e-5)
    assert geometry.uniformity(np.array([[1.0, 0.0], [-3.0, 0.0]])) == pytest.approx(-8, abs=1e-5)
    assert geometry.uniformity(np.array([[1.0, 0.0], [0.0, 0.0]])) == pytest.approx(-2, abs=1e-5)
