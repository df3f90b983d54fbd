"""Promises of every view of token ids: keys decide, empty blocks are empty, equal ones share."""

import dataclasses

import pytest
import tensorflow as tf

from official_cmlm.inputs.document_spans import SAMPLINGS, Spans
from official_cmlm.inputs.mirrored import AUGMENTATIONS, Mirrored
from official_cmlm.inputs.views import AdjacentPairs, SegmentRuns, Segments
from tests.inputs.blocks import SPECIAL, make_block, random_documents


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
