"""In-batch retrieval: hard negatives against the reference, some rows without one, and its edges.

`objectives/test_bitext_retrieval.py` compares the loss without hard negatives with the reference.
"""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.hashing import row_identity
from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from tests.oracles.contrastive_numpy import cosine, with_hard_negatives

FIRST, NOISE, HARD = np.random.default_rng(3).normal(size=[3, 6, 5]).astype(np.float32)
SECOND, HARD = FIRST + NOISE, FIRST + HARD
PRESENT = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], np.float32)
NEGATIVES = [vector if there else None for vector, there in zip(HARD, PRESENT)]


def _losses(first=FIRST, offset=0, **settings):
    defaults = {"margin": 0.0, "logit_scale": 5.0, "negatives": HARD, "present": PRESENT}
    return additive_margin_softmax(first, SECOND, offset, **(defaults | settings))


@pytest.mark.parametrize("margin", [0.0, 0.3])
@pytest.mark.parametrize("weight", [0.0, 2.0])
@pytest.mark.parametrize("normalize", [True, False])
def test_loss_equals_the_reference(margin, weight, normalize):
    """Every anchor meets every hard negative that is there; its own weighs more."""
    losses, hits = _losses(margin=margin, negative_weight=weight, normalize=normalize)
    expected = with_hard_negatives(FIRST, SECOND, NEGATIVES, 5.0, margin, weight, normalize)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-5)
    there = [v for v in NEGATIVES if v is not None]
    product = cosine if normalize else np.dot
    for i, anchor in enumerate(FIRST):
        best = max(product(anchor, v) for v in [*np.delete(SECOND, i, axis=0), *there])
        assert float(hits[i]) == float(product(anchor, SECOND[i]) > best)
    assert 0 < sum(hits.numpy()) < 6


def test_without_equal_texts_it_is_the_plain_loss():
    """As if there were no third text."""
    none = _losses(present=tf.zeros([6]), negative_weight=3.0)
    plain = _losses(negatives=None)
    np.testing.assert_allclose(none[0], plain[0], rtol=1e-6)
    np.testing.assert_array_equal(none[1], plain[1])


def _texts(names):
    ids = tf.constant([[ord(name)] for name in names])
    return row_identity(ids, tf.ones_like(ids))


ANCHORS, POSITIVES, HARD_TEXTS = list("abcaef"), list("uvwxyz"), list("vaaxru")
TEXTS = {
    "anchor_texts": _texts(ANCHORS),
    "candidate_texts": _texts(POSITIVES),
    "negative_texts": _texts(HARD_TEXTS),
}


def test_equal_texts_are_not_negatives():
    """The text of the anchor, and of a positive of that text."""
    losses, _ = _losses(**TEXTS)
    left_out = 0
    for i, anchor in enumerate(FIRST):
        logits = [cosine(anchor, SECOND[i])]
        for j in range(6):
            # Anchors 0 and 3 are one text.
            if i != j and {i, j} != {0, 3}:
                logits.append(cosine(anchor, SECOND[j]))
            known = {POSITIVES[r] for r in range(6) if ANCHORS[r] == ANCHORS[i]}
            equal = HARD_TEXTS[j] in {ANCHORS[i], *known}
            left_out += equal and bool(PRESENT[j])
            if PRESENT[j] and not equal:
                logits.append(cosine(anchor, HARD[j]))
        expected = np.logaddexp.reduce(5.0 * np.array(logits)) - 5.0 * logits[0]
        assert float(losses[i]) == pytest.approx(expected, rel=1e-4)
    assert left_out == 7


@pytest.mark.parametrize(
    ("start", "stop", "jit"), [(0, 4, False), (3, 4, False), (2, 6, False), (2, 6, True)]
)
def test_equal_texts_are_not_negatives_of_a_part(start, stop, jit):
    """A positive of the same text may be in another part, on another replica."""
    expected = _losses(**TEXTS)[0][start:stop]

    def part(first):
        return _losses(first, start, **TEXTS)[0]

    losses = tf.function(part, jit_compile=jit)(tf.constant(FIRST[start:stop]))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_recall_is_without_margin():
    """A hit is the nearest candidate, even where the margin puts another one first."""
    anchors = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    candidates = np.array([[0.9, 0.0], [0.8, 1.0]], np.float32)
    settings = {"margin": 0.5, "logit_scale": 1.0, "normalize": False}
    losses, hits = additive_margin_softmax(anchors, candidates, **settings)
    np.testing.assert_array_equal(hits, [1.0, 1.0])
    assert losses[0] > np.log(2.0)


def test_zero_vectors_have_finite_losses_and_gradients():
    """A sentence vector of zeros does not make the whole step NaN."""
    anchors = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        losses, _ = additive_margin_softmax(anchors, tf.eye(2, 3), margin=0.3, logit_scale=100.0)
    assert np.isfinite(losses).all()
    assert np.isfinite(tape.gradient(losses, anchors)).all()
