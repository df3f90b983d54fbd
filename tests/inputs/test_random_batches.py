"""Random batches (`bucket_boundaries: []`): an epoch in random order, padded to what it holds."""

from collections import Counter

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.checks import check_examples
from official_cmlm.inputs.views import AdjacentPairs
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import (
    Pipeline,
    assert_same_data,
    count_unordered,
    pairs_by_hand,
    pairs_of,
)

# `max_examples`, of validation, must not matter.
SETTINGS = {"bucket_boundaries": [], "shuffle_sentences": 40, "seed": 3, "max_examples": 37}
SIZE = 8


@pytest.fixture(scope="module")
def small(vocabulary, tmp_path_factory):
    """Records whose pairs do not divide by the batch size."""
    folder = tmp_path_factory.mktemp("random") / "records"
    write_records(folder, make_documents(9), vocabulary, shard_bytes=1 << 11)
    return Pipeline(folder, vocabulary)


@pytest.fixture(scope="module")
def corpus(small):
    pairs = pairs_by_hand(small.folder, small.special, 24)
    assert len(pairs) % SIZE > 1 and len(set(pairs)) == len(pairs)
    return pairs


def _lengths(batch):
    masks = [batch[name]["input_mask"].sum(axis=1) for name in ("first", "second")]
    return np.maximum(*masks)


def test_an_epoch_has_each_pair_once_and_no_batch_has_one_twice(small, corpus):
    """Epoch by epoch: whole batches, then a smaller one of the remaining examples."""
    each = -(-len(corpus) // SIZE)
    batches = small.batches(3 * each, **SETTINGS)
    orders = []
    for number in range(3):
        epoch = batches[number * each : (number + 1) * each]
        assert count_unordered(pairs_of(epoch)) == Counter(corpus)
        assert [len(batch["key"]) for batch in epoch[:-1]] == [SIZE] * (each - 1)
        assert len(epoch[-1]["key"]) == len(corpus) % SIZE
        orders.append([tuple(sorted(pair)) for pair in pairs_of(epoch)])
    assert orders[0] != orders[1] != orders[2]
    # New keys, and so other masks and other sides.
    assert len({int(key) for batch in batches for key in batch["key"]}) == 3 * len(corpus)


def test_lengths_are_mixed_and_padding_ends_with_the_longest(small):
    """With buckets a short sentence never meets a long one; here it does."""
    batches = small.batches(15, **SETTINGS)
    for batch in batches:
        width = batch["first"]["input_word_ids"].shape[1]
        assert width == batch["second"]["input_word_ids"].shape[1] == _lengths(batch).max()
    spread = [np.ptp(_lengths(batch)) for batch in batches]
    assert np.mean(spread) > 6
    assert len({batch["first"]["input_word_ids"].shape[1] for batch in batches}) > 1


@pytest.mark.long
def test_one_shape_for_compiled_steps(small, corpus):
    """The same batches, padded to `seq_length`; what is left of an epoch is left out."""
    each = len(corpus) // SIZE
    fixed = list(small.build(static_shapes=True, **SETTINGS).take(2 * each).as_numpy_iterator())
    assert {batch["first"]["input_word_ids"].shape for batch in fixed} == {(SIZE, 24)}
    free = small.batches(2 * each + 1, **SETTINGS)
    del free[each]
    assert pairs_of(fixed) == pairs_of(free)
    left_out = small.batches(2 * each, drop_remainder=True, **SETTINGS)
    assert [len(batch["key"]) for batch in left_out] == [SIZE] * 2 * each


@pytest.mark.long
@pytest.mark.parametrize(
    ("drop_remainder", "after_epoch"),
    [
        (False, -2),
        (False, 0),
        (False, 1),
        (True, 0),
    ],
)
def test_resumes_after_any_batch(small, corpus, drop_remainder, after_epoch):
    """Around the end of an epoch and in the next one."""
    settings = SETTINGS | {"drop_remainder": drop_remainder}
    each = len(corpus) // SIZE + (not drop_remainder)
    whole = small.batches(2 * each, **settings)
    done = each + after_epoch
    rest = small.build(reached=whole[done - 1]["position"], **settings)
    resumed = list(rest.take(4).as_numpy_iterator())
    assert_same_data(resumed, whole[done : done + 4])


@pytest.mark.parametrize("buckets", [pytest.param([], marks=pytest.mark.long), [12, 24]])
def test_a_batch_that_an_epoch_cannot_fill_is_refused(small, corpus, buckets):
    """The records would be read for ever, and all their examples held in memory."""
    config = DataConfig(
        input_path=str(small.folder),
        seq_length=24,
        global_batch_size=len(corpus),
        bucket_boundaries=buckets,
    )
    view = AdjacentPairs("sentence", 24, 0.5, small.special)
    manifest = load_manifest(small.folder, "documents")
    check_examples(config, manifest, view)
    size = len(corpus) + 1
    message = f"one batch of {size}, an epoch has {len(corpus)}; lower train_data"
    with pytest.raises(UserError, match=message):
        check_examples(config.replace(global_batch_size=size), manifest, view)
