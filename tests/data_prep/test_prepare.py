"""The output of a run: that of a plain computation on one machine, whatever its parts."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from data_prep.counts import Counts, DropCounter
from data_prep.output.documents import RecordOptions, document_records
from data_prep.readers import ReadOptions, read_documents
from data_prep.stages.duplicates import DuplicateOptions, MinHash
from data_prep.stages.normalise import normalise_document
from data_prep.stages.quality_classifier import SIGNALS, Features, QualityModel
from official_cmlm.records.manifest import load_manifest
from tests.data_prep.plain_duplicates import remove_duplicates


def _plain(folder, vocabulary, duplicates):
    """Returns all records, by language, of the stages called one after the other."""
    paths = sorted(map(str, (folder / "text").iterdir()))
    counters = DropCounter()

    def read(path):
        documents = read_documents([path], ReadOptions(), Counts())
        return [normalise_document(document, counters) for document in documents]

    files = [read(path) for path in paths]
    if duplicates:
        documents = remove_duplicates(files, duplicates, counters)
    else:
        documents = itertools.chain.from_iterable(files)
    statistics = Counts()
    records = {}
    for language, record in document_records(documents, vocabulary, RecordOptions(), statistics):
        records.setdefault(language, []).append(record)
    counters.update(statistics.counters)
    return records, counters


def _records(folder):
    """Returns all records of a folder as bytes, by language."""
    records = {}
    for shard in load_manifest(folder).shards:
        dataset = tf.data.TFRecordDataset(str(folder / shard.name))
        records.setdefault(shard.language, []).extend(r.numpy() for r in dataset)
    return records


REMOVALS = {
    "off": ({"deduplicate": "off"}, None),
    "normalised": ({}, DuplicateOptions("normalised")),
    "near": ({"deduplicate": "near"}, DuplicateOptions("near")),
    "near-paragraphs": ({"deduplicate_paragraphs": "near"}, DuplicateOptions("normalised", "near")),
    "long-paragraphs": (
        {"deduplicate_paragraphs": "near", "min_paragraph_letters": 300}
        | {"near_bands": 10, "near_threshold": 0.6},
        DuplicateOptions("normalised", "near", MinHash(bands=10, threshold=0.6), 300),
    ),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_records_are_those_of_the_plain_stages(start, tmp_path, vocabulary, monkeypatch, removal):
    """Neither elements nor partitions of the keys show in the records."""
    values, options = REMOVALS[removal]
    size = 1 << 26 if removal == "normalised" else 1000
    monkeypatch.setattr("data_prep.pipeline.plan._BYTES_A_PARTITION", size)
    # Several groups of elements whose duplicates are collected at once.
    monkeypatch.setattr("data_prep.pipeline.plan.ELEMENTS_A_GROUP", 4)
    monkeypatch.setattr("data_prep.pipeline.phases.ELEMENTS_A_GROUP", 4)
    expected, counters = _plain(tmp_path, vocabulary, options)
    start(**values)
    assert _records(tmp_path / "out") == expected
    counts = load_manifest(tmp_path / "out").counters
    assert counts == {name: n for name, n in sorted(counters.items()) if n}
    assert ("duplicates/exact_document" in counts) == (values.get("deduplicate") != "off")
    assert ("duplicates/near_document" in counts) == (values.get("deduplicate") == "near")
    near_paragraphs = values.get("deduplicate_paragraphs") == "near"
    assert ("duplicates/near_paragraph" in counts) == near_paragraphs


def test_sentences_by_a_classifier(start, tmp_path, capsys):
    """They are judged last; a model for other texts gives a warning."""
    start()
    capsys.readouterr()
    # Sentences of few words go.
    weights = np.where(np.array(SIGNALS) == "log_words", 10.0, 0.0)
    count, size = len(SIGNALS), Features(bits=4)
    means, scales = np.full(count, np.log1p(8.5)), np.ones(count)
    model = QualityModel(size, np.zeros(16, np.float32), weights, means, scales, 0.0)
    path = tmp_path / "model.json"
    model.save(path)
    options = {"quality_model": path, "quality_level": "sentence"}
    start(output_dir=tmp_path / "cut", **options)
    assert "model.json: learned from documents and is to judge sentences" in capsys.readouterr().err
    before, after = load_manifest(tmp_path / "out"), load_manifest(tmp_path / "cut")
    assert after.counters["quality/sentence_classifier"] > 10
    assert after.sentences + after.counters["quality/sentence_classifier"] == before.sentences
    dataclasses.replace(model, report={"level": "sentence"}).save(path)
    start(output_dir=tmp_path / "again", **options)
    assert "learned from" not in capsys.readouterr().err
    start(output_dir=tmp_path / "paragraphs", **options | {"quality_level": "paragraph"})
    assert "learned from sentences and is to judge paragraphs" in capsys.readouterr().err
