"""The pipeline on several replicas and hosts: shares of one and the same global batch."""

from types import SimpleNamespace

import pytest

from official_cmlm.configs.data import DataConfig
from official_cmlm.errors import UserError
from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.pipeline import Replicas
from tests.inputs.pipelines import Pipeline, assert_same, concatenate, special_ids


@pytest.fixture(scope="module")
def pipeline(records_dir, vocabulary):
    mask = MaskTokens("second", "masked", 0.313, 8, special_ids(vocabulary))
    return Pipeline(records_dir, vocabulary, [mask])


@pytest.fixture(scope="module")
def global_batches(pipeline):
    """30 training batches of a single replica."""
    return pipeline.batches(30, seed=1)


@pytest.mark.parametrize("total", [2, 4])
def test_shares_make_up_the_global_batch(pipeline, global_batches, total):
    """The replicas' shares in turn, end to end, are the batches of a single replica."""
    # 12, 6 and 4 examples for a batch of 4: of these 6 does not divide by 4.
    settings = {"seed": 1} if total == 2 else {"seed": 1, "bucket_boundaries": [8, 24]}
    whole = global_batches if total == 2 else pipeline.batches(30, **settings)
    shares = pipeline.batches(30 * total, Replicas(total, 0, total), **settings)
    assert all(
        len({len(s["key"]) for s in shares[i : i + total]}) == 1 for i in range(0, 30, total)
    )
    joined = [concatenate(shares[i : i + total]) for i in range(0, 30 * total, total)]
    assert_same(joined, whole)


def test_two_hosts(pipeline, global_batches):
    """Each host feeds its own replica; together they see the single replica's batches."""
    hosts = [pipeline.batches(30, Replicas(2, first, 1), seed=1) for first in (0, 1)]
    for left, right in zip(*hosts):
        # In one step all replicas are in one bucket.
        assert left["first"]["input_word_ids"].shape == right["first"]["input_word_ids"].shape
    assert_same([concatenate(shares) for shares in zip(*hosts)], global_batches)


def test_validation_with_replicas(pipeline):
    """A pass on two replicas is the single replica's without its incomplete batches."""
    shares = pipeline.batches(replicas=Replicas(2, 0, 2), is_training=False)
    whole = pipeline.batches(is_training=False, drop_remainder=True)
    joined = [concatenate(shares[i : i + 2]) for i in range(0, len(shares), 2)]
    assert_same(joined, whole)


def test_replicas_of_an_input_context():
    """A host's replicas follow those of the hosts before it."""
    assert Replicas.of(None) == Replicas(1, 0, 1)
    context = SimpleNamespace(num_replicas_in_sync=8, num_input_pipelines=4, input_pipeline_id=3)
    assert Replicas.of(context) == Replicas(total=8, first=6, count=2)


def test_batch_that_does_not_divide(pipeline):
    """The message names both numbers."""
    with pytest.raises(UserError, match="global_batch_size 4 .* 3 replicas; use a multiple of 3"):
        pipeline.dataset(Replicas(3, 0, 3))


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
    ("values", "message"),
    [
        ({"input_path": ""}, "data.input_path is empty"),
        ({"seq_length": 2}, "data.seq_length must be at least 3"),
        ({"segment": "words"}, "data.segment must be one of .* got 'words'"),
        ({"global_batch_size": 0}, "data.global_batch_size must be at least 1"),
        ({"swap_probability": 1.5}, r"data.swap_probability must be in \[0, 1\], got 1.5"),
        ({"bucket_boundaries": [8, 8, 32]}, "data.bucket_boundaries must ascend"),
        ({"bucket_boundaries": [8, 16]}, r"end with seq_length \(32\)"),
        ({"bucket_boundaries": [2, 32]}, "data.bucket_boundaries must be at least 3 tokens"),
    ],
)
def test_settings_that_cannot_be(values, message):
    """Each mistake is named with its field."""
    config = DataConfig(**({"input_path": "x", "seq_length": 32} | values))
    with pytest.raises(UserError, match=message):
        config.check("data")
