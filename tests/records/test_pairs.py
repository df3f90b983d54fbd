"""The pairs record: what is encoded comes back, and pairs are not taken for documents."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from official_cmlm.common.errors import UserError
from official_cmlm.records.manifest import load_manifest
from official_cmlm.records.pairs import NO_LABEL, encode, parse
from tests.pairs_helpers import bitext, write_pairs

_IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)
_LANGUAGE = st.sampled_from(["en", "zh-Hans", ""])
_WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_RECORD = st.tuples(
    st.tuples(_IDS, _IDS) | st.tuples(_IDS, _IDS, _IDS),
    st.tuples(_LANGUAGE, _LANGUAGE),
    st.integers(-1, 2),
    st.integers(0, 2**40),
    st.none() | st.tuples(_WORDS, _WORDS),
)


def _encode(texts, languages, label, row, text):
    ids = np.array([token for one in texts for token in one], np.int32)
    return encode(ids, [len(one) for one in texts], languages, label, row, text)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_RECORD, max_size=5))
def test_round_trip(records):
    """All texts, languages, label and row of a batch of records, with or without text."""
    serialized = [_encode(*record) for record in records]
    keys = tf.range(len(records), dtype=tf.int64) - 1
    block = parse(tf.constant(serialized, tf.string), keys)
    assert block.first.to_list() == [texts[0] for texts, *_ in records]
    assert block.second.to_list() == [texts[1] for texts, *_ in records]
    assert block.negative.to_list() == [(*texts, [])[2] for texts, *_ in records]
    assert block.first.dtype == block.second.dtype == block.labels.dtype == tf.int32
    assert block.negative.dtype == tf.int32
    assert block.languages.shape == (len(records), 2)
    languages = [tuple(name.decode() for name in pair) for pair in block.languages.numpy()]
    assert languages == [pair for _, pair, *_ in records]
    assert block.labels.numpy().tolist() == [label for *_, label, _, _ in records]
    assert block.rows.numpy().tolist() == [row for *_, row, _ in records]
    assert block.keys is keys
    for data, (*_, text) in zip(serialized, records):
        feature = tf.train.Example.FromString(data).features.feature
        assert ("text" in feature) == (text is not None)
        if text is not None:
            assert tuple(x.decode() for x in feature["text"].bytes_list.value) == text


@pytest.mark.parametrize("count", [0, 1, 4])
def test_other_numbers_of_texts_are_refused(count):
    """Neither two nor three: no record of this project."""
    record = encode(np.arange(count), [1] * count, ("en", "de"), NO_LABEL, 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 or 3 texts"):
        parse(tf.constant([record]), tf.zeros([1], tf.int64))


@pytest.mark.parametrize("kinds", [("pairs", "documents"), ("documents", "pairs")])
def test_records_of_the_other_kind(vocabulary, records_dir, tmp_path, kinds):
    """Both kinds are named, and the binary that writes what is needed."""
    (kind, needed), folder = kinds, records_dir
    if kind == "pairs":
        write_pairs(folder := tmp_path, bitext(3), vocabulary)
    with pytest.raises(UserError) as caught:
        load_manifest(folder, needed)
    assert str(caught.value) == (
        f"{folder}/dataset.json: holds {kind} records, {needed} records are needed here; "
        f"cmlm create-{needed} writes them"
    )
