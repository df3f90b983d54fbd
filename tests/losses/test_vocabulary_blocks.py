"""Cross-entropy in blocks of the vocabulary: the plain one's values and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.masked_language_model import masked_cross_entropy
from official_cmlm.losses.vocabulary_blocks import cross_entropy_in_blocks, most_likely_in_blocks

ROWS, WIDTH, ENTRIES = 7, 16, 101
# One entry, blocks with a rest of one, without a rest, one whole block and a rest, all, more.
BLOCKS = (1, 10, 101 // 2, 100, 101, 1000)


def _factors(dtype=tf.float32, scale=1.0):
    """Returns hidden states, table and bias as float32 variables, read in the given precision."""
    rng = np.random.default_rng(0)
    shapes = ([ROWS, WIDTH], [ENTRIES, WIDTH], [ENTRIES])
    variables = [tf.Variable(scale * rng.normal(size=s).astype(np.float32)) for s in shapes]
    return variables, lambda: [tf.cast(v, dtype) for v in variables]


def _targets():
    ids = np.random.default_rng(1).integers(0, ENTRIES, ROWS)
    # First and last entry; a slot that is not used, and one that counts in part.
    ids[:2] = 0, ENTRIES - 1
    return tf.constant(ids, tf.int32), tf.constant([1, 1, 0, 1, 1, 1, 0.5])


def _plain(read):
    hidden, table, bias = read()
    return tf.nn.bias_add(tf.matmul(hidden, table, transpose_b=True), bias)


def _with_gradients(sums, variables):
    with tf.GradientTape() as tape:
        results = sums()
        scaled = 0.25 * results[0]
    return [*results, *(tf.convert_to_tensor(g) for g in tape.gradient(scaled, variables))]


def _both(dtype, block, scale=1.0, **function):
    (variables, read), targets = _factors(dtype, scale), _targets()
    expected = _with_gradients(lambda: masked_cross_entropy(_plain(read), *targets), variables)

    def blocks():
        return _with_gradients(lambda: cross_entropy_in_blocks(*read(), *targets, block), variables)

    return (tf.function(blocks, **function) if function else blocks)(), expected


@pytest.mark.parametrize(
    ("block", "settings"),
    [
        *((block, {}) for block in BLOCKS),
        # Blocks with a rest, and all in one block.
        *((10, {"jit_compile": compiled}) for compiled in (False, True)),
        pytest.param(101, {"jit_compile": True}, marks=pytest.mark.long),
        # Logits of hundreds, whose exponentials overflow.
        (10, {"scale": 10.0}),
    ],
)
def test_blocks_equal_the_whole(block, settings):
    """Sums, and gradients by hidden states, table and bias, eager, in a graph and compiled."""
    actual, expected = _both(tf.float32, block, **settings)
    assert float(expected[0]) > 1.0
    for got, value in zip(actual, expected, strict=True):
        assert np.isfinite(value).all()
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5 * np.abs(value).max())


@pytest.mark.parametrize("block", [10, 101])
def test_half_precision(block):
    """bfloat16 factors: float32 sums equal to the plain ones, gradients but for rounding."""
    actual, expected = _both(tf.bfloat16, block)
    assert {value.dtype for value in actual} == {tf.float32}
    np.testing.assert_allclose(actual[:3], expected[:3], rtol=1e-5)
    for got, value in zip(actual[3:], expected[3:], strict=True):
        # Eight bits of mantissa.
        np.testing.assert_allclose(got, value, rtol=0, atol=2**-8 * np.abs(value).max())


def test_sums_over_blocks_are_float32():
    """Three hundred blocks of equal logits: a bfloat16 sum would stop at 256."""
    entries = 300
    hidden, table = tf.zeros([1, 2], tf.bfloat16), tf.zeros([entries, 2], tf.bfloat16)
    bias, ids = tf.zeros([entries], tf.bfloat16), tf.zeros([1], tf.int32)
    total, _, _ = cross_entropy_in_blocks(hidden, table, bias, ids, tf.ones([1]), 1)
    assert float(total) == pytest.approx(np.log(entries), rel=1e-5)


@pytest.mark.parametrize("block", [2, 3, 5, 6])
def test_the_first_of_equal_logits_is_most_likely(block):
    """As `tf.argmax` decides, within a block and between blocks."""
    logits = tf.constant([[0.0, 3, 1, 3, 3, 0], [0, 0, 0, 0, 0, 0], [-9, -8, -9, -9, -9, -8]])
    likely = most_likely_in_blocks(tf.eye(3), tf.transpose(logits), tf.zeros([6]), block)
    np.testing.assert_array_equal(likely, tf.argmax(logits, axis=1))
    np.testing.assert_array_equal(likely, [1, 0, 1])


@pytest.mark.parametrize("graph", [False, True])
def test_nothing_to_predict(graph):
    """No row at all: sums and gradients of 0."""
    (variables, read), empty = _factors(), tf.zeros([0])

    def blocks():
        def sums():
            hidden, table, bias = read()
            ids = tf.zeros([0], tf.int32)
            return cross_entropy_in_blocks(hidden[:0], table, bias, ids, empty, 10)

        return _with_gradients(sums, variables)

    for value in (tf.function(blocks) if graph else blocks)():
        assert not np.any(value)


def test_no_tensor_of_all_logits_in_the_graph():
    """Neither forward nor backward: no shape has a dimension of rows and one of the entries."""
    whole = {(ROWS, ENTRIES), (ENTRIES, ROWS)}
    assert whole & _shapes(ENTRIES)
    shapes = _shapes(10)
    assert (ROWS, 10) in shapes and not whole & shapes


def _shapes(block):
    """Shapes of all tensors that loss and gradients in blocks compute, in loops too."""
    (variables, read), targets = _factors(), _targets()

    @tf.function(autograph=False)
    def blocks():
        return _with_gradients(lambda: cross_entropy_in_blocks(*read(), *targets, block), variables)

    graph = blocks.get_concrete_function().graph
    names = [function.signature.name for function in graph.as_graph_def().library.function]
    return {
        tuple(output.shape)
        for each in [graph, *(graph._get_function(name).graph for name in names)]
        for operation in each.get_operations()
        for output in operation.outputs
        if output.shape.rank is not None
    }
