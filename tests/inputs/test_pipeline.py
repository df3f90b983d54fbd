"""The pipeline: what is in the batches, how they are padded, and that a seed decides all."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import Pipeline, assert_same, pairs_by_hand, pairs_of, special_ids

PASS = {"is_training": False}
ONE_BY_ONE = {"global_batch_size": 1, "bucket_boundaries": []}


@pytest.fixture(scope="module")
def pipeline(records_dir, vocabulary):
    mask = MaskTokens("second", "masked", 0.313, 8, special_ids(vocabulary))
    return Pipeline(records_dir, vocabulary, [mask])


@pytest.fixture(scope="module")
def corpus(pipeline):
    """Every adjacent pair of the corpus, read by hand."""
    return pairs_by_hand(pipeline.folder, pipeline.special, 24)


def _unordered(pairs):
    return Counter(tuple(sorted(pair)) for pair in pairs)


def test_the_records_suit_the_tests(pipeline, corpus):
    """There are several shards, and enough pairs for what follows."""
    assert len(load_manifest(pipeline.folder, "documents").shards) >= 3
    assert len(corpus) > 300


@pytest.mark.parametrize("shuffle_sentences", [40, 65536])
def test_training_sees_every_pair_once_an_epoch(pipeline, corpus, shuffle_sentences):
    """Epoch by epoch the pairs of the corpus, each once, in another order with other masks."""
    n = len(corpus)
    batches = pipeline.batches(3 * n, **ONE_BY_ONE, shuffle_sentences=shuffle_sentences)
    epochs = [batches[i * n : (i + 1) * n] for i in range(3)]
    pairs = [pairs_of(epoch) for epoch in epochs]
    for seen in pairs:
        assert _unordered(seen) == Counter(corpus)
    orders = [[tuple(sorted(pair)) for pair in seen] for seen in pairs]
    assert orders[0] != orders[1] != orders[2] != orders[0] and corpus not in orders
    # About half of the pairs change sides between epochs.
    sides = [dict(zip(order, seen)) for order, seen in zip(orders, pairs)]
    changed = np.mean([sides[0][pair] != sides[1][pair] for pair in sides[0]])
    assert 0.35 < changed < 0.65
    assert len({int(key) for batch in batches for key in batch["key"]}) == 3 * n
    assert _masks(epochs[0]).keys() & _masks(epochs[1]).keys()
    same = [_masks(epochs[1])[pair] == m for pair, m in _masks(epochs[0]).items() if pair in sides]
    assert np.mean(same or [0]) < 0.5


def _masks(batches):
    """Pair in its order -> the masked second half."""
    masked = [tuple(row) for batch in batches for row in batch["masked"]["input_word_ids"].tolist()]
    return dict(zip(pairs_of(batches), masked))


def test_masks_are_drawn_anew_each_epoch(pipeline, corpus):
    """A pair that keeps its sides has other masks in the next epoch, mostly."""
    n = len(corpus)
    batches = pipeline.batches(2 * n, **ONE_BY_ONE, swap_probability=0.0)
    first, second = _masks(batches[:n]), _masks(batches[n:])
    assert first.keys() == second.keys()
    long = [pair for pair in first if len(pair[1]) > 12]
    assert len(long) > 50
    assert np.mean([first[pair] == second[pair] for pair in long]) < 0.05


def test_validation_pass(pipeline, corpus):
    """One pass holds every pair once, and is the same each time it is made or repeated."""
    dataset = pipeline.dataset(**PASS)
    first = list(dataset.as_numpy_iterator())
    assert _unordered(pairs_of(first)) == Counter(corpus)
    assert_same(first, list(dataset.as_numpy_iterator()))
    assert_same(first, pipeline.batches(**PASS))


def test_validation_keeps_the_order_of_the_text(records_dir, vocabulary, tmp_path):
    """Without swaps and buckets, a single shard's pairs come as they stand in it."""
    write_records(tmp_path / "r", make_documents(9), vocabulary, shard_bytes=1 << 20)
    pipeline = Pipeline(tmp_path / "r", vocabulary)
    seen = pairs_of(pipeline.batches(**PASS, bucket_boundaries=[], swap_probability=0.0))
    expected = pairs_by_hand(tmp_path / "r", pipeline.special, 24)
    assert [tuple(sorted(pair)) for pair in seen] == expected


