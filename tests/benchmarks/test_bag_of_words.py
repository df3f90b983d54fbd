"""What sentence vectors of `benchmarks.bag_of_words` promise, on texts small enough to check."""

import numpy as np
import pytest

from benchmarks.bag_of_words import averaged_vectors, tf_idf, whitened

# Cats and dogs do the same, ships and boats do something else.
TEXTS = [
    f"the {animal} {deed} in the {place}"
    for animal in ("cat", "dog")
    for deed in ("sleeps", "eats", "barks")
    for place in ("house", "garden")
] + [
    f"a {vessel} {deed} on the {place}"
    for vessel in ("ship", "boat")
    for deed in ("sails", "sinks", "drifts")
    for place in ("ocean", "river")
]


def cosine(encode, first, second):
    one, other = encode([first, second])
    return one @ other / np.linalg.norm(one) / np.linalg.norm(other)


def test_words_are_the_same_or_not_and_letters_find_parts():
    words, letters = tf_idf(TEXTS, letters=False), tf_idf(TEXTS, letters=True)

    assert cosine(words, "boat", "boat") == pytest.approx(1)
    # What a projection to 1,024 dimensions leaves of an angle of 90°.
    assert abs(cosine(words, "sleeps", "sleeping")) < 0.15
    assert cosine(letters, "sleeps", "sleeping") > 0.3
    assert abs(cosine(letters, "sleeps", "boat")) < 0.15


def test_frequent_words_weigh_less():
    words = tf_idf(TEXTS, letters=False)

    assert cosine(words, "the cat", "cat") > cosine(words, "the cat", "the") + 0.2


def test_words_of_equal_neighbours_have_near_vectors():
    vectors = averaged_vectors(TEXTS)

    assert cosine(vectors, "cat", "dog") > 0.9 > 0.5 > cosine(vectors, "cat", "boat")
    # A mean: the order of the words does not matter, nor do words that the text does not have.
    one, other = vectors(["cat sleeps", "sleeps unheard cat"])
    np.testing.assert_allclose(one, other, rtol=1e-6)
    assert not vectors(["unheard"]).any()


def test_whitened_vectors_are_centred_and_uncorrelated():
    mixed = np.random.default_rng(0).normal(size=(3, 6)) * [[9], [1], [0.1]]

    def encode(texts):
        own = [[len(text), text.count("s"), text.count("a")] for text in texts]
        return np.array(own) @ mixed + 5

    found = whitened(encode, TEXTS)(TEXTS)

    # Three of the six dimensions are sums of the others.
    assert found.shape == (len(TEXTS), 3)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(np.cov(found.T, bias=True), np.eye(3), atol=1e-3)
