"""Packing by core ops equals Model Garden's, whatever the segments."""

import numpy as np
import pytest
import tensorflow as tf
from official.nlp.modeling import layers

from export.formats.preprocessing import pack

SPECIAL = {"start_of_sequence_id": 101, "end_of_segment_id": 102, "padding_id": 7}


def _make_ragged(rng, rows, longest, rank):
    """Makes random ids, `[rows, (tokens)]` or `[rows, (words), (tokens)]`; empty rows too."""
    lengths = rng.integers(0, longest + 1, rows)
    values = tf.constant(rng.integers(200, 999, lengths.sum()), tf.int32)
    ragged = tf.RaggedTensor.from_row_lengths(values, lengths)
    if rank == 2:
        return ragged
    words = [np.diff(np.sort([0, *rng.integers(0, n + 1, 2), n])) for n in lengths]
    inner = tf.RaggedTensor.from_row_lengths(values, np.concatenate([*words, [0]])[:-1])
    return tf.RaggedTensor.from_uniform_row_length(inner, 3) if rows else inner[:, tf.newaxis]


@pytest.mark.parametrize(
    ("rank", "batches"),
    [(3, 15), *(pytest.param(rank, 60, marks=pytest.mark.long) for rank in (2, 3))],
)
@pytest.mark.parametrize("segments", [pytest.param(1, marks=pytest.mark.long), 2])
def test_equals_model_garden(segments, rank, batches):
    """Round-robin trimming, special tokens, types and padding, of random batches."""
    rng = np.random.default_rng(segments * 10 + rank)
    for _ in range(batches):
        rows, length = int(rng.integers(1, 6)), int(rng.integers(segments + 1, 20))
        inputs = [_make_ragged(rng, rows, int(rng.integers(0, 16)), rank) for _ in range(segments)]
        expected = layers.BertPackInputs(length, special_tokens_dict=SPECIAL)(inputs)
        tf.nest.map_structure(
            np.testing.assert_array_equal, pack(inputs, length, SPECIAL), expected
        )


def test_first_segment_gets_the_odd_token():
    """Seven places for ten and ten tokens: four and three."""
    tokens = tf.RaggedTensor.from_row_lengths(tf.range(200, 210), [10])
    packed = pack([tokens, tokens + 100], 10, SPECIAL)
    assert packed["input_word_ids"].numpy().tolist() == [
        [101, 200, 201, 202, 203, 102, 300, 301, 302, 102]
    ]
    assert packed["input_type_ids"].numpy().tolist() == [[0] * 6 + [1] * 4]


def test_shapes_are_known_where_the_length_is():
    """As Keras layers after it expect them."""
    tokens = tf.ragged.constant([[1], []], tf.int32)
    function = tf.function(lambda tokens: pack([tokens], 6, SPECIAL), autograph=False)
    spec = tf.RaggedTensorSpec([None, None], tf.int32)
    shapes = function.get_concrete_function(spec).structured_outputs
    assert {each.shape.as_list()[1] for each in shapes.values()} == {6}
    assert pack([tokens], 6, SPECIAL)["input_mask"].numpy().sum() == 5


@pytest.mark.parametrize("count", [0, 3])
def test_one_or_two_segments(count):
    with pytest.raises(ValueError, match=f"one or two segments can be packed, got {count}"):
        pack([tf.ragged.constant([[1]], tf.int32)] * count, 9, SPECIAL)
