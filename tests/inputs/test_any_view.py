"""Promises of every view of token ids, alone and in the batches of a pipeline."""

import dataclasses

import pytest
import tensorflow as tf

from official_cmlm.inputs.document_spans import SAMPLINGS, Spans
from official_cmlm.inputs.mirrored import AUGMENTATIONS, Mirrored
from official_cmlm.inputs.pair_views import InferencePairs
from official_cmlm.inputs.views import AdjacentPairs, SegmentRuns, Segments
from tests.conftest import make_documents, write_records
from tests.inputs.blocks import SPECIAL, make_block, random_documents
from tests.inputs.pipelines import Pipeline, rows_of
from tests.pairs_helpers import nli_rows, write_pairs


def _make_mirrored(name):
    return lambda length, vocabulary: Mirrored(
        "sentence", length, name, 5, 30, 0.3, 0.3, vocabulary
    )


# Name -> the view of a sequence length and a vocabulary. Those named first draw nothing.
VIEWS = {
    "Segments": lambda length, _: Segments("sentence", length, SPECIAL),
    "SegmentRuns": lambda length, _: SegmentRuns("sentence", length, SPECIAL),
    "none": _make_mirrored("none"),
    "AdjacentPairs": lambda length, _: AdjacentPairs("sentence", length, 0.5, SPECIAL),
    "distant": lambda length, _: AdjacentPairs("sentence", length, 0.5, SPECIAL, 3),
    "packed": lambda length, _: AdjacentPairs("packed", length // 3, 0.5, SPECIAL),
    **{name: _make_mirrored(name) for name in AUGMENTATIONS if name != "none"},
    **{
        sampling: lambda length, _, sampling=sampling: Spans(
            2, 2, 4, length // 2, sampling, SPECIAL
        )
        for sampling in SAMPLINGS
    },
}
FIXED = ("Segments", "SegmentRuns", "none")
# One of each kind in the fast suite.
FAST = ("Segments", "SegmentRuns", "AdjacentPairs", "packed", "span_mask", "all")
NAMES = [pytest.param(n, marks=() if n in FAST else pytest.mark.long) for n in VIEWS]


@pytest.fixture(scope="module")
def vocabulary(vocabulary):
    """Ids up to 99, as the blocks have them."""
    more = (f"w{i}" for i in range(len(vocabulary), 100))
    return dataclasses.replace(vocabulary, tokens=(*vocabulary.tokens, *more))


def _block(documents, **values):
    """Builds a block with text: a word for each token."""
    block = make_block(documents, **values)
    texts = [" ".join(f"word{token}" for token in s) for d in documents for s in d]
    text = block.sentences.with_values(tf.constant(texts, tf.string))
    return dataclasses.replace(block, text=text)


def _rows(view, block):
    examples = view(block)
    return list(zip(*(examples[name].to_list() for name in view.sequences), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_examples_depend_on_the_record_and_its_key_alone(vocabulary, name):
    """A record gives the same examples in any block; with another key, others if it draws."""
    documents, view = random_documents(5, 60), VIEWS[name](34, vocabulary)
    together = view(_block([[[9]], *documents], keys=range(60, 66)))
    keys = together["key"].numpy().tolist()
    assert len(set(keys)) == len(keys)
    together = _rows(view, _block(documents, keys=range(61, 66)))
    alone = _rows(view, _block(documents[:1], keys=[61]))
    rest = _rows(view, _block(documents[1:], keys=range(62, 66)))
    assert together == alone + rest and alone
    other = _rows(view, _block(documents, keys=range(5)))
    assert len(other) == len(together)
    assert (other == together) == (name in FIXED)


@pytest.mark.parametrize("documents", [pytest.param([], marks=pytest.mark.long), [[], []]])
@pytest.mark.parametrize("name", NAMES)
def test_blocks_without_sentences(vocabulary, name, documents):
    """They give no example, of the usual form."""
    view = VIEWS[name](34, vocabulary)
    examples = view(_block(documents))
    assert set(examples) == {*view.sequences, *view.scalars, "key"}
    for sequence in view.sequences:
        assert examples[sequence].to_list() == [] and examples[sequence].dtype == tf.int32
    assert examples["key"].shape == (0,) and examples["key"].dtype == tf.int64


def test_equal_settings_are_equal_views(vocabulary):
    """So they share a pipeline; views of other settings do not."""
    views = [make(length, vocabulary) for make in VIEWS.values() for length in (34, 40)]
    assert len(set(views)) == len(views)
    assert {make(34, vocabulary) for make in VIEWS.values()} < set(views)


# Settings of pipelines by the kind of their batches; `max_examples` is of validation only.
BATCHES = {
    "validation": {"is_training": False},
    "part": {"is_training": False, "max_examples": 7},
    "random": {"bucket_boundaries": [], "max_examples": 7, "seed": 3},
    "buckets": {"bucket_boundaries": [12, 24], "shuffle_sentences": 90},
}
FAST_BATCHES = (("span_mask", "validation"), ("pairs", "random"))


@pytest.fixture(scope="module")
def pipeline_of(tmp_path_factory, vocabulary):
    """Writes documents with text, some in several records, and rows of pairs; makes pipelines."""
    root = tmp_path_factory.mktemp("views")
    documents = make_documents(20)
    write_records(root / "documents", documents, vocabulary, keep_text=True, max_sentences=6)
    write_pairs(root / "pairs", nli_rows(35, seed=2), vocabulary, 700)

    def make(name):
        if name == "pairs":
            view = InferencePairs(14, "different", 3, SPECIAL)
            return Pipeline(root / "pairs", vocabulary, view=view), view
        # Documents are short.
        view = Spans(1, 1, 4, 10, name, SPECIAL) if name in SAMPLINGS else None
        view = view or VIEWS[name](24, vocabulary)
        return Pipeline(root / "documents", vocabulary, view=view), view

    return make


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        pytest.param(name, kind, marks=() if (name, kind) in FAST_BATCHES else pytest.mark.long)
        for name in (*VIEWS, "pairs")
        for kind in BATCHES
        if kind == "validation" or name in ("AdjacentPairs", "SegmentRuns", "pairs")
    ],
)
def test_batches_hold_the_examples_of_the_view(pipeline_of, name, batches):
    """Each of an epoch once, in an order of its own; random batches end with the epoch.

    Neighbours of one document as candidates of one batch would find themselves.
    """
    (pipeline, view), settings = pipeline_of(name), BATCHES[batches]
    epochs = [pipeline.examples(epoch, **settings) for epoch in (0, 1, 2)]
    size = len(epochs[0])
    if not settings.get("is_training", True):
        epochs = epochs[:1]
    examples = {key: row for epoch in epochs for key, row in epoch.items()}
    assert len(examples) == size * len(epochs) > 15
    seen, sizes = [], []
    for batch in pipeline.build(**settings).as_numpy_iterator():
        seen += rows_of(view, batch)
        sizes.append(len(batch["key"]))
        if len(seen) >= 2.5 * size:
            break
    keys = [key for key, _ in seen]
    assert len(set(keys)) == len(keys) and all(row == examples[key] for key, row in seen)
    if batches == "random" or not view.keeps_order:
        # Buckets of lengths change any order.
        assert (keys[:size] == [*examples][: len(keys[:size])]) == view.keeps_order
    if batches == "part":
        assert len(keys) == 7
    elif batches == "buckets":
        # Some of the first epoch's examples wait still.
        assert len(epochs[0].keys() - set(keys)) <= 2 * 16
    else:
        parts = [set(keys[i * size : (i + 1) * size]) for i in range(len(epochs) - 1 or 1)]
        assert parts == [set(epoch) for epoch in epochs[: len(parts)]]
    if batches == "random":
        assert sizes[: size // 8 + 1] == [8] * (size // 8) + [size % 8] and size % 8
