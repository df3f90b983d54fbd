"""All that is left out is counted, under a reason that has a unit."""

import gzip
import json
import random
import re

import numpy as np
import pytest

from data_prep.counts import NOTED, is_removal, unit
from data_prep.stages.quality_classifier import SIGNALS, Features, QualityModel
from official_cmlm.records.manifest import load_manifest
from tests.conftest import WORDS
from tests.data_prep.pipeline.runs import ROOT, run
from tests.data_prep.readers.crawl_pages import article, page, record

# Counted where pairs are made, not here.
_OF_PAIRS = re.compile("pairs/.*|exclude/row")
_REASON = re.compile(
    r'"((?:read|normalise|language|quality|duplicates|exclude|records|pairs)/[a-z0-9_]*[a-z0-9])"'
)
GOOD = (
    "The house that they had bought stood with its back to the river and the town. "
    "Nobody had lived in it for years, and the garden was a wood of old roses. "
    "Her brother wanted to sell it again at once; she did not have the heart to go, and so "
    "they both stayed there until the end of that very long and very cold winter."
)
GERMAN = "Der Hund lief gestern über die Straße und bellte laut, weil niemand zu Hause war. " * 3


def _sentence(seed, words=40):
    """Words that share hardly a run of five with those of another seed."""
    return " ".join(random.Random(seed).choices(WORDS, k=words)).capitalize() + "."


def _jsonl(path, documents):
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def _crawl(path):
    """Writes a good page and one for each reason to refuse a page."""
    html = article(_sentence("page"), _sentence("page again"))
    deep = b"<html><body>" + b"<i>" * 600 + b"x" + b"</i>" * 600
    records = [
        page("http://a/1", html),
        page("http://a/missing", html, status=404),
        page("http://a/image", b"\x89PNG", "Content-Type: image/png"),
        page("http://a/empty", b"<html><body></body></html>"),
        page("http://a/deep", deep),
        record("response", b"xyz", "dns:a"),
    ]
    path.write_bytes(b"".join(records))


@pytest.fixture(scope="module")
def texts(tmp_path_factory, vocabulary):
    """Writes a folder with input for the runs, an exclusion list and a classifier."""
    folder = tmp_path_factory.mktemp("dropped")
    vocabulary.save(folder)
    for name in ("plain", "quality", "sentences"):
        (folder / name).mkdir()
    one, two = _sentence("one"), _sentence("two")
    near = one[:-1] + " other."
    (folder / "sts.tsv").write_text(f"5.0\t{_sentence('sts')}\t{_sentence('also')}\n")
    documents = [
        [one, _sentence("a"), _sentence("a2"), _sentence("a3")],
        [two, _sentence("b"), _sentence("b2")],
        [_sentence("b").upper(), _sentence("a2")],  # nothing of it is new
        [one, _sentence("a"), _sentence("a2"), _sentence("a3")],
        [_sentence("c", 90), _sentence("c2", 90)],
        [_sentence("c", 90), _sentence("c2", 90)[:-1] + " other."],
        [near, _sentence("d", 90)],  # a near paragraph in another document
        [_sentence("e"), _sentence("sts"), _sentence("e2"), _sentence("e3")],
        [_sentence("also")],
        [_sentence("f"), "\u0301", _sentence("g")],
        ["\u0301\u0301"],
        [_sentence("h")],
        [_sentence("short", 4), _sentence("also short", 4)],
        ["\u200b", _sentence("i"), _sentence("j"), "A mend- ed word is mended."],
        ["\u200b\u200b"],
        ["\ufffd\ufffd\ufffd a"],
        [_sentence("k", 900), _sentence("l")],
    ]
    _jsonl(folder / "plain" / "a.jsonl", [{"text": text} for text in documents])
    _crawl(folder / "plain" / "b.warc")
    (folder / "plain" / "c.txt.gz").write_bytes(gzip.compress(_sentence("m").encode() * 99)[:-20])
    (folder / "plain" / "d.txt").write_bytes(b"The cat \xff sat. The dog ran.")
    (folder / "archive.zip").write_bytes(b"PK\0\0")
    quality = [
        {"text": GOOD},
        {"text": GOOD + " Lorem ipsum."},
        {"text": "{" + GOOD + "}"},
        {"text": GOOD.replace("the", "the #", 4)},
        {"text": [GOOD, "See our privacy policy for all of the details."]},
        {"text": "Too few words."},
        {"text": GERMAN},
        {"text": GERMAN, "lang": "de"},
        {"text": "xqz."},
        {"text": GOOD, "lang": "qaa"},
    ]
    _jsonl(folder / "quality" / "a.jsonl", quality)
    signs = "It # was # an # old # house."
    sentences = [{"text": f"{GOOD} {signs} {GOOD}"}, {"text": signs}]
    _jsonl(folder / "sentences" / "a.jsonl", sentences)
    # Good is what has a number sign in less than 50 words.
    count, size = len(SIGNALS), Features(bits=4)
    weights = np.where(np.array(SIGNALS) == "number_signs", -10.0, 0.0)
    means, scales = np.full(count, 0.02), np.full(count, 0.001)
    model = QualityModel(size, np.zeros(16, np.float32), weights, means, scales, 0.0)
    model.save(folder / "model.json")
    return folder


