"""Blocks of records: of which languages, how large, and never a part of a row."""

import collections

import pytest
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.plan import shard_repetitions
from official_cmlm.inputs.reader import parse_block
from official_cmlm.records.manifest import load_manifest
from tests.conftest import WORDS, write_records
from tests.inputs.pipelines import blocks_of
from tests.pairs_helpers import bitext, nli_rows, read_pairs_by_hand, write_pairs

SIZES = {"en-de": 400, "en-fr": 60, "en-sw": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    """Pairs of three languages of very different size, in many shards of one language each."""
    path = tmp_path_factory.mktemp("mixture")
    rows = [row for languages, size in SIZES.items() for row in bitext(size, languages)]
    manifest = write_pairs(path, rows, vocabulary, shard_bytes=2000)
    assert manifest.languages == SIZES
    assert len({shard.name for shard in manifest.shards if shard.language == "en-de"}) > 15
    return path


def _counts(folder, epochs=1, **values):
    """Counts the records of each language that all epochs read."""
    config = DataConfig(input_path=str(folder), **values)
    config.check("data")
    blocks, counts = blocks_of(config, load_manifest(folder)), collections.Counter()
    for epoch in range(epochs):
        for _, serialized, _ in blocks.epoch(epoch).as_numpy_iterator():
            for record in serialized:
                feature = tf.train.Example.FromString(record).features.feature
                counts[b"-".join(feature["languages"].bytes_list.value).decode()] += 1
    return counts


@pytest.mark.parametrize("exponent", [pytest.param(1.0, marks=pytest.mark.long), 0.3])
def test_languages_that_are_not_named_are_not_read(folder, exponent):
    """The others share the epoch; training and validation."""
    values = {"languages": ["en-fr", "en-sw"], "language_exponent": exponent}
    counts = _counts(folder, 3, **values)
    assert set(counts) == {"en-fr", "en-sw"}
    assert (counts["en-sw"] == 3 * 8) == (exponent == 1)
    assert _counts(folder, is_training=False, **values) == {"en-fr": 60, "en-sw": 8}


def test_blocks_are_no_larger_than_asked_for(folder):
    """Whatever is left out: the records of a block hold about `shuffle_sentences` sentences."""
    for languages in ([], ["en-de"], ["en-sw"]):
        config = DataConfig(
            input_path=str(folder), shuffle_sentences=100, languages=languages, is_training=False
        )
        sizes = [len(keys) for _, _, keys in blocks_of(config, load_manifest(folder)).epoch(0)]
        assert sum(sizes) == sum(SIZES[name] for name in languages or SIZES)
        assert max(sizes) * 2 <= 100 and max(sizes) - min(sizes) < len(sizes)


def test_documents_of_several_languages(vocabulary, tmp_path):
    """Documents are told apart by language too; their shares count sentences."""
    from data_prep.readers import Document

    documents = [
        Document(f"{language}{i}", language, [". ".join(word.capitalize() for word in WORDS[:n])])
        for language, count, n in (("en", 30, 6), ("sw", 10, 2))
        for i in range(count)
    ]
    manifest = write_records(tmp_path, documents, vocabulary, 500)
    assert all(shard.language in ("en", "sw") for shard in manifest.shards)
    config = DataConfig(input_path=str(tmp_path), language_exponent=0.0)
    times = shard_repetitions(config, manifest)
    sentences = manifest.languages
    half = sum(sentences.values()) / 2
    for shard, repetition in zip(manifest.shards, times, strict=True):
        assert repetition * sentences[shard.language] == pytest.approx(half)
    blocks = blocks_of(config.replace(languages=["sw"]), manifest).epoch(0)
    records = [x for _, serialized, _ in blocks for x in serialized.numpy()]
    features = [tf.train.Example.FromString(record).features.feature for record in records]
    assert [f["language"].bytes_list.value[0] for f in features] == [b"sw"] * 10


@pytest.mark.parametrize("shard_bytes", [pytest.param(1, marks=pytest.mark.long), 1000])
@pytest.mark.parametrize(("sentences", "is_training"), [(1, True), (40, True), (1, False)])
def test_rows_are_never_split(vocabulary, tmp_path, shard_bytes, sentences, is_training):
    """Neither over shards nor over blocks, however small these are."""
    manifest = write_pairs(tmp_path, nli_rows(17), vocabulary, shard_bytes)
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
        assert names == ["en", "de", "fr"] * len(numbers)
        assert sentences > 1 or len(numbers) == 1
        rows += numbers[:, 0].tolist()
    assert sorted(rows) == list(range(17))
