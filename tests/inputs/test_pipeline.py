"""The pipeline: what is in the batches, how they are padded, and that a seed decides all."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import Pipeline, assert_same, pairs_by_hand, pairs_of, unordered


def _keys(batches):
    return {int(key) for batch in batches for key in batch["key"]}


def _masks(batches):
    """Maps each unmasked pair to its masked second half."""
    masked = [tuple(row) for batch in batches for row in batch["masked"]["input_word_ids"].tolist()]
    return dict(zip(pairs_of(batches), masked))


@pytest.mark.long
def test_training_sees_every_pair_once_an_epoch(pipeline, corpus):
    """Epoch by epoch the pairs of the corpus, each once, in another order with other masks."""
    n = len(corpus)
    # `max_examples` must not matter; blocks are small, so that there are several.
    settings = {"global_batch_size": 1, "bucket_boundaries": [], "max_examples": 37}
    batches = pipeline.batches(3 * n, shuffle_sentences=100, **settings)
    epochs = [batches[i * n : (i + 1) * n] for i in range(3)]
    seen = [pairs_of(epoch) for epoch in epochs]
    assert [unordered(pairs) for pairs in seen] == [Counter(corpus)] * 3
    assert len(_keys(batches)) == 3 * n
    orders = [[tuple(sorted(pair)) for pair in pairs] for pairs in seen]
    assert len({tuple(order) for order in [*orders, corpus]}) == 4
    # About half of the pairs change sides from one epoch to the next.
    both = set(seen[0]) & set(seen[1])
    assert 0.4 < len(both) / n < 0.6
    # The other pairs have other masks, unless they are short.
    first, second = _masks(epochs[0]), _masks(epochs[1])
    long = [pair for pair in both if len(pair[1]) > 12]
    assert len(long) > 50
    assert np.mean([first[pair] == second[pair] for pair in long]) < 0.05


@pytest.mark.parametrize("maximum", [0, pytest.param(7, marks=pytest.mark.long)])
def test_validation_gives_each_pair_once_and_mixed(vocabulary, tmp_path, maximum):
    """Every pair once, or as many as asked for, in an order of its own: the same every time.

    Neighbours of one document as candidates of one batch would find themselves.
    """
    write_records(tmp_path / "r", make_documents(9), vocabulary, shard_bytes=1 << 20)
    pipeline = Pipeline(tmp_path / "r", vocabulary)
    settings = {"bucket_boundaries": [], "swap_probability": 0.0, "max_examples": maximum}
    dataset = pipeline.build(is_training=False, **settings)
    seen = pairs_of(dataset.as_numpy_iterator())
    expected = pairs_by_hand(tmp_path / "r", pipeline.special, 24)
    assert len(expected) > 20
    ordered = [tuple(sorted(pair)) for pair in seen]
    assert ordered != expected[: maximum or None]
    if maximum:
        assert len(ordered) == maximum and set(ordered) <= set(expected)
    else:
        assert sorted(ordered) == sorted(expected)
    assert seen == pairs_of(dataset.as_numpy_iterator())


def test_buckets(pipeline):
    """Padding up to the bucket and no further, at a constant number of tokens."""
    seen = Counter()
    for batch in pipeline.batches(60):
        length = batch["first"]["input_word_ids"].shape[1]
        shorter = {12: 0, 16: 12, 24: 16}[length]
        shape = (pipeline.sizes[length], length)
        longest = np.zeros(len(batch["key"]), int)
        for name in ("first", "second", "masked"):
            ids, mask = batch[name]["input_word_ids"], batch[name]["input_mask"]
            assert ids.shape == mask.shape == batch[name]["input_type_ids"].shape == shape
            lengths = mask.sum(axis=1)
            assert (mask == (np.arange(length) < lengths[:, None])).all()
            assert (ids[mask == 0] == pipeline.special.pad).all()
            assert not batch[name]["input_type_ids"].any()
            longest = np.maximum(longest, lengths)
        assert (shorter < longest).all() and (longest <= length).all()
        seen[length] += 1
    assert set(seen) == set(pipeline.sizes)


def test_a_padding_entry_in_a_record_is_no_padding(vocabulary, tmp_path):
    """The id of [PAD] inside a sentence counts as a token of it."""
    from data_prep.output.folder import ShardWriter
    from official_cmlm.records.documents import encode

    write_records(tmp_path, make_documents(1), vocabulary)
    manifest = load_manifest(tmp_path, "documents")
    for shard in manifest.shards:
        (tmp_path / shard.name).unlink()
    writer = ShardWriter(tmp_path, "documents", 1 << 20)
    writer.write("en", encode(np.array([7, 0, 0, 9, 0]), np.array([3, 2]), "en", "d", False))
    writer.close()
    values = vars(manifest) | {"shards": writer.shards, "records": 1, "sentences": 2}
    type(manifest)(**values).save(tmp_path)
    pipeline = Pipeline(tmp_path, vocabulary)
    batch = pipeline.batches(is_training=False, swap_probability=0.0)[0]
    assert batch["first"]["input_mask"].tolist() == [[1] * 5 + [0] * 7]
    assert batch["second"]["input_mask"].tolist() == [[1] * 4 + [0] * 8]


@pytest.mark.long
def test_a_seed_gives_the_same_batches(pipeline):
    """Two builds with one seed give equal batches."""
    assert_same(pipeline.batches(40), list(pipeline.build().take(40).as_numpy_iterator()))


def test_another_seed_gives_other_batches(pipeline):
    first = pipeline.batches(40)
    other = pipeline.batches(40, seed=4)
    assert pairs_of(first) != pairs_of(other)
    assert not _keys(first) & _keys(other)


@pytest.mark.long
def test_parallelism_does_not_matter(pipeline):
    """One thread and four give the same batches."""
    dataset = pipeline.build()
    runs = []
    for threads in (1, 4):
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        options.autotune.enabled = threads > 1
        runs.append(list(dataset.with_options(options).take(60).as_numpy_iterator()))
    assert_same(*runs)


@pytest.mark.long
def test_drop_remainder(pipeline):
    """Without the last, incomplete batches a pass is what it is otherwise."""
    batches = pipeline.batches(is_training=False)
    sizes = [pipeline.sizes[batch["first"]["input_word_ids"].shape[1]] for batch in batches]
    full = [batch for batch, size in zip(batches, sizes) if len(batch["key"]) == size]
    assert len(batches) - 3 <= len(full) < len(batches)
    assert_same(pipeline.batches(is_training=False, drop_remainder=True), full)
