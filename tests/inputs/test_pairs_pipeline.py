"""The pipeline over pairs: rows stay whole, and labels stay with their examples."""

import numpy as np
import pytest

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pair_views import InferencePairs
from official_cmlm.inputs.pipeline import Replicas, build_dataset
from official_cmlm.inputs.plan import Plan
from official_cmlm.inputs.reader import parse_block
from official_cmlm.inputs.views import SpecialIds
from official_cmlm.records.manifest import load_manifest
from tests.inputs.pipelines import blocks_of, pairs_of
from tests.pairs_helpers import nli_rows, read_pairs_by_hand, write_pairs

LANGUAGES = ("en", "de", "fr")
ROWS = 70


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Writes labelled rows in three languages, in shards of one to three rows."""
    path = tmp_path_factory.mktemp("nli")
    manifest = write_pairs(path, nli_rows(ROWS, LANGUAGES, seed=2), vocabulary, 700)
    assert manifest.row_size == 3 and len(manifest.shards) > 20
    return path


@pytest.fixture(scope="module")
def build(folder, vocabulary):
    """Builds a pipeline of premises and hypotheses in different languages."""
    view = InferencePairs(14, "different", 3, SpecialIds.of(vocabulary))

    def build(replicas=Replicas(), **settings):
        values = {"seq_length": 14, "global_batch_size": 8, "bucket_boundaries": [10, 14]}
        config = DataConfig(input_path=str(folder), **(values | settings))
        config.check("data")
        plan = Plan.of(config, load_manifest(folder), view, replicas.total)
        return build_dataset(plan, replicas=replicas)

    return build


@pytest.fixture(scope="module")
def training(build):
    """Takes the batches of the first four epochs and a little more."""
    return list(build(shuffle_sentences=90).take(110).as_numpy_iterator())


@pytest.fixture(scope="module")
def validation(build):
    """Takes the batches of a validation pass."""
    return list(build(is_training=False).as_numpy_iterator())


@pytest.fixture(scope="module")
def by_hand(folder, vocabulary):
    """Maps premises and hypotheses to their records. No text occurs twice."""
    special = SpecialIds.of(vocabulary)
    records = [record for shard in read_pairs_by_hand(folder).values() for record in shard]
    sides = [
        {(special.cls, *record["ids"][side][:12], special.sep): record for record in records}
        for side in (0, 1)
    ]
    assert len(sides[0]) == len(sides[1]) == len(records) == 3 * ROWS
    return sides


def _check(batches, by_hand):
    """Labels, rows and languages of every example; returns its premises."""
    premises, hypotheses = by_hand
    seen = pairs_of(batches)
    labels = np.concatenate([batch["label"] for batch in batches])
    assert labels.dtype == np.int32
    for (first, second), label in zip(seen, labels, strict=True):
        premise, hypothesis = premises[first], hypotheses[second]
        assert premise["row"] == hypothesis["row"]
        assert label == premise["label"] == premise["row"] % 3
        assert premise["languages"] != hypothesis["languages"]
    return [first for first, _ in seen]


def test_labels_in_training(training, by_hand):
    """Through shuffling and buckets each example keeps its label; every premise once an epoch."""
    premises = _check(training, by_hand)
    assert len(premises) > 4 * 3 * ROWS
    # Batches of two buckets: the order of epochs is blurred by no more than what waits in them.
    times = {first: premises.count(first) for first in by_hand[0]}
    assert 3 <= min(times.values()) and max(times.values()) <= len(premises) // (3 * ROWS) + 1
    assert {batch["first"]["input_word_ids"].shape[1] for batch in training} == {10, 14}
    labels = np.concatenate([batch["label"] for batch in training])
    assert (np.diff(labels) != 0).mean() > 0.5


@pytest.mark.long
def test_labels_in_validation(validation, by_hand):
    """One pass holds every premise once."""
    assert sorted(_check(validation, by_hand)) == sorted(by_hand[0])


@pytest.mark.parametrize("shard_bytes", [pytest.param(1, marks=pytest.mark.long), 1000])
@pytest.mark.parametrize(("sentences", "is_training"), [(1, True), (40, True), (1, False)])
def test_rows_are_never_split(vocabulary, tmp_path, shard_bytes, sentences, is_training):
    """Neither over shards nor over blocks, however small these are."""
    manifest = write_pairs(tmp_path, nli_rows(17, LANGUAGES), vocabulary, shard_bytes)
    for shard in read_pairs_by_hand(tmp_path).values():
        assert [record["row"] for record in shard[::3]] == [r["row"] for r in shard[2::3]]
    assert (len(manifest.shards) == 17) == (shard_bytes == 1)
    config = DataConfig(
        input_path=str(tmp_path), shuffle_sentences=sentences, is_training=is_training
    )
    rows = []
    for _, serialized, keys in blocks_of(config, manifest).epoch(0):
        block = parse_block("pairs", serialized, keys, with_text=False)
        numbers = block.rows.numpy().reshape(-1, 3)
        assert (numbers == numbers[:, :1]).all()
        names = [name.decode() for name in block.languages.numpy()[:, 0]]
        assert names == [*LANGUAGES] * len(numbers)
        assert sentences > 1 or len(numbers) == 1
        rows += numbers[:, 0].tolist()
    assert sorted(rows) == list(range(17))
