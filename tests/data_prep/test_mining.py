"""Mining of hard negatives against a search for each pair alone."""

import numpy as np
import pytest

from data_prep import mining
from data_prep.mining import Mining, mine

# Anchor a has two positives; that of anchor d is one of them but for its case. Anchor b has one
# more, but for its own case.
PAIRS = [(f"anchor {a}", f"text {p}") for a, p in zip("abcadef", "abcdefg")]
PAIRS[4] = ("anchor d", "Text D!")
PAIRS.append(("Anchor B.", "text j"))
MORE = ["anchor b", "text h", "text i", "text h", "Text, h", "!?", "??"]
TEXTS = sorted({text for pair in PAIRS for text in pair} | {*MORE})
VECTORS = dict(zip(TEXTS, np.random.default_rng(5).normal(size=[len(TEXTS), 4])))


def _embed(texts):
    assert len(set(texts)) == len(texts)
    return np.array([VECTORS[text] for text in texts], np.float32)


def _mine(**settings):
    mined = mine(PAIRS, MORE, _embed, _embed, Mining(**settings))
    return [one for _, one in sorted((one.row, one) for one in mined)]


def _letters(text):
    return "".join(c for c in text.lower() if c.isalpha()) or text


def _cosine(a, b):
    u, v = VECTORS[a], VECTORS[b]
    return float(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def _expect(row, least=-2.0, most=2.0, start=0, stop=100):
    """Returns all negatives of a pair, nearest first."""
    anchor = PAIRS[row][0]
    own = _letters(anchor)
    known = {_letters(p) for a, p in PAIRS if _letters(a) == own} | {own}
    # The first of several texts with the same letters counts.
    candidates = {_letters(text): text for text in reversed([*(p for _, p in PAIRS), *MORE])}
    free = [text for letters, text in candidates.items() if letters not in known]
    ranked = sorted(free, key=lambda text: -_cosine(anchor, text))[start:stop]
    return [text for text in ranked if least <= _cosine(anchor, text) <= most]


def test_the_nearest_that_do_not_match():
    """The anchor, its positives, and texts that differ by case alone are left out."""
    for row, one in enumerate(_mine(num_negatives=100)):
        assert one.row == row
        assert one.negatives == _expect(row)
        anchor, positive = PAIRS[row]
        assert one.positive_score == pytest.approx(_cosine(anchor, positive), abs=1e-6)
        cosines = [_cosine(anchor, text) for text in one.negatives]
        np.testing.assert_allclose(one.scores, cosines, atol=1e-6)
    assert [one.negatives for one in _mine()] == [_expect(row)[:1] for row in range(len(PAIRS))]


def test_ranges_count_what_may_be_a_negative():
    for row, one in enumerate(_mine(num_negatives=100, range_min=2, range_max=5)):
        assert one.negatives == _expect(row, start=2, stop=5)
        assert len(one.negatives) == 3


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"absolute_margin": 0.2}, lambda positive: (-2.0, positive - 0.2)),
        ({"relative_margin": 0.5}, lambda positive: (-2.0, positive - 0.5 * abs(positive))),
        ({"min_score": -0.3, "max_score": 0.4}, lambda positive: (-0.3, 0.4)),
    ],
)
def test_margins_and_scores(settings, limit):
    """A pair may be left without any."""
    sizes = set()
    for row, one in enumerate(_mine(num_negatives=100, **settings)):
        assert one.negatives == _expect(row, *limit(one.positive_score))
        sizes.add(len(one.negatives))
    assert len(sizes) > 1


def test_random_ones_are_those_of_the_seed():
    """Some candidates are drawn, in the order of their cosines; another seed draws others."""
    first, again, other = (
        [one.negatives for one in _mine(num_negatives=3, sampling="random", seed=seed)]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    for row, negatives in enumerate(first):
        every = _expect(row)
        assert len(negatives) == 3
        assert negatives == [text for text in every if text in negatives]
    assert first != [_expect(row)[:3] for row in range(len(PAIRS))]


def test_blocks_do_not_show_and_are_bounded(monkeypatch):
    """The more neighbours the anchors need, the fewer of them are searched together."""
    expected, nearest, sizes = _mine(num_negatives=4), mining.nearest, []

    def note_size(queries, candidates, k, **others):
        sizes.append(len(queries) * k)
        return nearest(queries, candidates, k, **others)

    monkeypatch.setattr(mining, "nearest", note_size)
    monkeypatch.setattr(mining, "_FOUND_BYTES", 2 * 12 * len(TEXTS))
    for got, one in zip(_mine(num_negatives=4), expected, strict=True):
        assert (got.row, got.negatives) == (one.row, one.negatives)
    assert len(sizes) > 1 and max(sizes) <= 2 * len(TEXTS)


def test_an_index_finds_the_same_among_few():
    mined = [one.negatives for one in _mine(num_negatives=100, search="graph")]
    assert mined == [_expect(row) for row in range(len(PAIRS))]
