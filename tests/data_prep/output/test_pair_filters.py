"""Filters of pairs: each reason alone, counted; the rows that stay are unchanged and in order."""

import tracemalloc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.counts import Counts, DropCounter
from data_prep.output.pair_filters import FilterOptions, KeySet, PairFilter, columns
from data_prep.output.pairs import pair_records
from tests.pairs_helpers import nli_rows, pair

QUICK = settings(max_examples=60, deadline=None)
_ROWS = st.lists(st.tuples(st.sampled_from("abcdA!"), st.sampled_from("wxyz?")), max_size=20)


def _run(rows, detect=None, **values):
    """Returns (texts of the first pairs that stay, counters)."""
    counters = DropCounter()
    kept = PairFilter(FilterOptions(**values), detect)(rows, counters)
    assert [id(row) for row in kept] == [id(row) for row in rows if any(row is k for k in kept)]
    return [row[0].texts for row in kept], counters


def _rows(*texts):
    """Returns a row of each two texts, or three with a hard negative."""
    return [(pair(*one[:2], negative=(*one, None)[2]),) for one in texts]


def test_hard_negatives():
    """Any length; another language is found; other negatives make other pairs."""
    long = ("a b", "c d", "e " * 300)
    assert _run(_rows(long), max_length_ratio=2.0)[1] == {}
    kept, counters = _run(
        _rows(("a", "b", "german"), ("c", "d", "e"), ("e", "f")),
        detect=lambda text: ("en" if text == "german" else "", 0.9),
    )
    assert kept == [("c", "d"), ("e", "f")] and counters == {"pairs/another_language": 1}
    rows = _rows(("a", "b", "x"), ("a", "b", "y"), ("a", "b"), ("a", "b", "X"), ("a", "b"))
    kept, counters = _run(rows, repeated="pair")
    assert len(kept) == 3 and counters == {"pairs/repeated": 2}
    rows = _rows(("a", "b", "!!!"), ("a", "b", "???"), ("a", "b"), ("A", "b", "!!!"))
    kept, counters = _run(rows, repeated="pair")
    assert len(kept) == 3 and counters == {"pairs/repeated": 1}


def test_lengths():
    """The ratio counts only beyond the slack; wide characters count twice, marks not."""
    texts = [("a" * 30, "b" * 60), ("a" * 30, "b" * 61), ("b" * 61, "a" * 30), ("a", "b" * 16)]
    kept, counters = _run(_rows(*texts, ("a", "b" * 17)), max_length_ratio=2)
    assert kept == [texts[0], texts[3]]
    assert counters == {"pairs/unlike_lengths": 3}
    assert columns("abc") == 3 and columns("漢字") == 4 and columns("e\u0301ก็") == 2
    chinese = ("x" * 60, "漢" * 20)
    assert _run(_rows(chinese), max_length_ratio=2)[0] == [chinese]


def test_languages():
    """Sure of another language: out. Unsure, unknown, or another script of the same: stays."""
    answers = {"en": ("en", 1.0), "de": ("de", 0.6), "fr": ("fr", 0.9), "?": ("fr", 0.4)}
    answers |= {"": ("und", 1.0), "zh": ("zh-Hant", 1.0)}

    def detect(text):
        return answers[text.partition(" ")[0]]

    texts = [("en 1", "de 1"), ("fr 1", "de 2"), ("en 2", "fr 2"), ("? 1", "? 2"), (" 1", "de 3")]
    kept, counters = _run(_rows(*texts), detect=detect)
    assert kept == [texts[0], texts[3], texts[4]]
    assert counters == {"pairs/another_language": 2}
    rows = [(pair("zh 1", "en 1", "zh_CN-en"),)]
    assert _run(rows, detect=detect)[1] == {}


@QUICK
@given(_ROWS, st.sampled_from(["pair", "either"]), st.integers(1, 5))
def test_repetitions(texts, repeated, size):
    """Sets of letters find the same, over any batches; rows left out do not count as seen."""
    letters = [tuple(t.lower().strip("!?") for t in row) for row in texts]
    stay, pairs, firsts, seconds, reasons = [], set(), set(), set(), DropCounter()
    for row, (first, second) in zip(texts, letters):
        if (first, second) in pairs and (first or second):
            reasons["pairs/repeated"] += 1
        elif repeated == "either" and first and first in firsts:
            reasons["pairs/repeated_first_text"] += 1
        elif repeated == "either" and second and second in seconds:
            reasons["pairs/repeated_second_text"] += 1
        else:
            stay.append(row)
            pairs.add((first, second))
            firsts.add(first)
            seconds.add(second)
    counters = DropCounter()
    keep = PairFilter(FilterOptions(repeated=repeated))
    rows = _rows(*texts)
    rows_left = []
    for start in range(0, len(rows), size):
        rows_left += keep(rows[start : start + size], counters)
    assert [row[0].texts for row in rows_left] == stay
    assert counters == reasons


@QUICK
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 30), max_size=9), max_size=40))
def test_keys_are_a_set(batches):
    """They equal Python's own set, in any order of additions."""
    rows_left, expected = KeySet(), set()
    for batch in batches:
        keys = np.array(batch, np.uint64)
        assert rows_left.contains(keys).tolist() == [key in expected for key in batch]
        rows_left.add(np.array(sorted({*batch} - expected), np.uint64))
        expected |= {*batch}


def test_keys_take_eight_bytes():
    """They take twice as much while they are merged, in few arrays."""
    keys = np.random.default_rng(0).integers(0, 2**63, (200, 1000)).astype(np.uint64)
    seen = KeySet()
    tracemalloc.start()
    for batch in keys:
        seen.add(batch)
    now, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 8 * keys.size * 1.05 and most < 2 * 8 * keys.size * 1.05
    assert seen.contains(keys[:, 0]).all()


def test_rows_of_translations(vocabulary):
    """One bad pair takes its row along, and the numbers of rows stay dense."""
    rows = nli_rows(4, ("en", "de"))
    rows[1] = (rows[1][0], pair("cat", "the dog " * 20, "de-de", rows[1][1].label))
    rows[3] = rows[2]
    statistics = Counts()
    keep = PairFilter(FilterOptions(9, "pair"))
    encoded = [
        record for _, row in pair_records(rows, vocabulary, statistics, keep) for record in row
    ]
    assert len(encoded) == 4 and statistics.documents == 2
    assert statistics.counters == {"pairs/unlike_lengths": 1, "pairs/repeated": 1}
