"""Streams: hosts read shares of the records, and train on the same batches as a single host."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.pipeline import Replicas, num_streams
from official_cmlm.inputs.record_names import record_names
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, mirrored_strategy, write_records
from tests.inputs.pipelines import Pipeline, assert_same, pairs_by_hand

STREAMS, STEPS = 4, 120
SETTINGS = {"streams": STREAMS, "shuffle_sentences": 120}


@pytest.fixture(scope="module")
def streamed(tmp_path_factory, vocabulary) -> Pipeline:
    """A pipeline over some twenty shards."""
    folder = tmp_path_factory.mktemp("streams") / "records"
    write_records(folder, make_documents(60), vocabulary, shard_bytes=400)
    assert len(load_manifest(folder).shards) >= 4 * STREAMS
    return Pipeline(folder, vocabulary)


@pytest.fixture(scope="module")
def whole(streamed) -> list[dict]:
    return streamed.batches(STEPS, **SETTINGS)


def _hosts(pipeline, hosts, replicas, count, reached=None, **settings) -> list[dict]:
    """The batches of several hosts, put together."""
    own = replicas // hosts
    shares = [
        list(
            pipeline.build(Replicas(replicas, host * own, own), reached, **SETTINGS | settings)
            .take(count * own)
            .as_numpy_iterator()
        )
        for host in range(hosts)
    ]
    return [
        _together([share for host in shares for share in host[i * own : (i + 1) * own]])
        for i in range(count)
    ]


def _together(shares: list[dict]) -> dict:
    shares = [dict(share) for share in shares]
    positions = sum(share.pop("position") for share in shares)
    joined = tf.nest.map_structure(lambda *values: np.concatenate(values), *shares)
    return {**joined, "position": positions}


@pytest.mark.parametrize(
    ("hosts", "replicas", "boundaries"),
    [
        (2, 4, [12, 16, 24]),
        pytest.param(2, 2, [], marks=pytest.mark.long),
        pytest.param(4, 4, [12, 16, 24], marks=pytest.mark.long),
        pytest.param(4, 4, [], marks=pytest.mark.long),
        pytest.param(1, 2, [12, 16, 24], marks=pytest.mark.long),
    ],
)
def test_batches_do_not_depend_on_hosts(streamed, hosts, replicas, boundaries):
    """Positions included. Static shapes, as random batches of hosts may differ in length."""
    settings = {"bucket_boundaries": boundaries, "static_shapes": True}
    found = _hosts(streamed, hosts, replicas, 12, **settings)
    assert_same(found, streamed.batches(12, **SETTINGS | settings))


@pytest.mark.long
def test_hosts_that_do_not_divide_the_streams(streamed):
    """Eight hosts: two share each stream."""
    found = _hosts(streamed, 8, 8, 6)
    assert_same(found, _hosts(streamed, 1, 8, 6))


def test_every_pair_once_an_epoch(streamed, whole):
    """No example is lost or repeated: those of an epoch come, each once, or wait still."""
    expected = len(pairs_by_hand(streamed.folder, streamed.special, 24))
    keys = Counter(int(key) for batch in whole for key in batch["key"])
    assert max(keys.values()) == 1
    config = _config(streamed)
    names = record_names(np.array(list(keys)), config, load_manifest(streamed.folder), 0)
    epochs = Counter(name.epoch for name in names)
    assert epochs[0] == expected and len(epochs) > 2


def _config(pipeline):
    from official_cmlm.configs.data import DataConfig

    return DataConfig(input_path=str(pipeline.folder), seq_length=24)


@pytest.mark.parametrize("hosts", [2, pytest.param(4, marks=pytest.mark.long)])
def test_a_record_is_read_by_one_host(streamed, hosts):
    """In an epoch; and each host builds its share of the examples."""
    manifest = load_manifest(streamed.folder)
    readers: dict = {}
    for host in range(hosts):
        batches = streamed.batches(STEPS, Replicas(hosts, host, 1), **SETTINGS)
        keys = np.concatenate([batch["key"] for batch in batches])
        total = sum(len(batch["key"]) for batch in streamed.batches(STEPS, **SETTINGS))
        assert len(keys) * hosts == total
        for name in set(record_names(keys, _config(streamed), manifest, 0)):
            readers.setdefault((name.epoch, name.shard), set()).add(host)
    assert {len(each) for each in readers.values()} == {1}


def test_shapes_of_a_step(streamed, whole):
    """Each batch is full and padded to its bucket; most of its examples belong there."""
    own = []
    for batch in whole:
        length = batch["first"]["input_word_ids"].shape[1]
        assert len(batch["key"]) == streamed.sizes[length]
        masks = [batch[name]["input_mask"].sum(axis=1) for name in ("first", "second")]
        longest = np.maximum(*masks)
        assert longest.max() <= length
        own += list(longest > {12: 0, 16: 12, 24: 16}[length])
    assert np.mean(own) > 0.7


@pytest.mark.parametrize(
    ("hosts", "done"),
    [(1, 50)] + [pytest.param(h, d, marks=pytest.mark.long) for h, d in ((1, 3), (4, 50), (2, 97))],
)
def test_goes_on_after_any_batch(streamed, whole, done, hosts):
    """With as many hosts or with others; and what it stores leads on in turn."""
    reached = np.pad(whole[done - 1]["position"], [[0, 60], [0, 0]])
    found = _hosts(streamed, hosts, hosts, 5, reached)
    _assert_same_data(found, whole[done : done + 5])
    again = _hosts(streamed, 1, 1, 2, found[-1]["position"])
    _assert_same_data(again, whole[done + 5 : done + 7])


@pytest.mark.long
def test_random_batches_go_on(streamed):
    """Without buckets."""
    settings = {**SETTINGS, "bucket_boundaries": []}
    batches = streamed.batches(60, **settings)
    found = _hosts(streamed, 1, 1, 5, batches[43]["position"], bucket_boundaries=[])
    _assert_same_data(found, batches[44:49])


def _assert_same_data(left, right):
    """Equal but for positions, which may name an older block after a restart."""
    assert_same(*([{**batch, "position": 0} for batch in side] for side in (left, right)))


def test_what_is_tested_above_is_not_the_easy_case(whole):
    """Blocks that complete several batches, examples that wait, later epochs."""
    positions = np.array([batch["position"] for batch in whole])
    assert positions.shape == (STEPS, STREAMS, 64)
    waits, done = positions[:, :, 5] > positions[:, :, 1], positions[:, :, 7]
    assert waits.mean() > 0.2 and (done > 1).mean() > 0.2
    assert positions[-1, :, 1].min() >> 32 >= 1


@pytest.mark.long
def test_a_training_without_streams_goes_on_without(streamed):
    """As those of older releases."""
    alone = streamed.batches(30, **SETTINGS | {"streams": 1})
    assert alone[9]["position"].shape == (64,)
    found = streamed.build(reached=alone[9]["position"], **SETTINGS).take(5)
    _assert_same_data(list(found.as_numpy_iterator()), alone[10:15])


def test_number_of_streams(streamed):
    """A power of two that divides the longest batch and leaves each stream four shards."""
    manifest = load_manifest(streamed.folder)
    most = 1 << ((len(manifest.shards) // 4).bit_length() - 1)
    assert most >= STREAMS
    for streams, size, replicas, expected in (
        (64, 64, 1, most),
        (16, 12, 1, 4),
        (2, 16, 1, 2),
        (1, 16, 1, 1),
        (16, 15, 1, 1),
        (3, 16, 1, 2),
        (16, 24, 3, min(8, most)),
    ):
        config = _config(streamed).replace(streams=streams, global_batch_size=size)
        assert num_streams(config, manifest, replicas) == expected
    assert num_streams(_config(streamed).replace(is_training=False), manifest) == 1


def test_strategies_keep_the_number_of_rows(streamed):
    """One that looks for a last batch at each step would not know it; there is none."""
    settings = {"bucket_boundaries": [12, 16, 24], "static_shapes": True}
    strategy = mirrored_strategy()
    batches = strategy.distribute_datasets_from_function(
        lambda context: streamed.build(Replicas.of(context), **SETTINGS | settings)
    )

    @tf.function
    def positions(iterator) -> tf.Tensor:
        position = next(iterator)["position"]
        (first, second) = strategy.experimental_local_results(position)
        assert first.shape == second.shape == [STREAMS, 64]
        return first + second

    expected = streamed.batches(1, **SETTINGS | settings)[0]["position"]
    np.testing.assert_array_equal(positions(iter(batches)), expected)
