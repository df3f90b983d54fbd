"""Pairs to records: ids, labels, rows of translations, and everything counted once."""

import dataclasses
from collections import Counter

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.counts import Counts, DropCounter
from data_prep.output.pairs import pair_records
from official_cmlm.records.pairs import NLI_LABELS
from official_cmlm.tokenization import build_tokenizer
from tests.conftest import WORDS
from tests.pairs_helpers import nli_rows, pair

SLOW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
_TEXT = st.lists(st.sampled_from([*WORDS, "漢字", "😀!"]), min_size=1, max_size=5).map(" ".join)
_LANGUAGE = st.sampled_from(["en", "de", "sw"])


def _run(rows, vocabulary, **options):
    """Returns (language, [feature of each record]) of each row, and the counts."""
    statistics = Counts()
    result = []
    for language, encoded in pair_records(rows, vocabulary, statistics, **options):
        parsed = [tf.train.Example.FromString(data).features.feature for data in encoded]
        result.append((language, parsed))
    return result, statistics


def _strings(feature, name):
    return [value.decode() for value in feature[name].bytes_list.value]


def _ids(feature):
    """Returns the ids of both texts."""
    ids = list(feature["token_ids"].int64_list.value)
    first, second = feature["lengths"].int64_list.value
    assert first + second == len(ids)
    return [ids[:first], ids[first:]]


@SLOW
@given(
    pairs=st.lists(st.tuples(_TEXT, _TEXT, _LANGUAGE, _LANGUAGE), max_size=8),
    label=st.none() | st.sampled_from(NLI_LABELS),
    keep_text=st.booleans(),
)
def test_single_pairs(vocabulary, pairs, label, keep_text):
    """A record a pair, in order: ids, languages, label and text are the pair's own."""
    rows = [(pair(a, b, f"{left}-{right}", label),) for a, b, left, right in pairs]
    result, statistics = _run(rows, vocabulary, keep_text=keep_text)
    tokenizer = build_tokenizer(vocabulary)
    lengths = DropCounter()
    for number, ((language, (feature,)), (a, b, left, right)) in enumerate(
        zip(result, pairs, strict=True)
    ):
        ids = tokenizer.tokenize([a, b]).to_list()
        assert _ids(feature) == ids and language == f"{left}-{right}"
        assert _strings(feature, "languages") == [left, right]
        assert feature["row"].int64_list.value == [number]
        expected = -1 if label is None else NLI_LABELS.index(label)
        assert feature["label"].int64_list.value == [expected]
        assert ("text" in feature) == keep_text
        assert not keep_text or _strings(feature, "text") == [a, b]
        lengths.update(map(len, ids))
    assert statistics.documents == len(pairs) and statistics.sentences == 2 * len(pairs)
    assert statistics.lengths == lengths
    assert statistics.tokens == sum(length * count for length, count in lengths.items())
    assert statistics.languages == Counter(f"{left}-{right}" for *_, left, right in pairs)
    assert statistics.labels == ({label: len(pairs)} if label and pairs else {})
    assert not +statistics.counters


def test_batches_of_the_tokenizer_do_not_show(vocabulary, monkeypatch):
    """However many rows are tokenised together, the records are the same."""
    rows = nli_rows(20)
    expected = list(pair_records(rows, vocabulary, Counts()))
    monkeypatch.setattr("data_prep.output.pairs._BATCH_ROWS", 3)
    assert list(pair_records(iter(rows), vocabulary, Counts())) == expected


def test_the_other_name_of_contradiction(vocabulary):
    """XNLI's training files say `contradictory`; it is counted under one name."""
    rows = [(pair("a", "b", label=name),) for name in ("contradictory", "contradiction")]
    result, statistics = _run(rows, vocabulary)
    assert [f["label"].int64_list.value[0] for _, (f,) in result] == [2, 2]
    assert statistics.labels == {"contradiction": 2}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        # Annotators did not agree.
        ({"label": "-"}, "pairs/without_gold_label"),
        ({"texts": ("a", "")}, "pairs/empty_text"),
        ({"texts": ("the cat", "\u200b")}, "pairs/without_tokens"),
    ],
)
def test_rows_that_are_left_out_whole(vocabulary, changes, reason):
    """One pair of a row takes the others along; the numbers of the rows stay dense."""
    rows = nli_rows(4)
    rows[1] = (rows[1][0], dataclasses.replace(rows[1][1], **changes), *rows[1][2:])
    result, statistics = _run(rows, vocabulary, drop_empty=True)
    numbers = [f["row"].int64_list.value[0] for _, features in result for f in features]
    assert numbers == [0] * 3 + [1] * 3 + [2] * 3
    assert statistics.documents == sum(statistics.labels.values()) == 3
    assert statistics.sentences == 18 and statistics.languages["de-de"] == 3
    assert statistics.counters == {reason: 1}
    # The rows after it have their own ids.
    ids = build_tokenizer(vocabulary).tokenize(rows[2][0].texts).to_list()
    assert _ids(result[1][1][0]) == ids
