"""The documents record: what is encoded comes back."""

import itertools

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from official_cmlm.records.documents import encode, parse, parse_lengths, token_counts
from official_cmlm.tokenization import AfterSpace, TokenRows

_RECORD = st.tuples(
    st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), min_size=1, max_size=5),
    st.booleans(),
    st.text(max_size=5),
    st.booleans(),
)


def _rows(rows):
    ids = np.array([token for row in rows for token in row], np.int32)
    return TokenRows(ids, np.array([0, *itertools.accumulate(map(len, rows))], np.int64))


def _encode(sentences, repeats, name, text=None, after=None):
    ids = np.array([token for sentence in sentences for token in sentence], np.int32)
    lengths = np.array([len(sentence) for sentence in sentences])
    return encode(ids, lengths, "de", name, repeats, text, after)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_RECORD, min_size=1, max_size=4))
def test_round_trip(records):
    """Sentences, marks and keys of a batch of records, with or without text."""
    serialized = [
        _encode(sentences, repeats, name, [name] * len(sentences) if keep else None)
        for sentences, repeats, name, keep in records
    ]
    keys = tf.range(len(records), dtype=tf.int64) - 1
    block = parse(tf.constant(serialized), keys)
    assert block.sentences.to_list() == [sentences for sentences, *_ in records]
    assert block.sentences.dtype == tf.int32
    assert block.repeats_last.numpy().tolist() == [repeats for _, repeats, *_ in records]
    assert block.keys is keys
    for data, (sentences, _, name, keep) in zip(serialized, records):
        feature = tf.train.Example.FromString(data).features.feature
        assert feature["id"].bytes_list.value[0].decode() == name
        assert feature["language"].bytes_list.value[0] == b"de"
        assert ("text" in feature) == keep
        if keep:
            text = [sentence.decode() for sentence in feature["text"].bytes_list.value]
            assert text == [name] * len(sentences)


def test_the_mark_of_repetition_is_stored_as_an_integer():
    """Protobuf 7 refuses any boolean in a list of integers, every protobuf those of NumPy."""
    record = tf.train.Example.FromString(_encode([[1, 2]], np.True_, "id"))
    assert record.features.feature["repeats_last"].int64_list.value[:] == [1]


_ID = st.integers(0, 2**31 - 1)
# (ids, how many are replaced, by which) of a sentence.
_SENTENCE = st.lists(_ID, min_size=1, max_size=4).flatmap(
    lambda ids: st.tuples(
        st.just(ids), st.integers(0, len(ids)), st.lists(_ID, min_size=1, max_size=3)
    )
)
# (sentences, whether the first is repeated, whether the record holds what changes).
_RUNNING = st.tuples(st.lists(_SENTENCE, min_size=1, max_size=4), st.booleans(), st.booleans())


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(records=st.lists(_RUNNING, min_size=1, max_size=4), data=st.data())
def test_ids_of_running_text(records, data):
    """Sentences that follow another have other first ids; those of older records keep theirs."""
    serialized, wanted, counts, lengths, first = [], [], [], [], []
    for sentences, repeats, holds in records:
        own = [ids for ids, *_ in sentences]
        after = None
        if holds:
            replaced = np.array([count for _, count, _ in sentences], np.int64)
            after = AfterSpace(replaced, _rows([ids for *_, ids in sentences]))
        following = [new + ids[n:] if holds else ids for ids, n, new in sentences]
        begins = data.draw(st.lists(st.booleans(), min_size=len(own), max_size=len(own)))
        first += begins
        wanted.append(
            [alone if begin else after for alone, after, begin in zip(own, following, begins)]
        )
        lengths.append(list(map(len, following)))
        kept = [own[1:], following[1:]] if repeats else [own, following]
        counts.append(len(sum(kept[0][:1] + kept[1][1:], [])))
        serialized.append(_encode(own, repeats, "", None, after))
    block = parse(tf.constant(serialized), tf.zeros(len(records), tf.int64))
    assert block.running(tf.constant(first)).to_list() == wanted
    assert block.running_lengths().numpy().tolist() == sum(lengths, [])
    assert [row[:1] for row in block.running().to_list()] == [
        row[:1] for row in block.sentences.to_list()
    ]
    alone, following, repeats = parse_lengths(tf.constant(serialized))
    assert alone.to_list() == [[len(ids) for ids, *_ in s] for s, *_ in records]
    assert following.to_list() == lengths
    assert repeats.numpy().tolist() == [repeats for _, repeats, _ in records]
    assert token_counts(tf.constant(serialized)).numpy().tolist() == counts


def test_only_some_vocabularies_need_more():
    """Without them the bytes are those of older releases."""
    record = _encode([[1, 2], [3]], False, "x")
    assert not any(
        name.startswith("after") for name in tf.train.Example.FromString(record).features.feature
    )
    held = _encode([[1, 2], [3]], False, "x", None, AfterSpace(np.array([0, 0]), _rows([[], []])))
    feature = tf.train.Example.FromString(held).features.feature
    assert list(feature["after_space_replaced"].int64_list.value) == [0, 0]