def test_buckets(pipeline):
    """Padding up to the bucket and no further, at a constant number of tokens."""
    sizes = {8: 12, 16: 6, 24: 4}
    seen = Counter()
    for batch in pipeline.batches(60):
        length = batch["first"]["input_word_ids"].shape[1]
        shorter = {8: 0, 16: 8, 24: 16}[length]
        assert len(batch["key"]) == sizes[length]
        longest = np.zeros(sizes[length], int)
        for name in ("first", "second", "masked"):
            ids, mask = batch[name]["input_word_ids"], batch[name]["input_mask"]
            assert ids.shape == mask.shape == batch[name]["input_type_ids"].shape
            assert ids.shape == (sizes[length], length)
            lengths = mask.sum(axis=1)
            assert (mask == (np.arange(length) < lengths[:, None])).all()
            assert (ids[mask == 0] == pipeline.special.pad).all()
            assert not batch[name]["input_type_ids"].any()
            longest = np.maximum(longest, lengths)
        assert (shorter < longest).all() and (longest <= length).all()
        seen[length] += 1
    assert set(seen) == set(sizes)


def test_limit_on_a_short_buckets_batch(pipeline):
    """`max_bucket_batch_size` bounds what short buckets hold, never below the batch size."""
    for limit, sizes in ((5, {4, 5}), (2, {4})):
        batches = pipeline.batches(30, max_bucket_batch_size=limit)
        assert {len(batch["key"]) for batch in batches} == sizes


def test_the_seed_decides(pipeline):
    """Two builds with one seed give equal batches; another seed gives others."""
    first = pipeline.batches(40, seed=3)
    assert_same(first, pipeline.batches(40, seed=3))
    other = pipeline.batches(40, seed=4)
    assert pairs_of(first) != pairs_of(other)
    assert not {int(k) for b in first for k in b["key"]} & {int(k) for b in other for k in b["key"]}


def test_parallelism_does_not_matter(pipeline):
    """One thread and four give the same batches."""

    def run(threads):
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        options.autotune.enabled = threads > 1
        dataset = pipeline.dataset(shuffle_sentences=60).with_options(options)
        return list(dataset.take(60).as_numpy_iterator())

    assert_same(run(1), run(4))


def test_max_examples(pipeline):
    """A validation pass stops after so many; training does not, and 0 means all."""
    everything = pipeline.batches(**PASS, bucket_boundaries=[])
    some = pipeline.batches(**PASS, bucket_boundaries=[], max_examples=37)
    assert pairs_of(some) == pairs_of(everything)[:37]
    assert len(pairs_of(pipeline.batches(50, **ONE_BY_ONE, max_examples=37))) == 50


def test_drop_remainder(pipeline, corpus):
    """What does not fill a batch of its bucket is left out on request."""
    full = pipeline.batches(**PASS, drop_remainder=True)
    sizes = {8: 12, 16: 6, 24: 4}
    assert all(len(b["key"]) == sizes[b["first"]["input_word_ids"].shape[1]] for b in full)
    missing = Counter(corpus) - _unordered(pairs_of(full))
    assert 0 < missing.total() < 12 + 6 + 4
    assert len(full[0]["key"]) > 0 and not _unordered(pairs_of(full)) - Counter(corpus)


def test_packed_segments(pipeline):
    """`packed` reaches the view: sequences are longer, still within `seq_length`."""
    lengths = [
        np.concatenate(
            [b["first"]["input_mask"].sum(axis=1) for b in pipeline.batches(**PASS, **s)]
        )
        for s in ({}, {"segment": "packed", "seq_length": 60, "bucket_boundaries": []})
    ]
    assert lengths[1].mean() > 1.5 * lengths[0].mean() and lengths[1].max() <= 60