def _run(texts, name, **values):
    run(
        input=texts / name,
        vocab_file=texts / "vocab.txt",
        output_dir=texts / f"{name}-records",
        normalise=True,
        on_error="skip",
        **values,
    )
    return load_manifest(texts / f"{name}-records")


@pytest.fixture(scope="module")
def runs(texts):
    """Returns the manifests of all runs, which between them give every reason."""
    plain = _run(
        texts,
        "plain",
        deduplicate="near",
        deduplicate_paragraphs="near",
        exclude=f"{texts}/sts.tsv,{texts}/archive.zip",
        min_sentences=2,
        min_tokens=12,
    )
    quality = _run(
        texts,
        "quality",
        deduplicate="off",
        detect_language="check",
        keep_languages="en,qaa",
        quality_rules=True,
        quality_model=texts / "model.json",
        quality_level="paragraph",
    )
    model = {"quality_model": texts / "model.json", "quality_level": "sentence"}
    return plain, quality, _run(texts, "sentences", deduplicate="off", **model)


def _list_reasons():
    """Returns every reason that is written in the source."""
    files = (ROOT / "data_prep").rglob("*.py")
    return {reason for file in files for reason in _REASON.findall(file.read_text())}


def test_every_reason_is_provoked(runs):
    """The tests below then cover all reasons."""
    known = {reason for reason in _list_reasons() if not _OF_PAIRS.fullmatch(reason)}
    assert len(known) > 30
    counted = {reason for manifest in runs for reason in manifest.counters}
    assert known - counted == set()


def test_removals_are_counted_by_language(runs):
    """The declared language counts; the sum over languages is the count."""
    for manifest in runs:
        assert set(manifest.counters_by_language) <= set(manifest.counters)
        for reason, n in manifest.counters.items():
            by_language = manifest.counters_by_language.get(reason, {})
            expected = 0 if reason.startswith("read/") or not is_removal(reason) else n
            assert sum(by_language.values()) == expected, reason
    assert runs[1].counters_by_language["language/other"] == {"de": 1}


def test_units():
    """Each reason has one, and names nothing twice."""
    units = {reason: unit(reason) for reason in _list_reasons()}
    assert all(units.values())
    assert {reason for reason in units if not is_removal(reason)} == set(NOTED)
    assert units["quality/paragraph_classifier"] == ("paragraphs")
    assert units["quality/sentence_classifier"] == "sentences"
    assert units["duplicates/near_document"] == units["exclude/no_sentence_left"] == "documents"
    assert units["duplicates/near_paragraph"] == "paragraphs" and units["exclude/row"] == "rows"
