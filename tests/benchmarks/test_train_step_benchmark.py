"""Batches and slots of the benchmark of training steps."""

import pytest
import tensorflow as tf

from benchmarks.train_step_examples import (
    MASKING_RATES,
    MAX_PREDICTIONS,
    fill_buckets,
    prediction_slots,
    real_tokens,
)
from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds


def _example(first, second):
    masked = {"ids": [1] * second, "positions": [1], "labels": [5]}
    return {"first": {"ids": [1] * first}, "second_masked": masked}


def test_batches_are_whole_and_of_one_bucket():
    """The longer of the two counts, and an incomplete batch is left out."""
    lengths = [(3, 4), (9, 2), (4, 4), (5, 8), (2, 3), (8, 8), (1, 1)]
    batches = fill_buckets([_example(*pair) for pair in lengths], [(4, 3), (8, 2), (16, 2)])
    sizes = [
        (b.length, [tuple(len(s["ids"]) for s in e.values()) for e in b.examples]) for b in batches
    ]
    assert sizes == [(4, [(3, 4), (4, 4), (2, 3)]), (8, [(5, 8), (8, 8)])]
    assert real_tokens(batches[0].examples) == 20


@pytest.mark.parametrize("objective", ["cmlm", "mlm"])
def test_slots_are_those_of_the_pipeline(objective):
    """For every length but the longest, where the paper's count stands."""
    special = SpecialIds(pad=0, unknown=1, cls=2, sep=3, mask=4, vocab_size=10)
    masking = MaskTokens("a", "b", MASKING_RATES[objective], MAX_PREDICTIONS[objective], special)
    for length in range(3, 256):
        assert prediction_slots(objective, length) == int(masking._slots(tf.constant(length)))
    assert prediction_slots("cmlm", 256) == 80
