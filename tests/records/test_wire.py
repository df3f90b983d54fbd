"""Examples as bytes: equal to those of TensorFlow's own messages."""

import numpy as np
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from official_cmlm.records import wire

_FEATURE = st.one_of(
    st.lists(st.integers(0, 2**63 - 1), max_size=60), st.lists(st.binary(max_size=300), max_size=4)
)


def _bytes(part):
    return part[0].encode()


@settings(deadline=None)
@given(st.dictionaries(st.text("abé", min_size=2, max_size=2), _FEATURE, max_size=4))
@example({"a": [2**bits - 1 for bits in range(1, 64)] + [2**bits for bits in range(63)]})
def test_same_bytes_as_protocol_buffers(features):
    expected = tf.train.Example()
    parts = []
    for name, values in features.items():
        feature = expected.features.feature[name]
        if values and isinstance(values[0], bytes):
            feature.bytes_list.value.extend(values)
            parts.append((name, wire.bytes_list(values)))
        else:
            feature.int64_list.value.extend(values)
            packed = wire.Varints.of(np.array(values, np.int64)).data
            parts.append((name, wire.int64_list(packed)))
            feature.int64_list.SetInParent()
    if not features:
        expected.features.SetInParent()
    found = wire.example(wire.entry(*part) for part in sorted(parts, key=_bytes))
    assert found == expected.SerializeToString(deterministic=True)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1), max_size=50))
def test_bounds_are_those_of_each_number(values):
    found = wire.Varints.of(np.array(values, np.int64))
    for i, value in enumerate(values):
        part = found.data[found.bounds[i] : found.bounds[i + 1]]
        assert sum((byte & 0x7F) << 7 * n for n, byte in enumerate(part)) == value
        assert [byte >> 7 for byte in part] == [1] * (len(part) - 1) + [0]
