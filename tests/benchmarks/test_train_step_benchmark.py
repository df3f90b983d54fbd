"""What the benchmark of training steps counts: its batches, slots and multiplications."""

import pytest
import tensorflow as tf

from benchmarks.train_step_examples import (
    MASKING_RATES,
    MAX_PREDICTIONS,
    bucketed,
    prediction_slots,
    real_tokens,
)
from benchmarks.train_step_flops import Shape, step_flops
from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds


def _example(first, second):
    masked = {"ids": [1] * second, "positions": [1], "labels": [5]}
    return {"first": {"ids": [1] * first}, "second_masked": masked}


def test_batches_are_whole_and_of_one_bucket():
    """By the longer of the two; what does not fill a batch is left out."""
    lengths = [(3, 4), (9, 2), (4, 4), (5, 8), (2, 3), (8, 8), (1, 1)]
    batches = bucketed([_example(*pair) for pair in lengths], [(4, 3), (8, 2), (16, 2)])
    got = [
        (b.length, [tuple(len(s["ids"]) for s in e.values()) for e in b.examples]) for b in batches
    ]
    assert got == [(4, [(3, 4), (4, 4), (2, 3)]), (8, [(5, 8), (8, 8)])]
    assert real_tokens(batches[0].examples) == 20


@pytest.mark.parametrize("objective", ["cmlm", "mlm"])
def test_slots_are_those_of_the_pipeline(objective):
    """For every length but the longest, where the paper's count stands."""
    special = SpecialIds(pad=0, unknown=1, cls=2, sep=3, mask=4, vocab_size=10)
    masking = MaskTokens("a", "b", MASKING_RATES[objective], MAX_PREDICTIONS[objective], special)
    for length in range(3, 256):
        assert prediction_slots(objective, length) == int(masking._slots(tf.constant(length)))
    assert prediction_slots("cmlm", 256) == 80


def test_multiplications_of_a_block():
    """Counted by hand for 3 queries, 5 keys and a width of 4: two FLOPs a multiplication."""
    keys_and_values, queries_and_output = 2 * 5 * 4 * 4, 2 * 3 * 4 * 4
    scores_and_context, feed_forward = 2 * 3 * 5 * 4, 2 * 3 * 4 * 16
    expected = keys_and_values + queries_and_output + scores_and_context + feed_forward
    assert Shape("mlm", 1, 4, 100).block(3, 5) == 2 * expected


@pytest.mark.parametrize("objective", ["cmlm", "mlm", "contrastive"])
def test_what_is_not_computed(objective):
    """Buckets need less than all positions at HF's padding, and much less than 256 tokens."""
    batches = bucketed([_example(12, 14) for _ in range(8)], [(16, 4)])
    flops = step_flops(Shape(objective, 4, 256, 30522), batches, batch_size=4)
    assert 2 * flops["ours"] < flops["padding"]
    assert flops["ours"] < flops["pytorch"] < 1.2 * flops["pytorch_plain"]
