"""Streams: hosts read shares of the records, and train on the same batches as a single host."""

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs import hashing, streams
from official_cmlm.inputs.pipeline import Replicas
from official_cmlm.inputs.plan import num_streams, shard_repetitions
from official_cmlm.records.manifest import load_manifest
from tests.conftest import make_documents, two_replicas, write_records
from tests.inputs.pipelines import (
    Pipeline,
    assert_same,
    assert_same_data,
    blocks_of,
    manifest_of,
    pairs_by_hand,
)

STREAMS, STEPS = 4, 120
SETTINGS = {"streams": STREAMS, "shuffle_sentences": 120}


@pytest.fixture(scope="module")
def streamed(tmp_path_factory, vocabulary) -> Pipeline:
    """Writes some twenty shards, for a pipeline."""
    folder = tmp_path_factory.mktemp("streams") / "records"
    write_records(folder, make_documents(60), vocabulary, shard_bytes=400)
    assert len(load_manifest(folder).shards) >= 4 * STREAMS
    return Pipeline(folder, vocabulary)


@pytest.fixture(scope="module")
def whole(streamed) -> list[dict]:
    return streamed.batches(STEPS, **SETTINGS)


def _hosts(pipeline, hosts, replicas, count, reached=None, **settings) -> list[dict]:
    """Joins the batches of several hosts."""
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("hosts", "replicas", "boundaries"),
    [
        (2, 2, [12, 16, 24]),
        (2, 4, [12, 16, 24]),
        (2, 2, []),
        (4, 4, [12, 16, 24]),
        (4, 4, []),
        (1, 2, [12, 16, 24]),
    ],
)
def test_batches_do_not_depend_on_hosts(streamed, hosts, replicas, boundaries):
    """Positions included. Static shapes, as random batches of hosts may differ in length."""
    settings = {"bucket_boundaries": boundaries, "static_shapes": True}
    batches = _hosts(streamed, hosts, replicas, 12, **settings)
    assert_same(batches, streamed.batches(12, **SETTINGS | settings))


@pytest.mark.long
def test_every_pair_once_an_epoch(streamed, whole, sources):
    """No example is lost or repeated: those of an epoch come, each once, or wait still."""
    expected = len(pairs_by_hand(streamed.folder, streamed.special, 24))
    keys = Counter(int(key) for batch in whole for key in batch["key"])
    assert max(keys.values()) == 1
    epochs = Counter(sources[key][0] for key in keys)
    assert epochs[0] == expected and len(epochs) > 2


@pytest.fixture(scope="module")
def sources(streamed) -> dict[int, tuple[int, str]]:
    """Maps the key of each example of the first 16 epochs to its epoch and shard."""
    shards = load_manifest(streamed.folder).shards
    names = np.repeat([shard.name for shard in shards], [shard.records for shard in shards])
    by_key = {}
    for epoch in range(16):
        epoch_key = hashing.fold(tf.constant(0, tf.int64), epoch)
        records = hashing.fold(epoch_key, tf.range(len(names)))
        keys = hashing.fold(records[:, tf.newaxis], tf.range(64)[tf.newaxis]).numpy()
        by_key |= {int(key): (epoch, name) for row, name in zip(keys, names) for key in row}
    return by_key


@pytest.mark.long
@pytest.mark.parametrize("hosts", [2, 4])
def test_a_record_is_read_by_one_host(streamed, whole, sources, hosts):
    """In an epoch; and each host builds its share of the examples."""
    readers: dict = {}
    for host in range(hosts):
        batches = streamed.batches(STEPS, Replicas(hosts, host, 1), **SETTINGS)
        keys = np.concatenate([batch["key"] for batch in batches])
        assert len(keys) * hosts == sum(len(batch["key"]) for batch in whole)
        for key in keys.tolist():
            readers.setdefault(sources[key], set()).add(host)
    assert {len(each) for each in readers.values()} == {1}


def test_shapes_of_a_step(streamed):
    """Each batch is full and padded to its bucket; most of its examples belong there."""
    own, keys = [], []
    for batch in streamed.batches(20, **SETTINGS):
        keys += batch["key"].tolist()
        length = batch["first"]["input_word_ids"].shape[1]
        assert len(batch["key"]) == streamed.sizes[length]
        masks = [batch[name]["input_mask"].sum(axis=1) for name in ("first", "second")]
        longest = np.maximum(*masks)
        assert longest.max() <= length
        own += list(longest > {12: 0, 16: 12, 24: 16}[length])
    assert np.mean(own) > 0.7 and len(set(keys)) == len(keys)


@pytest.mark.long
@pytest.mark.parametrize(
    ("hosts", "done", "settings"),
    [(1, 50, {}), (1, 3, {}), (4, 50, {}), (2, 97, {}), (1, 44, {"bucket_boundaries": []})],
)
def test_goes_on_after_any_batch(streamed, hosts, done, settings):
    """With as many hosts or with others; and what it stores leads on in turn."""
    whole = streamed.batches(STEPS, **SETTINGS | settings)
    resumed = _hosts(streamed, hosts, hosts, 5, whole[done - 1]["position"], **settings)
    assert_same_data(resumed, whole[done : done + 5])
    again = _hosts(streamed, 1, 1, 2, resumed[-1]["position"], **settings)
    assert_same_data(again, whole[done + 5 : done + 7])


