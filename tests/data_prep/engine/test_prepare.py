"""What a run writes: the same as a plain computation on one machine, whatever its parts."""

import itertools
import json
from collections import Counter

import pytest

from data_prep.documents import RecordOptions, records
from data_prep.readers import ReadOptions, ReadReport, read_documents
from data_prep.stages.duplicates import DuplicateOptions, MinHash, remove_duplicates
from data_prep.stages.exclusion import Exclusion
from data_prep.stages.normalise import Normalise
from data_prep.statistics import Statistics
from official_cmlm.errors import UserError
from official_cmlm.records.manifest import load_manifest, load_records_vocabulary
from tests.data_prep.engine.runs import contents, run, write_text
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
        }
        run(**(defaults | values | {"output_dir": output if "//" in output else tmp_path / output}))
        return tmp_path / output

    return start


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _plain(folder, vocabulary, duplicates, exclusion=None):
    """All records, by language, by the stages called one after the other."""
    paths = sorted(map(str, (folder / "text").iterdir()))
    counters = Counter()

    def read(path):
        found = read_documents([path], ReadOptions(), ReadReport())
        return [Normalise()(document, counters) for document in found]

    reads = [lambda path=path: read(path) for path in paths]
    if duplicates:
        documents = remove_duplicates(reads, duplicates, counters)
    else:
        documents = itertools.chain.from_iterable(each() for each in reads)
    statistics = Statistics()
    found = {}
    for language, record in records(documents, vocabulary, RecordOptions(), statistics, exclusion):
        found.setdefault(language, []).append(record)
    counters.update(statistics.counters)
    return found, counters


def _records(folder):
    """All records of a folder as bytes, by language."""
    import tensorflow as tf

    found = {}
    for shard in load_manifest(folder).shards:
        dataset = tf.data.TFRecordDataset(str(folder / shard.name))
        found.setdefault(shard.language, []).extend(r.numpy() for r in dataset)
    return found


@pytest.mark.parametrize("deduplicate", ["off", "exact", "near"])
def test_records_are_those_of_the_plain_stages(start, tmp_path, vocabulary, deduplicate):
    """Elements and partitions do not show in what is kept."""
    near = MinHash() if deduplicate == "near" else None
    options = None if deduplicate == "off" else DuplicateOptions(near)
    expected, counters = _plain(tmp_path, vocabulary, options)
    folder = start(deduplicate=deduplicate)
    assert _records(folder) == expected
    manifest = load_manifest(folder)
    assert manifest.counters == {name: n for name, n in sorted(counters.items()) if n}
    if deduplicate != "off":
        assert (
            manifest.counters["duplicates/exact_document"]
            and (manifest.counters["duplicates/exact_paragraph"])
        )
    assert ("duplicates/near_document" in manifest.counters) == (deduplicate == "near")


def test_partitions_do_not_show(start, tmp_path, monkeypatch):
    """However many parts the keys are divided into, the same goes."""
    start(deduplicate="near")
    monkeypatch.setattr("data_prep.engine.plan._BYTES_A_PARTITION", 1000)
    start("parts", deduplicate="near")
    assert contents(tmp_path / "parts") == contents(tmp_path / "out")


def test_what_is_written(start, tmp_path, vocabulary, capsys):
    """Shards by element and language, manifest, vocabulary, report, plan and nothing else."""
    folder = start()
    manifest = load_manifest(folder, "documents")
    assert load_records_vocabulary(folder, manifest) == vocabulary
    languages = ("en", "de", "fr")
    shards = [f"documents-{i:05d}-{languages[i % 3]}-00000.tfrecord" for i in range(6)]
    assert [shard.name for shard in manifest.shards] == shards
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


def test_a_language_that_is_no_file_name(start, tmp_path):
    """Shards of it are numbered."""
    line = json.dumps({"lang": "../x", "text": "A cat sat. A dog ran."})
    (tmp_path / "text" / "part-0.jsonl").write_text(line)
    folder = start()
    shard = load_manifest(folder).shards[0]
    assert (shard.name, shard.language) == ("documents-00000-00000.tfrecord", "../x")


def test_excluded_sentences(start, tmp_path, vocabulary):
    """They are nowhere, and their neighbours are no neighbours."""
    excluded = tmp_path / "sts.txt"
    text = json.loads((tmp_path / "text" / "part-1.jsonl").read_text().splitlines()[0])["text"]
    _, second = text[0].split(". ")[:2]
    excluded.write_text(f"{second}\n")
    expected, counters = _plain(tmp_path, vocabulary, None, Exclusion.of([str(excluded)]))
    folder = start(deduplicate="off", exclude=excluded)
    assert _records(folder) == expected
    assert load_manifest(folder).counters == counters
    assert counters["exclude/sentence"]


def test_evaluation_files_that_cannot_be_read(start, tmp_path, capsys):
    """An error before any work; or a warning, and a count in the manifest, and the others count."""
    text = json.loads((tmp_path / "text" / "part-1.jsonl").read_text().splitlines()[0])["text"]
    (tmp_path / "sts.jsonl").write_text(json.dumps({"pairs": [[text[0].split(". ")[1]]]}))
    (tmp_path / "archive.zip").write_bytes(b"PK\0\0")
    files = f"{tmp_path}/archive.zip,{tmp_path}/sts.jsonl"
    before = _names(tmp_path)
    with pytest.raises(UserError, match="archive.zip: no text, a NUL byte behind line 0"):
        start(deduplicate="off", exclude=files)
    assert _names(tmp_path) == before
    counters = load_manifest(start(deduplicate="off", exclude=files, on_error="skip")).counters
    assert counters["exclude/unread_file"] == 1 and counters["exclude/sentence"]
    assert f"warning: not excluded: {tmp_path}/archive.zip: no text" in capsys.readouterr().err


def test_stages_have_switches(start, tmp_path):
    """What each drops, and no more."""
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
        ({"min_sentences": 50}, r"no usable sentence in 6 file\(s\)"),
        ({"vocab_file": "none.txt"}, "none.txt: no such vocabulary"),
        ({"input": "none"}, "none: no such file"),
        ({"element_mb": 0}, "--element_mb is 0; give a positive number"),
        ({"quality_model": "none"}, "/none: no such quality classifier; train it with"),
        ({"output": "gs://bucket"}, "must be on a file system that all workers have"),
        ({"exclude": "none"}, "none: no such file, and nothing matches; check --exclude"),
        ({"keep_languages": "xx-none", "detect_language": "set"}, "xx-none"),
    ],
)
def test_nothing_is_left_after_a_mistake(start, tmp_path, values, message):
    before = _names(tmp_path)
    with pytest.raises(UserError, match=message):
        start(**values)
    assert _names(tmp_path) == before
