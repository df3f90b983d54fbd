"""The output of a run: that of a plain computation on one machine, whatever its parts."""

import dataclasses
import functools
import itertools
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from data_prep.counts import Counts, DropCounter
from data_prep.output.documents import RecordOptions, document_records
from data_prep.readers import ReadOptions, read_documents
from data_prep.stages.duplicates import DuplicateOptions, MinHash
from data_prep.stages.exclusion import Exclusion
from data_prep.stages.normalise import normalise_document
from data_prep.stages.quality_classifier import SIGNALS, Features, QualityModel
from official_cmlm.errors import UserError
from official_cmlm.records import documents
from official_cmlm.records.manifest import load_manifest, load_records_vocabulary
from tests.data_prep.pipeline.runs import run, write_text
from tests.data_prep.plain_duplicates import remove_duplicates
from tests.inputs.pipelines import read_by_hand


@pytest.fixture
def start(tmp_path, vocabulary):
    """Runs with defaults: tmp_path/text to tmp_path/out, one file an element."""
    vocabulary.save(tmp_path)
    write_text(tmp_path / "text")

    def start(output="out", **values):
        defaults = {
            "input": tmp_path / "text",
            "vocab_file": tmp_path / "vocab.txt",
            "element_mb": 0.000001,
            "normalise": True,
            "deduplicate": "normalised",
        }
        run(**(defaults | values | {"output_dir": output if "//" in output else tmp_path / output}))
        return tmp_path / output

    return start


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _plain(folder, vocabulary, duplicates, exclusion=None):
    """Returns all records, by language, of the stages called one after the other."""
    paths = sorted(map(str, (folder / "text").iterdir()))
    counters = DropCounter()

    def read(path):
        found = read_documents([path], ReadOptions(), Counts())
        return [normalise_document(document, counters) for document in found]

    files = [read(path) for path in paths]
    if duplicates:
        documents = remove_duplicates(files, duplicates, counters)
    else:
        documents = itertools.chain.from_iterable(files)
    statistics = Counts()
    found = {}
    for language, record in document_records(
        documents, vocabulary, RecordOptions(), statistics, exclusion
    ):
        found.setdefault(language, []).append(record)
    counters.update(statistics.counters)
    return found, counters


def _records(folder):
    """Returns all records of a folder as bytes, by language."""
    import tensorflow as tf

    found = {}
    for shard in load_manifest(folder).shards:
        dataset = tf.data.TFRecordDataset(str(folder / shard.name))
        found.setdefault(shard.language, []).extend(r.numpy() for r in dataset)
    return found


NEAR = MinHash(bands=10, threshold=0.6)
NEAR_FLAGS = {"near_bands": 10, "near_threshold": 0.6}


REMOVALS = {
    "off": ({"deduplicate": "off"}, None),
    "exact": ({"deduplicate": "exact"}, DuplicateOptions("exact", "exact")),
    "normalised": ({}, DuplicateOptions("normalised")),
    "near": ({"deduplicate": "near"}, DuplicateOptions()),
    "near-paragraphs": (
        {"deduplicate_paragraphs": "near"},
        DuplicateOptions("normalised", "near"),
    ),
    "documents-alone": (
        {"deduplicate": "near", "deduplicate_paragraphs": "off", **NEAR_FLAGS},
        DuplicateOptions("near", "off", NEAR),
    ),
    "long-paragraphs": (
        {"deduplicate_paragraphs": "near", "min_paragraph_letters": 300, **NEAR_FLAGS},
        DuplicateOptions("normalised", "near", NEAR, 300),
    ),
}
_FAST = [("off", "one"), ("normalised", "one"), ("near", "many"), ("near-paragraphs", "many")]


