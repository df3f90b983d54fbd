"""Embeddings in a plane: axes, signs, and how many sentences are drawn."""

import numpy as np

from official_cmlm.evaluation.metrics.plane import plane


def test_map_shows_the_two_axes_of_most_variance():
    """Distances within a plane are kept, whatever its place in the space; signs are settled."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0, 2 * np.pi, 12)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    turned = circle @ np.linalg.qr(rng.normal(size=[5, 5]))[0][:2]
    drawn = plane({"en": turned[:6], "de": turned[6:]})
    points = np.array(drawn["en"] + drawn["de"])

    def distances(rows):
        return np.linalg.norm(rows[:, np.newaxis] - rows, axis=2)

    np.testing.assert_allclose(distances(points), distances(circle), atol=1e-5)
    assert points[:, 0].var() >= points[:, 1].var()
    mirrored = plane({"en": -turned[:6], "de": -turned[6:]})
    np.testing.assert_allclose(mirrored["en"], -np.array(drawn["en"]), atol=1e-5)


def test_map_is_cut_and_works_for_thin_vectors():
    """At most so many sentences; one dimension has no second axis."""
    drawn = plane({"en": np.array([[1.0], [-1.0]] * 60), "de": np.array([[1.0]] * 3)})
    assert [len(points) for points in drawn.values()] == [100, 3]
    assert all(y == 0 for points in drawn.values() for _, y in points)
