"""Sums in blocks: the whole's value and gradient, whatever the block."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.losses.additive_margin_softmax import additive_margin_softmax
from official_cmlm.losses.alignment_uniformity import alignment_and_uniformity
from official_cmlm.losses.blocks import sum_in_blocks
from official_cmlm.losses.nt_xent import nt_xent


def _vectors(count, seed):
    return tf.constant(np.random.default_rng(seed).normal(size=[count, 5]), tf.float32)


def _margin(part, start, everybody):
    return additive_margin_softmax(part, everybody, 3 + start, margin=0.3, logit_scale=7.0)


def _both_views(part, start, own, other):
    return nt_xent(part, own, other, 3 + start, temperature=0.2, negatives="both_views")


CASES = {"margin": (_margin, 1), "nt_xent": (_both_views, 2)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("block", "graph"),
    [(13 * 3, False), (13 * 3, True), (13 * 4, False)],
)
def test_blocks_equal_the_whole(case, block, graph):
    """Blocks of 1, 3, 4 and all of 10 anchors among 13; gradients to all that is compared."""
    losses, count = CASES[case]
    anchors, others = _vectors(10, 0), tuple(_vectors(13, 1 + i) for i in range(count))

    def blocks(anchors, *others):
        with tf.GradientTape() as tape:
            tape.watch([anchors, *others])
            total, hits = sum_in_blocks(losses, anchors, others, block)
            scaled = 0.25 * total
        return [total, hits, *tape.gradient(scaled, [anchors, *others])]

    with tf.GradientTape() as tape:
        tape.watch([anchors, *others])
        values, hits = losses(anchors, 0, *others)
        total = tf.reduce_sum(values)
        scaled = 0.25 * total
    expected = [total, tf.reduce_sum(hits), *tape.gradient(scaled, [anchors, *others])]
    got = (tf.function(blocks) if graph else blocks)(anchors, *others)
    assert len(got) == len(expected)
    for a, b in zip(got, expected):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_metric_computes_no_gradient():
    """The similarities of alignment and uniformity are multiplied once, as without blocks."""

    @tf.function
    def measure(first, second):
        return alignment_and_uniformity(first, second, sum_in_blocks)

    graph = measure.get_concrete_function(_vectors(4, 0), _vectors(4, 1)).graph.as_graph_def()
    nodes = [*graph.node, *(node for each in graph.library.function for node in each.node_def)]
    bodies = {node.attr["body"].func.name for node in nodes if "While" in node.op}
    body = [each for each in graph.library.function if each.signature.name in bodies]
    assert [node.op for each in body for node in each.node_def].count("MatMul") == 1