@pytest.mark.parametrize(
    ("removal", "partitions"),
    [
        pytest.param(*case, marks=() if case in _FAST else pytest.mark.long)
        for case in itertools.product(REMOVALS, ("one", "many"))
    ],
)
def test_records_are_those_of_the_plain_stages(
    start, tmp_path, vocabulary, monkeypatch, removal, partitions
):
    """Neither elements nor partitions of the keys show in the records."""
    values, options = REMOVALS[removal]
    size = 1 << 26 if partitions == "one" else 1000
    monkeypatch.setattr("data_prep.pipeline.plan._BYTES_A_PARTITION", size)
    # Several groups of elements whose losses are gathered at once.
    monkeypatch.setattr("data_prep.pipeline.plan.ELEMENTS_A_GROUP", 4)
    monkeypatch.setattr("data_prep.pipeline.run.ELEMENTS_A_GROUP", 4)
    expected, counters = _plain(tmp_path, vocabulary, options)
    folder = start(**values)
    assert _records(folder) == expected
    found = load_manifest(folder).counters
    assert found == {name: n for name, n in sorted(counters.items()) if n}
    assert ("duplicates/exact_document" in found) == (values.get("deduplicate") != "off")
    assert ("duplicates/near_document" in found) == (values.get("deduplicate") == "near")
    near_paragraphs = values.get("deduplicate_paragraphs") == "near"
    assert ("duplicates/near_paragraph" in found) == near_paragraphs


def test_paragraphs_alone(start, tmp_path, vocabulary):
    """Whole documents stay, but for what stood before."""
    folder = start(deduplicate="off", deduplicate_paragraphs="normalised")
    seen, kept = set(), 0
    for path in sorted((tmp_path / "text").iterdir()):
        for line in path.read_text().splitlines():
            for paragraph in json.loads(line)["text"]:
                letters = "".join(filter(str.isalpha, paragraph.lower()))
                kept += letters not in seen or len(letters) < 100
                seen.add(letters)
    counters = load_manifest(folder).counters
    paragraphs = sum(
        len(json.loads(line)["text"])
        for path in (tmp_path / "text").iterdir()
        for line in path.read_text().splitlines()
    )
    assert counters["duplicates/exact_paragraph"] == paragraphs - kept > 0
    assert "duplicates/exact_document" not in counters


def test_files_that_are_written(start, tmp_path, vocabulary, capsys):
    """Shards of elements and languages, manifest, vocabulary, report, plan and nothing else."""
    folder = start()
    manifest = load_manifest(folder, "documents")
    assert load_records_vocabulary(folder, manifest) == vocabulary
    languages = ("en", "de", "fr")
    shards = [f"documents-{i:05d}.tfrecord" for i in range(6)]
    assert [shard.name for shard in manifest.shards] == shards
    assert [shard.language for shard in manifest.shards] == [*languages, *languages]
    report = ["balance.md", "balance.svg", "dataset.json"]
    assert _names(folder) == [*report, *shards, "prepare.json", "vocab.json", "vocab.txt"]
    rows = read_by_hand(folder)
    assert manifest.records == len(rows)
    assert manifest.sentences == sum(len(sentences) for sentences, _ in rows)
    assert "out.partial" not in _names(tmp_path) and "out.lock" not in _names(tmp_path)
    assert f"{manifest.documents} documents, {manifest.sentences} sent" in capsys.readouterr().out


@pytest.mark.long
def test_larger_elements_hold_the_same_records(start):
    """A bundle of files has fewer shards."""
    one, six = start("one", element_mb=1), start("six")
    assert _records(one) == _records(six)
    assert len(load_manifest(one).shards) == 3
    assert load_manifest(one).counters == load_manifest(six).counters


def test_a_language_is_not_in_the_name_of_a_shard(start, tmp_path):
    """It is in the manifest."""
    line = json.dumps({"lang": "zh_Hant-TW", "text": "A cat sat. A dog ran."})
    (tmp_path / "text" / "part-0.jsonl").write_text(line)
    folder = start()
    shard = load_manifest(folder).shards[0]
    assert (shard.name, shard.language) == ("documents-00000.tfrecord", "zh_Hant-TW")


