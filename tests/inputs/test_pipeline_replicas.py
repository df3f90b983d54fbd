"""The pipeline on several replicas and hosts: shares of one and the same global batch."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.pipeline import Replicas, check_batches
from official_cmlm.inputs.views import AdjacentPairs
from official_cmlm.records.manifest import load_manifest
from tests.inputs.pipelines import assert_same, concatenate


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


@pytest.mark.parametrize(
    ("replicas", "drop", "size", "most"),
    [(8, False, 8, 6), pytest.param(1, True, 512, 0, marks=pytest.mark.long)],
)
def test_validation_of_too_few_examples(pipeline, replicas, drop, size, most):
    """No batch on any replica, or no whole one where these are wanted: an error, not silence."""
    manifest = load_manifest(pipeline.folder, "documents")
    view = AdjacentPairs("sentence", 24, 0.5, pipeline.special)
    config = DataConfig(
        input_path=str(pipeline.folder),
        is_training=False,
        seq_length=24,
        global_batch_size=size,
        drop_remainder=drop,
        max_examples=most,
    )
    with pytest.raises(UserError, match=f"too few examples .* on {replicas} replica"):
        check_batches(config, manifest, view, replicas)


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


def test_batch_that_does_not_divide(pipeline):
    """The message names both numbers."""
    with pytest.raises(UserError, match="global_batch_size 8 .* 3 replicas; use a multiple of 3"):
        pipeline.build(Replicas(3, 0, 3))


@pytest.mark.parametrize("replicas", [1, 2, 8])
def test_bucket_sizes(replicas):
    """Each bucket's batch divides by the replicas and holds no more tokens than the longest."""
    config = DataConfig(seq_length=256, global_batch_size=16, bucket_boundaries=[3, 50, 100, 256])
    sizes = config.buckets(replicas)
    assert [length for length, _ in sizes] == [3, 50, 100, 256]
    for length, size in sizes:
        assert size % replicas == 0
        assert 16 * 256 - replicas * length < size * length <= 16 * 256


@pytest.mark.parametrize(
    ("maximum", "replicas", "sizes"),
    [(0, 1, [64, 32, 8]), (40, 1, [40, 32, 8]), (15, 4, [12, 12, 8]), (2, 1, [8, 8, 8])],
)
def test_limit_on_a_short_buckets_batch(maximum, replicas, sizes):
    """`max_bucket_batch_size` bounds what short buckets hold, never below the batch size."""
    config = DataConfig(
        seq_length=64,
        global_batch_size=8,
        bucket_boundaries=[8, 16, 64],
        max_bucket_batch_size=maximum,
    )
    assert [size for _, size in config.buckets(replicas)] == sizes
