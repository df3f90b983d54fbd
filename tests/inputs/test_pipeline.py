"""The pipeline: how batches are padded and shared, and what a seed decides."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pipeline import Replicas
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, write_records
from tests.inputs.pipelines import Pipeline, assert_same, concatenate, pairs_by_hand, pairs_of


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


# `max_examples`, of validation, must not matter.
RANDOM = {"bucket_boundaries": [], "shuffle_sentences": 40, "seed": 3, "max_examples": 37}


@pytest.fixture(scope="module")
def small(vocabulary, tmp_path_factory):
    """Writes records whose pairs do not divide by the batch size."""
    folder = tmp_path_factory.mktemp("random") / "records"
    write_records(folder, make_documents(9), vocabulary, shard_bytes=1 << 11)
    return Pipeline(folder, vocabulary)


def test_random_batches_mix_lengths_and_are_padded_to_the_longest(small):
    """With buckets a short sentence never meets a long one; here it does."""
    widths, spread = set(), []
    for batch in small.batches(15, **RANDOM):
        masks = [batch[name]["input_mask"] for name in ("first", "second")]
        lengths = np.maximum(*(mask.sum(axis=1) for mask in masks))
        assert {mask.shape[1] for mask in masks} == {lengths.max()}
        widths.add(lengths.max())
        spread.append(np.ptp(lengths))
    assert np.mean(spread) > 6 and len(widths) > 1


@pytest.mark.long
def test_random_batches_of_one_shape_for_compiled_steps(small):
    """The same batches, padded to `seq_length`; what is left of an epoch is left out."""
    each, rest = divmod(len(pairs_by_hand(small.folder, small.special, 24)), 8)
    assert rest > 1
    fixed = list(small.build(static_shapes=True, **RANDOM).take(2 * each).as_numpy_iterator())
    assert {batch["first"]["input_word_ids"].shape for batch in fixed} == {(8, 24)}
    free = small.batches(2 * each + 1, **RANDOM)
    del free[each]
    assert pairs_of(fixed) == pairs_of(free)
    left_out = small.batches(2 * each, drop_remainder=True, **RANDOM)
    assert [len(batch["key"]) for batch in left_out] == [8] * 2 * each


def test_a_padding_id_in_a_record_is_a_token(vocabulary, tmp_path):
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


def test_another_seed_gives_other_examples(pipeline):
    first, other = pipeline.examples(0), pipeline.examples(0, seed=4)
    assert [*first.values()] != [*other.values()]
    assert not first.keys() & other.keys()


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


def test_shares_make_up_the_global_batch(pipeline):
    """The shares of two replicas in turn, end to end, are the batches of a single one.

    But for the last example of an odd one, which only the end of a validation has.
    """
    shares = pipeline.batches(replicas=Replicas(2, 0, 2), is_training=False)
    joined = [concatenate(shares[i : i + 2]) for i in range(0, len(shares), 2)]
    batches = pipeline.batches(is_training=False)
    even = [tf.nest.map_structure(lambda v: v[: len(v) // 2 * 2], batch) for batch in batches]
    assert len(even) > len(joined) - 1 and sum(len(b["key"]) % 2 for b in batches)
    assert_same(joined, [batch for batch in even if len(batch["key"])])
    assert [len(share["key"]) * 2 for share in shares[::2]] == [len(b["key"]) for b in joined]


@pytest.mark.long
def test_two_hosts(pipeline):
    """Each host feeds its own two of four replicas; together they see the single one's batches."""
    hosts = [pipeline.batches(40, Replicas(4, first, 2)) for first in (0, 2)]
    shares = [share for i in range(0, 40, 2) for host in hosts for share in host[i : i + 2]]
    steps = [shares[i : i + 4] for i in range(0, 80, 4)]
    for step in steps:
        # All replicas are in one bucket.
        assert len({share["first"]["input_word_ids"].shape for share in step}) == 1
    assert_same([concatenate(step) for step in steps], pipeline.batches(20))


def test_replicas_of_an_input_context():
    """A host's replicas follow those of the hosts before it."""
    assert Replicas.of(None) == Replicas(1, 0, 1)
    context = SimpleNamespace(num_replicas_in_sync=8, num_input_pipelines=4, input_pipeline_id=3)
    assert Replicas.of(context) == Replicas(total=8, first=6, count=2)


@pytest.mark.parametrize(
    ("maximum", "replicas", "sizes"),
    [
        (0, 1, [64, 32, 8]),
        (0, 4, [64, 32, 8]),
        (40, 1, [40, 32, 8]),
        (15, 4, [12, 12, 8]),
        (2, 1, [8, 8, 8]),
    ],
)
def test_bucket_sizes(maximum, replicas, sizes):
    """Batches hold no more tokens than the longest bucket's, and divide by the replicas.

    `max_bucket_batch_size` bounds what short buckets hold, never below the batch size.
    """
    config = DataConfig(
        seq_length=64,
        global_batch_size=8,
        bucket_boundaries=[8, 16, 64],
        max_bucket_batch_size=maximum,
    )
    assert [size for _, size in config.buckets(replicas)] == sizes