def test_excluded_sentences(start, tmp_path, vocabulary):
    """They are left out, and the sentences around them are not neighbours."""
    excluded = tmp_path / "sts.txt"
    text = json.loads((tmp_path / "text" / "part-1.jsonl").read_text().splitlines()[0])["text"]
    _, second = text[0].split(". ")[:2]
    excluded.write_text(f"{second}\n")
    expected, counters = _plain(tmp_path, vocabulary, None, Exclusion.of([str(excluded)]))
    folder = start(deduplicate="off", exclude=excluded)
    assert _records(folder) == expected
    assert load_manifest(folder).counters == counters
    assert counters["exclude/sentence"]


def test_sentences_by_a_classifier(start, tmp_path, vocabulary, capsys):
    """They are judged last, and cut the documents; a model for other texts gives a warning."""
    folder = start(deduplicate="normalised")
    capsys.readouterr()
    # Sentences of few words go.
    weights = np.where(np.array(SIGNALS) == "log_words", 10.0, 0.0)
    count, size = len(SIGNALS), Features(bits=4)
    means, scales = np.full(count, np.log1p(8.5)), np.ones(count)
    model = QualityModel(size, np.zeros(16, np.float32), weights, means, scales, 0.0)
    path = tmp_path / "model.json"
    model.save(path)
    options = {"quality_model": path, "quality_level": "sentence"}
    cut = start("cut", deduplicate="normalised", keep_text=True, **options)
    assert "model.json: learned from documents and is to judge sentences" in capsys.readouterr().err
    counters = load_manifest(cut).counters
    assert counters["quality/sentence_classifier"] > 10
    before, after = load_manifest(folder), load_manifest(cut)
    assert after.sentences + counters["quality/sentence_classifier"] == before.sentences
    found = [record for records in _records(cut).values() for record in records]
    block = documents.parse(tf.constant(found), tf.zeros(len(found), tf.int64), with_text=True)
    texts = [[text.decode() for text in row] for row in block.text.to_list()]
    assert all(len(text.split()) > 8 for sentences in texts for text in sentences)
    # Sentences that are adjacent in a record were adjacent in the text.
    letters = functools.partial(re.sub, r"\W", "")
    source = letters("".join(path.read_text() for path in (tmp_path / "text").iterdir()))
    pairs = [pair for sentences in texts for pair in itertools.pairwise(sentences)]
    assert len(pairs) > 10 and all(letters("".join(pair)) in source for pair in pairs)
    dataclasses.replace(model, report={"level": "sentence"}).save(path)
    start("again", deduplicate="normalised", **options)
    assert "learned from" not in capsys.readouterr().err
    start("paragraphs", deduplicate="normalised", **options | {"quality_level": "paragraph"})
    assert "learned from sentences and is to judge paragraphs" in capsys.readouterr().err


def test_stages_have_switches(start, tmp_path):
    """Each switch drops its texts, and no others."""
    (tmp_path / "text" / "part-0.jsonl").write_text(
        json.dumps({"id": "odd", "text": "\ufffd A cat sat."})
        + "\n"
        + json.dumps({"lang": "en", "text": "Ein Hund lief über die Straße und bellte laut."})
    )
    counters = load_manifest(start(detect_language="check", deduplicate="off")).counters
    assert counters["normalise/not_decoded"] == 1 and counters["language/mismatch"] >= 1
    assert {name.partition("/")[0] for name in counters} == {"normalise", "language"}
    counters = load_manifest(start("rules", normalise=False, quality_rules=True)).counters
    assert any(name.startswith("quality/") for name in counters)
    assert not any(name.startswith(("normalise/", "language/")) for name in counters)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"quality_model": "none"}, "/none: no such file; name a quality classifier, or train it"),
        ({"output": "gs://bucket"}, "must be on a file system that all workers have"),
        ({"exclude": "none"}, "none: no such file, and nothing matches; check --exclude"),
        ({"keep_languages": "xx-none", "detect_language": "set"}, "xx-none"),
    ],
)
def test_nothing_is_left_after_a_mistake(start, tmp_path, values, message):
    before = _names(tmp_path)
    with pytest.raises((UserError, flags.IllegalFlagValueError), match=message):
        start(**values)
    assert _names(tmp_path) == before