@pytest.mark.long
def test_batches_cover_the_hard_cases(whole):
    """Blocks that complete several batches, examples that wait, later epochs."""
    positions = np.array([batch["position"] for batch in whole])
    assert positions.shape == (STEPS, STREAMS, 64)
    waits, done = positions[:, :, 5] > positions[:, :, 1], positions[:, :, 7]
    assert waits.mean() > 0.2 and (done > 1).mean() > 0.2
    assert positions[-1, :, 1].min() >> 32 >= 1


@pytest.mark.long
@pytest.mark.parametrize("began", [1, 2])
def test_a_training_keeps_its_number_of_streams(streamed, began):
    """A resumed training goes on with the streams that it began with, whatever is set now."""
    batches = streamed.batches(15, **SETTINGS | {"streams": began})
    for now in (1, STREAMS):
        settings = SETTINGS | {"streams": now}
        resumed = streamed.build(reached=batches[9]["position"], **settings).take(5)
        assert_same_data(list(resumed.as_numpy_iterator()), batches[10:15])


@pytest.mark.long
def test_waiting_examples_are_bounded(streamed, monkeypatch, capfd):
    """A schedule with too few long batches: long ones are left out, by a restart too."""
    wrong = streams.schedule([0.98, 0.01, 0.01], [4, 3, 2])
    monkeypatch.setattr(streams, "_schedule_of_sample", lambda *_: wrong)
    monkeypatch.setattr(streams, "_MOST_WAITING", 2 * STREAMS)
    # A block holds a few records.
    monkeypatch.setattr(streams, "_LEAST_SENTENCES", 20)
    settings = SETTINGS | {"shuffle_sentences": 80}
    batches = streamed.batches(60, **settings)
    positions = np.array([batch["position"] for batch in batches])
    waited = positions[:, :, 5] - positions[:, :, 1]
    assert 0 < waited[waited < 1 << 20].max() < 8
    assert capfd.readouterr().err.count("train_data.streams: 1") >= 1
    resumed = streamed.build(reached=positions[47], **settings).take(5).as_numpy_iterator()
    assert_same_data(list(resumed), batches[48:53])


def _number(config, manifest) -> int:
    return num_streams(config, manifest, shard_repetitions(config, manifest))


def _numbers(folder, **settings) -> int:
    config = DataConfig(input_path=str(folder), seq_length=24, **settings)
    return _number(config, load_manifest(folder))


@pytest.mark.parametrize(
    ("streams", "size", "expected"),
    [(4, 12, 4), (2, 16, 2), (1, 16, 1), (0, 16, 1), (4, 15, 1), (3, 16, 2)],
)
def test_number_of_streams(streamed, streams, size, expected):
    """A power of two that divides the batch; one in a validation."""
    assert _numbers(streamed.folder, streams=streams, global_batch_size=size) == expected
    assert _numbers(streamed.folder, streams=streams, is_training=False) == 1


def test_batches_are_not_rounded_down_by_much(streamed):
    """A batch of 4 · 24 tokens has 5 examples of 18, and 4 streams could use only 4 of them."""
    settings = {"global_batch_size": 4, "bucket_boundaries": [18, 24]}
    assert _numbers(streamed.folder, streams=4, **settings) == 1
    assert _numbers(streamed.folder, streams=4, **settings | {"global_batch_size": 64}) == 4


@pytest.mark.parametrize(
    ("exponent", "expected", "epochs", "rtol"),
    [(1.0, 8, 3, 0.02), pytest.param(0.5, 16, 40, 0.2, marks=pytest.mark.long)],
)
def test_streams_keep_the_mixture(exponent, expected, epochs, rtol):
    """Large and small shards: over epochs all streams read as much, and as much of a language.

    With the smaller exponent an epoch has only some of the large shards.
    """
    sizes = [("en", 1000)] * 8 + [(f"l{i}", 100) for i in range(56)]
    manifest = manifest_of(sizes)
    config = DataConfig(input_path="x", streams=16, language_exponent=exponent)
    count = _number(config, manifest)
    assert count == expected
    records = np.array([n for _, n in sizes])
    read = np.zeros((count, len(sizes)))
    blocks = blocks_of(config, manifest, 1000, count)
    for epoch in range(epochs):
        for stream in range(count):
            order, _ = blocks._order(epoch, stream)
            np.add.at(read[stream], order.numpy(), 1)
    lengths = read @ records
    np.testing.assert_allclose(lengths, lengths.mean(), rtol=rtol)
    # An example is taken from each stream in turn.
    shares = ((read * records) / lengths[:, np.newaxis]).mean(axis=0)
    wanted = records * shard_repetitions(config, manifest)
    np.testing.assert_allclose(shares[:8].sum(), wanted[:8].sum() / wanted.sum(), rtol=rtol / 2)


def test_streams_of_unequal_shards_are_not_made():
    """One shard that is half of everything cannot be divided."""
    config = DataConfig(input_path="x", streams=16)
    assert _number(config, manifest_of([("en", 1 << i) for i in range(20)])) == 1


@pytest.mark.long
def test_strategies_keep_the_number_of_rows(streamed):
    """One that looks for a last batch at each step would not know it; there is none."""
    settings = {"bucket_boundaries": [12, 16, 24], "static_shapes": True}
    strategy = two_replicas()
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
