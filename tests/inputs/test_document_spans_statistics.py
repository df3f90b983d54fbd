"""DeCLUTR's spans: the distributions that §3.2 draws lengths and starts from."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from official_cmlm.inputs import hashing
from official_cmlm.inputs.document_spans import Spans
from tests.inputs.blocks import SPECIAL

N = 4000
KEYS = hashing.fold(tf.constant(7, tf.int64), tf.range(N))
# A bound on p-values that a right sampler breaks once in a thousand seeds; ours is fixed.
RARE = 1e-3


def _view(sampling="all", shortest=10, longest=1 << 20, num_anchors=2, **settings):
    return Spans(num_anchors, 3, shortest, longest, sampling, SPECIAL, **settings)


def _anchors(view, tokens):
    starts, lengths = view.sample_anchors(KEYS, tf.fill([N], tokens))
    return starts.numpy(), lengths.numpy()


def _positives(view, tokens, start, length):
    """Positives of an anchor that lies at one place in every document."""
    starts, lengths = view.sample_positives(
        KEYS, tf.fill([N], tokens), tf.fill([N], start), tf.fill([N], length)
    )
    return starts.numpy(), lengths.numpy()


def _follows(values, distribution="uniform", parameters=()):
    return stats.kstest(values, distribution, parameters).pvalue > RARE


def _all_alike(values, least, most):
    """Asserts that every integer from `least` to `most` is drawn about equally often."""
    counts = np.bincount(values.ravel() - least, minlength=most - least + 1)
    assert len(counts) == most - least + 1 and counts.min() > 0
    assert stats.chisquare(counts).pvalue > RARE


@pytest.mark.parametrize(
    ("settings", "anchor_beta", "positive_beta"),
    [
        ({}, (4, 2), (2, 4)),
        ({"anchor_beta": (1, 3), "positive_beta": (5, 2)}, (1, 3), (5, 2)),
    ],
)
def test_lengths(settings, anchor_beta, positive_beta):
    """Beta(4, 2) for anchors, Beta(2, 4) for positives, stretched over the allowed lengths."""
    view = _view(**settings)
    _, anchors = _anchors(view, 1 << 23)
    _, positives = _positives(view, 1 << 23, 1 << 22, 1000)
    for lengths, parameters in ((anchors, anchor_beta), (positives, positive_beta)):
        for column in lengths.T:
            fraction = (column - 10) / ((1 << 20) - 2 - 10)
            assert _follows(fraction, "beta", parameters)
            assert not _follows(fraction, "beta", parameters[::-1])
    for lengths in (anchors, positives):
        # Independent of each other.
        assert abs(np.corrcoef(lengths.T)[0, 1]) < 4 / np.sqrt(N)


def test_lengths_are_rounded_down():
    """⌊p · (ℓmax − ℓmin) + ℓmin⌋: the bounds of Beta's distribution function, length by length."""
    _, lengths = _anchors(_view(shortest=2, longest=12), 100)
    counts = np.bincount(lengths.ravel() - 2, minlength=8)
    shares = np.diff(stats.beta(4, 2).cdf(np.arange(9) / 8))
    # Lengths that are hardly ever drawn are counted with their neighbour.
    counts, shares = (np.append(x[:2].sum(), x[2:]) for x in (counts, shares))
    assert stats.chisquare(counts, shares * lengths.size).pvalue > RARE


def test_start_of_a_single_anchor():
    """Uniform over all places where the longest span fits, the first and the last included."""
    view = _view(shortest=4, longest=12, num_anchors=1)
    _all_alike(_anchors(view, 24)[0], 0, 24 - 10)


@pytest.mark.parametrize("num_anchors", [2, 3])
def test_starts_of_several_anchors(num_anchors):
    """Uniform when what keeps them apart is taken out, from one end of the text to the other."""
    view = _view(longest=1 << 10, num_anchors=num_anchors)
    tokens = num_anchors << 13
    gap = 2 << 10
    starts, _ = _anchors(view, tokens)
    room = tokens - ((1 << 10) - 2) - gap * (num_anchors - 1) + 1
    closer = (starts - gap * np.arange(num_anchors) + 0.5) / room
    assert _follows(closer.ravel())
    # One by one they are the order statistics of uniform numbers.
    for a in range(num_anchors):
        assert _follows(closer[:, a], "beta", (a + 1, num_anchors - a))
    # Most anchors are further apart than they must be.
    assert (np.diff(starts) > 1.5 * gap).mean() > 0.5


def test_starts_of_overlapping_positives():
    """`all`: uniform from touching the anchor's start to touching its end, both included."""
    starts, lengths = _positives(_view(), 1 << 23, 1 << 22, 1 << 18)
    # The room before the anchor depends on the positive's own length.
    fraction = (starts - (1 << 22) + lengths + 0.5) / (lengths + (1 << 18) + 1)
    assert _follows(fraction.ravel())
    starts, lengths = _positives(_view(shortest=3, longest=8), 100, 50, 4)
    for length in (3, 4, 5):
        _all_alike(starts[lengths == length], 50 - length, 54)


def test_positives_at_the_ends_of_the_text():
    """Uniform over the places that are inside the document."""
    view = _view(shortest=4, longest=6)
    _all_alike(_positives(view, 30, 0, 6)[0], 0, 6)
    _all_alike(_positives(view, 30, 24, 6)[0], 20, 26)


def test_adjacent_positives():
    """Positives lie before and after the anchor equally often, where there is room."""
    view = _view("adjacent", longest=1 << 10)
    starts, lengths = _positives(view, 1 << 14, 1 << 13, 600)
    before = starts < 1 << 13
    assert abs(before.mean() - 0.5) < 4 * np.sqrt(0.25 / before.size)
    assert stats.ks_2samp(lengths[before], lengths[~before]).pvalue > RARE
    assert not (_positives(view, 1 << 14, 5, 600)[0] < 5).any()
    assert (_positives(view, 1 << 14, (1 << 14) - 605, 600)[0] < (1 << 14) - 605).all()


def test_subsumed_positives():
    """Uniform over the places inside the anchor, the last included; never longer than it."""
    starts, lengths = _positives(_view("subsuming"), 1 << 23, 1 << 22, 1 << 20)
    fraction = (starts - (1 << 22) + 0.5) / ((1 << 20) - lengths + 1)
    assert _follows(fraction.ravel())
    view = _view("subsuming", shortest=3, longest=8)
    starts, lengths = _positives(view, 100, 50, 10)
    for length in (3, 4, 5):
        _all_alike(starts[lengths == length], 50, 60 - length)
    starts, lengths = _positives(_view("subsuming", longest=100), 1000, 500, 12)
    assert set(np.unique(lengths)) == {10, 11} and (starts + lengths <= 512).all()
