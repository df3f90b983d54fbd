"""Masking: what is chosen and what becomes of it, example by example and over many tokens."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds
from tests.inputs.blocks import SLOW, SPECIAL, make_batch, wrap
from tests.oracles.cmlm_numpy import bert_mask_counts

SPECIALS = set(SPECIAL.all())

# Ordinary tokens, and specials in the middle of the text as an odd record may hold them.
ROWS = st.lists(
    st.lists(st.one_of(st.integers(6, 99), st.integers(0, 5)), max_size=30).map(wrap),
    min_size=1,
    max_size=5,
)
RATES = st.sampled_from([0.15, 0.313, 0.5, 0.8, 1.0])


def _mask(batch, rate=0.313, maximum=80, **options):
    return MaskTokens("text", "masked", rate, maximum, SPECIAL, **options)(batch)


def _numpy(batch):
    return {name: value.numpy() for name, value in batch["masked"].items()}


def _list_chosen(masked):
    """Returns {position: (label, the id that replaces it)} of each row."""
    slots = (masked[f"masked_lm_{name}"] for name in ("positions", "ids", "weights"))
    return [
        {int(p): (int(label), int(ids[p])) for p, label, weight in zip(*row) if weight}
        for ids, *row in zip(masked["input_word_ids"], *slots)
    ]


def _rows(count, length, seed=0):
    rng = np.random.default_rng(seed)
    return [wrap(rng.integers(6, 100, length - 2).tolist()) for _ in range(count)]


@SLOW
@given(rows=ROWS, rate=RATES, maximum=st.integers(1, 20), extra=st.integers(0, 9))
def test_promises_of_a_masked_batch(rows, rate, maximum, extra):
    """Count, candidates, order, labels and unused slots of every row, against plain loops."""
    length = max(len(row) for row in rows) + extra + 1
    batch = make_batch(rows, length)
    before = {name: value.numpy().copy() for name, value in batch["text"].items()}
    result = _mask(batch, rate, maximum)
    masked = _numpy(result)
    for name, value in before.items():
        np.testing.assert_array_equal(result["text"][name], value)
    for name in ("input_mask", "input_type_ids"):
        np.testing.assert_array_equal(masked[name], before[name])
    slots = masked["masked_lm_positions"].shape[1]
    assert masked["masked_lm_ids"].shape == masked["masked_lm_weights"].shape == (len(rows), slots)
    assert masked["masked_lm_weights"].dtype == np.float32
    for i, row in enumerate(rows):
        candidates = [p for p, token in enumerate(row) if token not in SPECIALS]
        weights = masked["masked_lm_weights"][i].tolist()
        count = int(sum(weights))
        assert count == bert_mask_counts(len(candidates), len(row), rate, maximum)
        assert weights == [1.0] * count + [0.0] * (slots - count)
        positions = masked["masked_lm_positions"][i].tolist()
        labels = masked["masked_lm_ids"][i].tolist()
        assert positions[count:] == labels[count:] == [0] * (slots - count)
        assert positions[:count] == sorted(set(positions[:count]))
        assert set(positions[:count]) <= set(candidates)
        assert labels[:count] == [row[p] for p in positions[:count]]
        for p, token in enumerate(masked["input_word_ids"][i].tolist()):
            if p not in positions[:count]:
                assert token == before["input_word_ids"][i, p]
            else:
                assert token == SPECIAL.mask or token not in SPECIALS


def test_bernoulli_draws_keep_a_random_part_of_too_many():
    """At most `max_predictions`, of all places; special tokens are never drawn."""
    rows = [wrap([10] * 20)] * 200 + [wrap([]), wrap([SPECIAL.unknown])]
    batch = make_batch(rows, 24)
    masked = [_list_chosen(_numpy(_mask(batch, 0.9, most, bernoulli=True))) for most in (22, 5)]
    for every, kept in zip(*masked):
        assert kept.keys() <= every.keys() and len(kept) == min(len(every), 5)
    assert {place for row in masked[1] for place in row} == {*range(1, 21)}
    assert masked[0][-2:] == [{}, {}]


@pytest.mark.parametrize("rate", [0.15, 0.2, 0.3, 0.313])
def test_counts_of_every_length(rate):
    """round(rate · tokens), halves to even, for 0 to 510 tokens, as in plain arithmetic."""
    rows = [[10] * n for n in range(511)]
    weights = _numpy(_mask(make_batch(rows, 512), rate, 300))["masked_lm_weights"]
    expected = [bert_mask_counts(n, n, rate, 300) for n in range(511)]
    assert weights.sum(axis=1).tolist() == expected


@pytest.mark.parametrize("predictions", [40, 60, 80, 100])
def test_full_sequences_have_the_papers_number(predictions):
    """The predictions of 256 tokens, `[CLS]` and `[SEP]` included (CMLM, §3 and Table 10)."""
    batch = make_batch(_rows(8, 256), 256)
    masked = _numpy(_mask(batch, predictions / 256, predictions))
    assert masked["masked_lm_weights"].shape == (8, predictions)
    assert masked["masked_lm_weights"].all()


@pytest.mark.parametrize(
    "rate", [0.15, *(pytest.param(rate, marks=pytest.mark.long) for rate in (0.26, 0.313))]
)
def test_slots_of_every_length(rate):
    """One slot for each token that a sequence of the padded length can lose, at most 80."""
    mask = MaskTokens("text", "masked", rate, 80, SPECIAL)
    any_length = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[any_length])
    def slots(ids):
        text = {"input_word_ids": ids, "input_mask": tf.ones_like(ids)}
        batch = mask({"text": text, "key": tf.zeros_like(ids[:, 0], tf.int64)})
        return tf.shape(batch["masked"]["masked_lm_positions"])[1]

    lengths = [*range(3, 40), 64, 102, 128, 227, 256, 302, 512]
    counts = {length: int(slots(tf.fill([1, length], 10))) for length in lengths}
    expected = {n: min(max(1, min(80, math.floor(n * rate + 0.5))), n - 2) for n in lengths}
    assert counts == expected


def test_choice_does_not_depend_on_the_padding():
    """The same example in a longer bucket: the same positions, labels and replacements."""
    rows = [row[: 3 + i] for i, row in enumerate(_rows(20, 30))]
    short = _numpy(_mask(make_batch(rows, 30), 0.5))
    long = _numpy(_mask(make_batch(rows, 47), 0.5))
    assert _list_chosen(short) == _list_chosen(long)
    np.testing.assert_array_equal(long["input_word_ids"][:, :30], short["input_word_ids"])
    assert not long["input_word_ids"][:, 30:].any()


def test_choice_does_not_depend_on_the_neighbours():
    """The same example in another order, alone, and where shapes are unknown."""
    rows, keys = _rows(12, 25), [7 * i - 30 for i in range(12)]
    together = _list_chosen(_numpy(_mask(make_batch(rows, 25, keys))))
    order = np.random.default_rng(1).permutation(12)
    shuffled = make_batch([rows[i] for i in order], 25, [keys[i] for i in order])
    assert _list_chosen(_numpy(_mask(shuffled))) == [together[i] for i in order]
    for i in range(12):
        alone = make_batch([rows[i]], 25, [keys[i]])
        assert _list_chosen(_numpy(_mask(alone))) == [together[i]]
    spec = tf.TensorSpec([None, None], tf.int32)
    signature = {"text": {name: spec for name in shuffled["text"]}}
    signature["key"] = tf.TensorSpec([None], tf.int64)
    graph = tf.function(_mask, input_signature=[signature])
    assert _list_chosen(_numpy(graph(make_batch(rows, 25, keys)))) == together


# Special tokens scattered over the vocabulary, the last entry among them.
SCATTERED = SpecialIds(cls=3, sep=20, mask=39, pad=0, unknown=7, vocab_size=40)


def _mask_token(token, rows, length, rate, special):
    """Rows of `length` times one token, masked: (ids, positions) without the specials.

    Of these tokens the share `rate` is chosen; the specials, which count too, are allowed for.
    """
    rate *= length / (length + 2)
    row = [special.cls, *[token] * length, special.sep]
    batch = make_batch([row] * rows, length + 2)
    masked = MaskTokens("text", "masked", rate, 1000, special)(batch)["masked"]
    ids = masked["input_word_ids"].numpy()
    assert (ids[:, 0] == special.cls).all() and (ids[:, -1] == special.sep).all()
    assert masked["masked_lm_weights"].numpy().all()
    return ids[:, 1:-1], masked["masked_lm_positions"].numpy() - 1


def _chi_square(counts):
    expected = counts.sum() / len(counts)
    return ((counts - expected) ** 2 / expected).sum()


def _close(counts, deviations=5):
    """Returns whether the counts are as even as those of independent draws."""
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
    ids, positions = _mask_token(50, 100, 400, 0.5, SPECIAL)
    n = positions.size
    assert n == 100 * 200
    there = np.take_along_axis(ids, positions, axis=1)
    masks, same = (there == SPECIAL.mask).sum(), (there == 50).sum()
    # A random one of the 95 ordinary entries is the original one now and then.
    for count, share in ((masks, 0.8), (same, 0.1 + 0.1 / 95), (n - masks - same, 0.1 * 94 / 95)):
        assert abs(count - n * share) < 5 * math.sqrt(n * share * (1 - share))
    # The other tokens are unchanged.
    assert (ids != 50).sum() == n - same


def test_random_replacements_cover_the_vocabulary():
    """Every ordinary entry is drawn about equally often, specials never."""
    ids, _ = _mask_token(10, 200, 500, 1.0, SCATTERED)
    counts = np.bincount(ids.ravel(), minlength=40)
    assert len(counts) == 40
    ordinary = [i for i in range(40) if i not in (*SCATTERED.all(), 10)]
    assert [i for i in range(40) if not counts[i]] == sorted({0, 3, 7, 20})
    assert len(ordinary) == 34 and counts[ordinary].sum() > 9000
    assert _close(counts[ordinary])


def test_specials_at_the_end_of_the_vocabulary():
    """With all specials last, the ordinary ids are those before them; and with all first."""
    last = SpecialIds(cls=17, sep=18, mask=19, pad=15, unknown=16, vocab_size=20)
    ids, _ = _mask_token(0, 100, 200, 1.0, last)
    assert set(ids.ravel().tolist()) == {*range(15), 19}
    first = SpecialIds(cls=2, sep=3, mask=4, pad=0, unknown=1, vocab_size=20)
    ids, _ = _mask_token(5, 100, 200, 1.0, first)
    assert set(ids.ravel().tolist()) == {*range(4, 20)}


def test_positions_are_uniform():
    """Each position is chosen equally often, and so is each distance between two choices."""
    _, positions = _mask_token(50, 6000, 20, 0.1, SPECIAL)
    assert positions.shape == (6000, 2)
    counts = np.bincount(positions.ravel(), minlength=20)
    assert len(counts) == 20
    # Without replacement the counts are more even than independent draws, by 18 / 19.
    assert _chi_square(counts) < 19 + 5 * math.sqrt(2 * 19)
    pairs = np.bincount(positions[:, 0] * 20 + positions[:, 1], minlength=400).reshape(20, 20)
    assert not np.tril(pairs).any()
    assert _close(pairs[np.triu_indices(20, 1)])
