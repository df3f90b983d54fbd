"""Several folders of records that are read as one: shares, determinism, resumption, refusals."""

import collections
import dataclasses
import shutil

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig, SourceConfig
from official_cmlm.inputs import data_position
from official_cmlm.inputs.checks import check_examples, check_text
from official_cmlm.inputs.mirrored import Mirrored
from official_cmlm.inputs.pair_views import InferencePairs, TextPairs
from official_cmlm.inputs.pipeline import build_dataset
from official_cmlm.inputs.plan import Plan, shard_repetitions
from official_cmlm.inputs.views import Segments
from official_cmlm.records.corruption import report_damaged_shard
from official_cmlm.records.manifest import load_folders, merge
from tests.inputs.blocks import SPECIAL
from tests.inputs.pipelines import blocks_of, manifest_of
from tests.pairs_helpers import bitext, nli_rows, write_pairs

SIZES = {"large": 300, "small": 60, "tiny": 9}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, vocabulary):
    """Writes three folders of pairs; the row ids of each are its own numbers from 0."""
    root = tmp_path_factory.mktemp("sources")
    for name, size in SIZES.items():
        write_pairs(root / name, bitext(size, seed=size), vocabulary, shard_bytes=1000)
    return root


def _config(folders, weights, **values):
    """Makes a config over folders of `SIZES`; weights: name -> weight."""
    sources = [SourceConfig(path=str(folders / name), weight=w) for name, w in weights.items()]
    config = DataConfig(sources=sources, **values)
    config.check("data")
    return config


def _blocks(config):
    return blocks_of(config, load_folders(config.folders()))


def _read(config, epochs=1):
    """Lists (serialised record, key) of all that each epoch reads, in order."""
    blocks = _blocks(config)
    read = tf.data.Dataset.range(epochs).flat_map(
        lambda epoch: blocks.epoch(epoch).map(lambda _, *block: (epoch, *block))
    )
    result = [[] for _ in range(epochs)]
    for epoch, serialized, keys in read.as_numpy_iterator():
        result[epoch] += zip(serialized, keys.tolist(), strict=True)
    return result


@pytest.fixture(scope="module")
def origin(folders):
    """Maps serialised records to the names of their folders; random texts are never equal."""
    result = {}
    for name in SIZES:
        for path in (folders / name).glob("*.tfrecord"):
            stored = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
            result.update(dict.fromkeys(stored, name))
    assert collections.Counter(result.values()) == SIZES
    return result


_SHARDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 10_000)), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=30)
@given(
    parts=st.lists(st.tuples(_SHARDS, st.floats(0.01, 100)), min_size=1, max_size=4),
    exponent=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_expected_shares(parts, exponent):
    """Each folder's share is its weight's; within it a language's is proportional to n^exponent."""
    sources = [SourceConfig(path=f"{i}", weight=weight) for i, (_, weight) in enumerate(parts)]
    config = DataConfig(sources=sources, language_exponent=exponent)
    manifest = merge((f"{i}", manifest_of(shards)) for i, (shards, _) in enumerate(parts))
    times = iter(shard_repetitions(config, manifest))
    total = sum(count for shards, _ in parts for _, count in shards)
    weights = sum(weight for _, weight in parts)
    for shards, weight in parts:
        read = collections.Counter()
        for language, count in shards:
            read[language] += next(times) * count
        assert sum(read.values()) == pytest.approx(total * weight / weights)
        sizes = manifest_of(shards).languages
        smoothed = {language: size**exponent for language, size in sizes.items()}
        for language in sizes:
            share = smoothed[language] / sum(smoothed.values())
            assert read[language] == pytest.approx(share * total * weight / weights)
    assert not list(times)
    validation = config.replace(is_training=False)
    assert set(shard_repetitions(validation, manifest)) == {1.0}


def test_shares_of_what_is_read(folders, origin):
    """Over epochs each folder has its share; nothing else is drawn when it is read again."""
    weights = {"large": 1.0, "small": 2.0, "tiny": 1.0}
    config, epochs = _config(folders, weights, seed=5), 12
    read = _read(config, epochs)
    total = sum(SIZES.values())
    for name, weight in weights.items():
        shards = load_folders([str(folders / name)]).shards
        times = weight / 4 * total / SIZES[name]
        # Each shard is read ⌊times⌋ or ⌈times⌉ times, independently of the others.
        spread = sum(shard.records**2 for shard in shards) * (times % 1) * (1 - times % 1)
        counts = [sum(origin[record] == name for record, _ in epoch) for epoch in read]
        assert abs(sum(counts) - epochs * weight / 4 * total) < 5 * np.sqrt(epochs * spread) + 1
    keys = [key for epoch in read for _, key in epoch]
    assert len(set(keys)) == len(keys)
    assert {record for epoch in read for record, _ in epoch} == set(origin)
    assert _read(config, 2) == read[:2] and read[0] != read[1]


@pytest.mark.parametrize("weights", [dict.fromkeys(SIZES), SIZES])
def test_in_proportion_to_their_sizes(folders, origin, weights):
    """Without weights, or with the sizes as weights: every record once, as of one folder."""
    for epoch in _read(_config(folders, weights), 2):
        assert sorted(record for record, _ in epoch) == sorted(origin)


def test_validation_reads_each_once(folders, origin):
    """In the order of the folders, whatever the weights."""
    config = _config(folders, {"tiny": 9.0, "small": 1.0}, is_training=False)
    (read,) = _read(config)
    expected = {record for record, name in origin.items() if name != "large"}
    assert len(read) == 69 and {record for record, _ in read} == expected
    (alone,) = _read(DataConfig(input_path=str(folders / "tiny"), is_training=False))
    # The first folder's records have the numbers that they have by themselves.
    keys = dict(read)
    assert all(keys[record] == key for record, key in alone)


@pytest.mark.long
def test_goes_on_where_it_stopped_in_folders_that_moved(folders, tmp_path):
    """Inside an epoch, record by record and bit for bit; other weights begin anew."""
    weights, view = {"large": 1.0, "tiny": 3.0}, TextPairs(14, SPECIAL)
    settings = {"shuffle_sentences": 40, "seq_length": 14, "global_batch_size": 8}

    def open_folders(root, **changes):
        config = _config(root, weights | changes, bucket_boundaries=[14], **settings)
        manifest = load_folders(config.folders())
        return config, manifest, data_position.fingerprint(config, manifest, view, [(14, 8)])

    def batches(config, manifest, reached, count):
        read = build_dataset(Plan.of(config, manifest, view, reached=reached))
        return [*read.take(count).as_numpy_iterator()]

    *records, mark = open_folders(folders)
    whole = batches(*records, None, 32)
    reached = whole[23]["position"]
    assert reached[1] > 1
    for name in weights:
        shutil.copytree(folders / name, tmp_path / name)
    *moved, same = open_folders(tmp_path)
    assert same == mark != open_folders(folders, tiny=4.0)[-1]
    for resumed, expected in zip(batches(*moved, reached, 8), whole[24:], strict=True):
        np.testing.assert_array_equal(resumed["key"], expected["key"])
        for name in ("first", "second"):
            ids = (batch[name]["input_word_ids"] for batch in (resumed, expected))
            np.testing.assert_array_equal(*ids)


def test_the_fingerprint_of_one_folder_is_that_of_earlier_releases():
    """A constant of the release before there were sources; one source is one folder."""
    manifest = manifest_of([("en", 7), ("de", 5)])
    config, view = DataConfig(input_path="somewhere", seed=3), Segments("sentence", 24, SPECIAL)
    mark = data_position.fingerprint(config, manifest, view, [(24, 8)])
    assert mark == 8459499090690858834
    single = DataConfig(sources=[SourceConfig(path="elsewhere", weight=2.0)], seed=3)
    assert data_position.fingerprint(single, manifest, view, [(24, 8)]) == mark


def test_merged_counts():
    """Sums over the folders; what they share stays."""
    first = manifest_of([("en", 7), ("de", 5)], counters={"a/b": 2}, labels={"x": 1})
    second = manifest_of([("en", 1)], counters={"a/b": 1, "c/d": 4}, labels={"y": 2})
    first = dataclasses.replace(first, counters_by_language={"a/b": {"en": 2}}, negatives=4)
    merged = merge([("one", first), ("two", second)])
    assert (merged.records, merged.sentences, merged.languages) == (13, 13, {"en": 8, "de": 5})
    assert merged.length_histogram == {"8": 13, "inf": 2}
    assert merged.counters == {"a/b": 3, "c/d": 4} and merged.labels == {"x": 1, "y": 2}
    assert merged.counters_by_language == {"a/b": {"en": 2}} and merged.negatives == 4
    assert [shard.records for shard in merged.shards] == [7, 5, 1]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"kind": "pairs"}, "kinds: documents and pairs"),
        ({"vocabulary": {"hash": "b", "size": 9}}, r"vocabularies: a \(9 entries\) and b \(9 e"),
        ({"labels": {"x": 1}}, "labels: no labels and labels"),
        ({"row_size": 3}, "numbers of pairs a row: 1 and 3"),
        (
            {"vocabulary": {"hash": "a", "size": 9, "after_space": True}},
            "no ids after a space and",
        ),
    ],
)
def test_folders_that_differ_are_refused(changes, what):
    """Both are named, with what differs."""
    manifest = manifest_of([("en", 7)])
    with pytest.raises(UserError, match=f"one and three cannot be .* different .*{what}"):
        parts = [("one", manifest), ("two", manifest)]
        merge([*parts, ("three", dataclasses.replace(manifest, **changes))])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"input_path": "a", "sources": [("b", 1.0)]}, "data has input_path a and sources; name "),
        ({"sources": [("a", 1.0), ("", 1.0)]}, r"data.sources\[1\].path is empty"),
        ({"sources": [("a", 1.0), ("b", 0.0)]}, r"data.sources\[1\].weight must be above 0"),
        ({"sources": [("a", float("nan"))]}, r"data.sources\[0\].weight must be above 0"),
        ({"sources": [("a", 1.0), ("b", None)]}, "data.sources: b has no weight, others have"),
        ({"sources": [("a", 1.0), ("a", 2.0)]}, "data.sources names a twice"),
        ({"input_path": ""}, "data.input_path is empty"),
        ({"seq_length": 2}, "data.seq_length must be in .3, 1048576"),
        ({"segment": "words"}, "data.segment must be one of .* got 'words'"),
        ({"global_batch_size": 0}, "data.global_batch_size must be in .1, "),
        ({"swap_probability": 1.5}, r"data.swap_probability must be in \[0, 1\], got 1.5"),
        ({"bucket_boundaries": [8, 8, 32]}, "data.bucket_boundaries must ascend"),
        ({"bucket_boundaries": [8, 16]}, r"end with seq_length \(32\)"),
        ({"bucket_boundaries": [2, 32]}, "data.bucket_boundaries.0. must be in .3, "),
    ],
)
def test_invalid_settings_are_refused(values, message):
    """Each mistake is named with its field."""
    sources = [SourceConfig(path=path, weight=w) for path, w in values.get("sources", ())]
    path = "" if sources else "x"
    config = DataConfig(**({"input_path": path, "seq_length": 32} | values | {"sources": sources}))
    with pytest.raises(UserError, match=message):
        config.check("data")


