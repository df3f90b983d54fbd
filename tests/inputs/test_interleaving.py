"""An interleave resumes after any element, without reading the earlier ones."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.reader import resume_interleave


def _interleave(order, sizes, cycle_length, block_length):
    """Lists (input, index) that tf.data yields from inputs that begin at an offset."""

    def read(source, offset):
        size = tf.constant(sizes, tf.int64)[source]
        return tf.data.Dataset.range(offset, size).map(lambda index: (source, index))

    sources, offsets = (np.array(column, np.int64) for column in zip(*order))
    dataset = tf.data.Dataset.from_tensor_slices((sources, offsets)).interleave(
        read, cycle_length=cycle_length, block_length=block_length, deterministic=True
    )
    return [(int(source), int(index)) for source, index in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("sizes", "cycle_length", "block_length"),
    [
        ([5], 1, 2),
        pytest.param([8, 8, 8, 8], 2, 4, marks=pytest.mark.long),
        pytest.param([3, 17, 9, 1, 30, 2, 8], 3, 4, marks=pytest.mark.long),
        pytest.param([1, 1, 1, 12, 1, 1], 4, 3, marks=pytest.mark.long),
        pytest.param([40, 3, 3, 3, 3, 3], 5, 2, marks=pytest.mark.long),
        ([7, 0, 5, 0, 0, 9, 4], 2, 3),
        ([2, 3], 16, 8),
    ],
)
def test_goes_on_as_tf_data_would(sizes, cycle_length, block_length):
    whole = _interleave([(i, 0) for i in range(len(sizes))], sizes, cycle_length, block_length)
    assert len(whole) == sum(sizes)
    for skip in range(sum(sizes) + 1):
        order, remainder = resume_interleave(sizes, cycle_length, block_length, skip)
        rest = _interleave(order, sizes, cycle_length, block_length) if order else []
        assert rest[remainder:] == whole[skip:], skip
        assert remainder < block_length


def test_work_does_not_grow_with_what_is_skipped():
    """Two inputs of 10^15 elements each: only arithmetic can be fast enough."""
    half = 10**15
    order, remainder = resume_interleave([half, half], 2, 8, half + 3)
    assert sum(offset for _, offset in order) + remainder == half + 3
