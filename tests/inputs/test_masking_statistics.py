"""Masking: the shares and distributions that BERT's recipe asks for, over many tokens."""

import math

import numpy as np

from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds
from tests.inputs.blocks import SPECIAL, make_batch

# Special tokens scattered over the vocabulary, the last entry among them.
SCATTERED = SpecialIds(cls=3, sep=20, mask=39, pad=0, unknown=7, vocab_size=40)


def _masked(token, rows, length, rate, special, maximum=1000, first_key=0):
    """Rows of `length` times one token, masked: (ids, positions, weights) without the specials.

    Of these tokens the share `rate` is chosen; the specials, which count too, are allowed for.
    """
    rate *= length / (length + 2)
    row = [special.cls, *[token] * length, special.sep]
    batch = make_batch([row] * rows, length + 2, range(first_key, first_key + rows))
    masked = MaskTokens("text", "masked", rate, maximum, special)(batch)["masked"]
    ids = masked["input_word_ids"].numpy()
    assert (ids[:, 0] == special.cls).all() and (ids[:, -1] == special.sep).all()
    weights = masked["masked_lm_weights"].numpy()
    assert weights.all()
    return ids[:, 1:-1], masked["masked_lm_positions"].numpy() - 1, weights


def _chi_square(counts):
    expected = counts.sum() / len(counts)
    return ((counts - expected) ** 2 / expected).sum()


def _close(counts, deviations=5):
    """Whether the counts are as even as those of independent draws."""
    free = len(counts) - 1
    return abs(_chi_square(counts) - free) < deviations * math.sqrt(2 * free)


def test_bernoulli_draws():
    """Each token is drawn alone, so counts of a row and of a place are binomial."""
    rows, length, rate = 4000, 20, 0.3
    batch = make_batch([[SPECIAL.cls, *[50] * length, SPECIAL.sep]] * rows, length + 2)
    mask = MaskTokens("text", "masked", rate, length, SPECIAL, bernoulli=True)
    masked = mask(batch)["masked"]
    weights, places = (masked[f"masked_lm_{n}"].numpy() for n in ("weights", "positions"))
    counts = np.bincount(weights.sum(axis=1).astype(int), minlength=length + 1)
    expected = [math.comb(length, n) * rate**n * (1 - rate) ** (length - n) for n in range(21)]
    # From 2 to 11 of a row; the tails are too rare for the test.
    expected, counts = rows * np.array(expected)[2:12], counts[2:12]
    assert ((counts - expected) ** 2 / expected).sum() < 10 + 5 * math.sqrt(20)
    drawn = np.zeros([rows, length])
    drawn[np.nonzero(weights)[0], places[weights > 0] - 1] = 1
    assert abs(drawn.mean(axis=0) - rate).max() < 5 * math.sqrt(rate * (1 - rate) / rows)
    # Whether one token is drawn says nothing about its neighbour.
    assert abs(np.corrcoef(drawn.T)[np.triu_indices(length, 1)]).max() < 5 / math.sqrt(rows)


def test_80_10_10():
    """80 % of the chosen tokens are [MASK], 10 % random, 10 % unchanged."""
    ids, positions, weights = _masked(50, 100, 400, 0.5, SPECIAL)
    n = int(weights.sum())
    assert n == 100 * 200
    there = np.take_along_axis(ids, positions, axis=1)[weights > 0]
    masks, same = (there == SPECIAL.mask).sum(), (there == 50).sum()
    # A random one of the 95 ordinary entries is the original one now and then.
    for count, share in ((masks, 0.8), (same, 0.1 + 0.1 / 95), (n - masks - same, 0.1 * 94 / 95)):
        assert abs(count - n * share) < 5 * math.sqrt(n * share * (1 - share))
    # The other tokens are unchanged.
    assert (ids != 50).sum() == n - same


def test_random_replacements_cover_the_vocabulary():
    """Every ordinary entry is drawn about equally often, specials never."""
    ids, _, _ = _masked(10, 200, 500, 1.0, SCATTERED)
    counts = np.bincount(ids.ravel(), minlength=40)
    assert len(counts) == 40
    ordinary = [i for i in range(40) if i not in (*SCATTERED.all(), 10)]
    assert [i for i in range(40) if not counts[i]] == sorted({0, 3, 7, 20})
    assert len(ordinary) == 34 and counts[ordinary].sum() > 9000
    assert _close(counts[ordinary])


def test_specials_at_the_end_of_the_vocabulary():
    """With all specials last, the ordinary ids are those before them; and with all first."""
    last = SpecialIds(cls=17, sep=18, mask=19, pad=15, unknown=16, vocab_size=20)
    ids, _, _ = _masked(0, 100, 200, 1.0, last)
    assert set(ids.ravel().tolist()) == {*range(15), 19}
    first = SpecialIds(cls=2, sep=3, mask=4, pad=0, unknown=1, vocab_size=20)
    ids, _, _ = _masked(5, 100, 200, 1.0, first)
    assert set(ids.ravel().tolist()) == {*range(4, 20)}


def test_positions_are_uniform():
    """Each position is chosen equally often, and so is each distance between two choices."""
    _, positions, weights = _masked(50, 6000, 20, 0.1, SPECIAL)
    assert weights.sum(axis=1).tolist() == [2] * 6000
    counts = np.bincount(positions.ravel(), minlength=20)
    assert len(counts) == 20
    # Without replacement the counts are more even than independent draws, by 18 / 19.
    assert _chi_square(counts) < 19 + 5 * math.sqrt(2 * 19)
    pairs = np.bincount(positions[:, 0] * 20 + positions[:, 1], minlength=400).reshape(20, 20)
    assert not np.tril(pairs).any()
    assert _close(pairs[np.triu_indices(20, 1)])


def test_what_becomes_of_a_token_does_not_depend_on_which_are_chosen():
    """Keys of different examples: the kind of replacement is independent of the position."""
    ids, positions, weights = _masked(50, 4000, 20, 0.15, SPECIAL, first_key=10_000)
    assert weights.all()
    kept = np.take_along_axis(ids, positions, axis=1) != SPECIAL.mask
    expected = np.bincount(positions.ravel(), minlength=20) * 0.2
    found = np.bincount(positions[kept], minlength=20)
    chi_square = ((found - expected) ** 2 / (expected * 0.8)).sum()
    assert abs(chi_square - 20) < 5 * math.sqrt(2 * 20)