def test_languages_of_folders():
    """A language that only one folder has is chosen there; a folder without any is named."""
    parts = [("one", manifest_of([("en", 4), ("de", 2)])), ("two", manifest_of([("de", 3)]))]
    manifest = merge(parts)
    config = DataConfig(
        sources=[SourceConfig(path="one"), SourceConfig(path="two")], languages=["de"]
    )
    assert shard_repetitions(config, manifest) == [0.0, 1.0, 1.0]
    with pytest.raises(UserError, match="^two: has none of en; its languages are de; leave it out"):
        shard_repetitions(config.replace(languages=["en"]), manifest)
    with pytest.raises(UserError, match="^one, two: has no fr; its languages are de, en"):
        shard_repetitions(config.replace(languages=["de", "fr"]), manifest)
    unknown = merge([parts[0], ("two", manifest_of([("", 3)]))])
    # Rows of translations have none: languages cannot be read one by one.
    for each in (config, config.replace(languages=[], language_exponent=0.5)):
        with pytest.raises(UserError, match="^two: its shards do not have one language each"):
            shard_repetitions(each, unknown)


def test_a_folder_without_text_is_named(vocabulary, tmp_path):
    """Text, and rows that align: the folder that lacks them is named, not the other one."""
    write_pairs(tmp_path / "good", nli_rows(4), vocabulary, keep_text=True)
    write_pairs(tmp_path / "bad", nli_rows(4), vocabulary)
    config = _config(tmp_path, {"good": None, "bad": None}, seq_length=14, global_batch_size=4)
    manifest, aligned = load_folders(config.folders()), InferencePairs(14, "same", 3, SPECIAL)
    check_examples(config, manifest, aligned)
    check_text(config, manifest, aligned)
    view = Mirrored("sentence", 24, "span_mask", 5, 30, 0.3, 0.3, vocabulary)
    message = f"{tmp_path}/bad: the records hold no text, but Mirrored reads text; make them again"
    with pytest.raises(UserError, match=f"^{message} with --keep_text$"):
        check_text(config, manifest, view)
    path = tmp_path / "bad" / manifest.shards[-1].name
    stored = [*tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in [*stored[1:], stored[0]]:
            writer.write(record)
    message = "its rows do not align: 3 consecutive pairs must have the same row id, got 0, 0, 1;"
    with pytest.raises(UserError, match=f"^{tmp_path}/bad: {message}"):
        check_examples(config, manifest, aligned)


def test_a_shard_that_is_damaged_in_one_folder(folders, tmp_path):
    """Missing, or cut between two records, after the manifests were read: it is named."""
    for name in ("small", "tiny"):
        shutil.copytree(folders / name, tmp_path / name)
    config = _config(tmp_path, {"small": 1.0, "tiny": 1.0})
    manifest = load_folders(config.folders())
    path = tmp_path / "tiny" / manifest.shards[-1].name
    data = path.read_bytes()
    first = 16 + int.from_bytes(data[:8], "little")
    for damage, message in (
        (lambda: path.write_bytes(data[:first]), f"{path}: {first} bytes, dataset.json says"),
        (path.unlink, f"{path}: listed in dataset.json but missing"),
    ):
        damage()
        with pytest.raises(UserError, match=message), report_damaged_shard(config.folders()):
            for _ in blocks_of(config, manifest).epoch(0):
                pass


def test_another_missing_file_is_not_blamed_on_the_records(folders, capsys):
    """They are not searched for it either."""
    with pytest.raises(tf.errors.NotFoundError), report_damaged_shard([str(folders / "tiny")]):
        tf.io.read_file("no/such/file")
    assert capsys.readouterr().err == ""
