"""Sequences over several sentences have the ids of their text, with a space between sentences."""

import dataclasses
from pathlib import Path

import pytest
import tensorflow as tf

from data_prep.counts import Counts
from data_prep.output.documents import RecordOptions, document_records
from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.checks import check_running_text
from official_cmlm.inputs.document_spans import Spans
from official_cmlm.inputs.mirrored import Mirrored
from official_cmlm.inputs.pair_views import TextPairs
from official_cmlm.inputs.views import AdjacentPairs, Segments, SpecialIds
from official_cmlm.records import documents
from official_cmlm.tokenization import build_tokenizer, load_vocabulary
from tests.conftest import make_documents

FOLDER = Path(__file__).parents[1] / "checkpoints" / "references" / "roberta"
LIMIT = 40


@pytest.fixture(
    scope="module",
    params=["byte_pair", "spaced", pytest.param("wordpiece", marks=pytest.mark.long)],
)
def made(request, vocabulary):
    """Writes documents; returns (vocabulary, block, texts of each record, manifest)."""
    if request.param != "wordpiece":
        vocabulary = load_vocabulary(FOLDER)
    if request.param == "spaced":
        vocabulary = dataclasses.replace(vocabulary, add_prefix_space=True)
    statistics, options = Counts(), RecordOptions(max_sentences=5, keep_text=True)
    stored = [
        data for _, data in document_records(make_documents(12), vocabulary, options, statistics)
    ]
    block = documents.parse(tf.constant(stored), tf.range(len(stored), dtype=tf.int64), True)
    assert block.repeats_last.numpy().any()
    texts = [[text.decode() for text in row] for row in block.text.to_list()]
    return vocabulary, block, texts, statistics.manifest(vocabulary, [], True)


def _ids(vocabulary, run):
    return build_tokenizer(vocabulary).tokenize([" ".join(run)]).to_list()[0]


def _pack(vocabulary, sentences):
    """Forms greedy runs of at most `LIMIT` tokens, each run tokenised as one text."""
    runs = [sentences[:1]]
    for sentence in sentences[1:]:
        if len(_ids(vocabulary, [*runs[-1], sentence])) <= LIMIT:
            runs[-1] = [*runs[-1], sentence]
        else:
            runs.append([sentence])
    return [_ids(vocabulary, run)[:LIMIT] for run in runs if run]


def _halves(vocabulary, row):
    """Finds the two parts of about as many tokens; none of a single sentence."""
    halves = [[_ids(vocabulary, part) for part in (row[:i], row[i:])] for i in range(1, len(row))]
    return min(halves, key=lambda two: abs(len(two[0]) - len(two[1])), default=[])


def _keep_texts(block, texts):
    return [row[1:] if repeats else row for row, repeats in zip(texts, block.repeats_last.numpy())]


def _inner(rows):
    return [row[1:-1] for row in rows.to_list()]


def test_segments(made):
    """Single ones, mirrored ones, and neighbours; a segment may begin anywhere in its document."""
    vocabulary, block, texts, _ = made
    special = SpecialIds.of(vocabulary)
    kept = [run for row in _keep_texts(block, texts) for run in _pack(vocabulary, row)]
    view = Segments("packed", LIMIT + 2, special)
    assert _inner(view(block)["segment"]) == kept
    mirrored = Mirrored("packed", LIMIT + 2, "none", 5, 30, 0.3, 0.3, vocabulary)
    assert _inner(mirrored(block)["first"]) == kept
    packed = [(_pack(vocabulary, row), row) for row in texts]
    assert sum(len(runs) - 1 for runs, _ in packed) > 5
    parts = [runs if len(runs) > 1 else _halves(vocabulary, row) for runs, row in packed]
    pairs = [pair for runs in parts for pair in zip(runs, runs[1:])]
    assert _pairs(AdjacentPairs("packed", LIMIT + 2, 0.0, special), block) == pairs


def _pairs(view, block):
    examples = view(block)
    return list(zip(_inner(examples["first"]), _inner(examples["second"])))


def test_short_documents(made):
    """The second half of a text that fits one segment begins as a text of its own."""
    vocabulary, block, texts, _ = made
    view = AdjacentPairs("packed", 1000, 0.0, SpecialIds.of(vocabulary))
    expected = [_halves(vocabulary, row) for row in texts]
    assert _pairs(view, block) == [tuple(halves) for halves in expected if halves]


def test_single_sentences(made):
    """Single sentences are tokenised alone."""
    vocabulary, block, texts, _ = made
    view = Segments("sentence", 200, SpecialIds.of(vocabulary))
    sentences = [sentence for row in _keep_texts(block, texts) for sentence in row]
    assert _inner(view(block)["segment"]) == [_ids(vocabulary, [text]) for text in sentences]


def test_spans(made):
    """Slices of the whole record's text, which begins after a repeated sentence."""
    vocabulary, block, texts, _ = made
    view = Spans(1, 2, 3, 12, "all", SpecialIds.of(vocabulary))
    examples = view(block)
    whole = [_ids(vocabulary, row) for row in _keep_texts(block, texts)]
    long_enough = [ids for ids in whole if len(ids) >= view.min_record_tokens]
    assert len(long_enough) > 5
    for name in view.sequences:
        for span, ids in zip(_inner(examples[name]), long_enough, strict=True):
            assert any(ids[i : i + len(span)] == span for i in range(len(ids)))


def test_records_without_what_changes(made):
    """Views that join sentences refuse records of older releases, if their ids would be wrong."""
    vocabulary, _, _, manifest = made
    special, config = SpecialIds.of(vocabulary), DataConfig(input_path="old")
    joining = [
        Segments("packed", 9, special),
        AdjacentPairs("packed", 9, 0.0, special),
        Mirrored("packed", 9, "none", 5, 30, 0.3, 0.3, vocabulary),
        Spans(1, 1, 3, 12, "all", special),
    ]
    single = [Segments("sentence", 9, special), TextPairs(9, special)]
    for view in (*joining, *single):
        check_running_text(config, manifest, view, vocabulary)
    known = {k: v for k, v in manifest.vocabulary.items() if k != "after_space"}
    old = dataclasses.replace(manifest, vocabulary=known)
    assert manifest.after_space == vocabulary.space_changes_ids
    for view in single:
        check_running_text(config, old, view, vocabulary)
    for view in joining:
        if not vocabulary.space_changes_ids:
            check_running_text(config, old, view, vocabulary)
            continue
        with pytest.raises(UserError, match="^old: the records do not hold .* make them again"):
            check_running_text(config, old, view, vocabulary)
