"""The documents record: what is encoded comes back."""

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from official_cmlm.records.documents import encode, parse

_RECORD = st.tuples(
    st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), min_size=1, max_size=5),
    st.booleans(),
    st.text(max_size=5),
    st.booleans(),
)


def _encode(sentences, repeats, name, text=None):
    ids = np.array([token for sentence in sentences for token in sentence], np.int32)
    lengths = np.array([len(sentence) for sentence in sentences])
    return encode(ids, lengths, "de", name, repeats, text)


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


def test_equal_records_are_equal_bytes():
    """Serialising is deterministic: checksums of shards can be compared."""
    record = [[[1, 2], [3]], False, "x", ["a b", "c"]]
    assert _encode(*record) == _encode(*record)
