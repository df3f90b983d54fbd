"""Mirror-BERT's span of masked characters (§2.2): what is cut out, and which ids that gives."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from official_cmlm.inputs.mirrored import Mirrored, cut_span
from official_cmlm.tokenization import build_graph_tokenizer, build_tokenizer, load_vocabulary
from tests.inputs.blocks import SLOW, make_block

_BYTE_PAIR = Path(__file__).parents[1] / "checkpoints" / "references" / "roberta"
# One, two, three and four bytes of UTF-8, marks that join the letter before, two kinds of space.
_CHARACTERS = "abtre.ß\u0301ไ漢字\u3000😀👍🏽\u200d  "
_TEXT = st.text(_CHARACTERS, max_size=24)
_KEY = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(scope="module", params=["wordpiece", "byte_pair"])
def vocabularies(request, vocabulary):
    """Returns a vocabulary of either kind, whose graph tokenizer is built once."""
    with pytest.MonkeyPatch.context() as patch:
        name = "official_cmlm.inputs.mirrored.build_graph_tokenizer"
        patch.setattr(name, functools.cache(build_graph_tokenizer))
        yield vocabulary if request.param == "wordpiece" else load_vocabulary(_BYTE_PAIR)


def _view(vocabulary, span=5, least=10, seq_length=64):
    return Mirrored("sentence", seq_length, "span_mask", span, least, 0.0, 0.15, vocabulary)


def _block(vocabulary, documents, repeats=None, keys=None):
    """Documents given as lists of texts that have tokens."""
    tokenizer = build_tokenizer(vocabulary)
    ids = [tokenizer.tokenize(texts).to_list() for texts in documents]
    text = tf.ragged.constant(documents, tf.string, ragged_rank=1, row_splits_dtype=tf.int64)
    return dataclasses.replace(make_block(ids, repeats, keys), text=text)


def _wrap(vocabulary, ids, limit=62):
    special = vocabulary.special_ids
    return [special["cls"], *ids[:limit], special["sep"]]


def _cuts(vocabulary, text, span, limit=62):
    """Lists the ids of the text with each span of characters masked, a space on either side."""
    places = range(len(text) - span + 1)
    before = [text[:i].rstrip(" ") for i in places]
    after = [text[i + span :].strip(" ") and f" {text[i + span :].lstrip(' ')}" for i in places]
    ids = build_tokenizer(vocabulary).tokenize([*before, *after]).to_list()
    mask = vocabulary.special_ids["mask"]
    return [
        _wrap(vocabulary, [*left, mask, *right], limit)
        for left, right in zip(ids[: len(places)], ids[len(places) :])
    ]


@SLOW
@given(
    rows=st.lists(st.tuples(_TEXT, _KEY), min_size=1, max_size=12),
    span=st.integers(1, 9),
    least=st.integers(0, 16),
)
def test_exactly_so_many_characters_are_cut_out(rows, span, least):
    """The text around the span keeps whole Unicode characters; short texts are unchanged."""
    texts, keys = zip(*rows)
    results = cut_span(tf.constant(texts), tf.constant(keys, tf.int64), span, least)
    for text, before, after, cut in zip(texts, *(x.numpy() for x in results)):
        assert cut == (len(text) > span and len(text) >= least)
        if cut:
            before, after = before.decode(), after.decode()
            assert len(before) + span + len(after) == len(text)
            assert text.startswith(before) and text.endswith(after)


@settings(SLOW, max_examples=4)
@given(
    sentences=st.lists(_TEXT.map(lambda text: f"a{text.strip()}"), min_size=1, max_size=6),
    span=st.integers(1, 7),
    least=st.integers(0, 16),
    key=_KEY,
)
def test_ids_of_masked_text(vocabularies, sentences, span, least, key):
    """[CLS] ids before [MASK] ids after [SEP]; the first view is the text's own ids."""
    view = _view(vocabularies, span, least)
    examples = view(_block(vocabularies, [sentences], keys=[key]))
    own = build_tokenizer(vocabularies).tokenize(sentences).to_list()
    assert examples["first"].to_list() == [_wrap(vocabularies, ids) for ids in own]
    assert examples["second"].dtype == tf.int32
    for text, ids, second in zip(sentences, own, examples["second"].to_list(), strict=True):
        if len(text) > span and len(text) >= least:
            assert second in _cuts(vocabularies, text, span)
        else:
            assert second == _wrap(vocabularies, ids)


def test_every_place_is_as_likely(vocabularies):
    """The span starts at each of the n − k + 1 places equally often, the last one included."""
    text = "abcdefghijklm"
    cuts = [tuple(cut) for cut in _cuts(vocabularies, text, 4)]
    assert len(set(cuts)) == len(cuts) == 10
    view = _view(vocabularies, span=4)
    examples = view(_block(vocabularies, [[text]] * 2000, keys=range(2000)))
    drawn = [cuts.index(tuple(row)) for row in examples["second"].to_list()]
    counts = np.bincount(drawn, minlength=10)
    assert counts.min() > 0 and stats.chisquare(counts).pvalue > 1e-3


def test_words_beside_the_mask(vocabularies):
    """A word after the mask is tokenised as any other word, also where its space was cut out."""
    text = "tree abcde tree"
    view = _view(vocabularies, span=7)
    rows = view(_block(vocabularies, [[text]] * 60, keys=range(60)))["second"].to_list()
    assert {tuple(row) for row in rows} == {tuple(cut) for cut in _cuts(vocabularies, text, 7)}
    first, word = build_tokenizer(vocabularies).tokenize(["tree", " tree"]).to_list()
    assert _wrap(vocabularies, [*first, vocabularies.special_ids["mask"], *word]) in rows


def test_masked_texts_are_cut_to_length(vocabularies):
    """The ids of the masked text are cut after tokenising it whole."""
    text = "the old tree was red and the new house was blue"
    view = _view(vocabularies, seq_length=8)
    examples = view(_block(vocabularies, [[text]] * 50, keys=range(50)))
    cuts = _cuts(vocabularies, text, 5, limit=6)
    assert all(row in cuts and len(row) == 8 for row in examples["second"].to_list())
    assert {len(row) for row in examples["first"].to_list()} == {8}


def test_repeated_sentences_are_left_out_with_their_text(vocabularies):
    """Every view's second half is made of the text of its first, also after a repeated sentence."""
    documents = [["the old tree", "a green bird ran"], ["a green bird ran", "small river stone"]]
    block = _block(vocabularies, documents * 9, [False, True] * 9)
    examples = _view(vocabularies)(block)
    texts = ["the old tree", "a green bird ran", "small river stone"] * 9
    own = build_tokenizer(vocabularies).tokenize(texts).to_list()
    assert examples["first"].to_list() == [_wrap(vocabularies, ids) for ids in own]
    cuts = {text: _cuts(vocabularies, text, 5) for text in set(texts)}
    for text, second in zip(texts, examples["second"].to_list(), strict=True):
        assert second in cuts[text]
    assert len(set(examples["key"].numpy().tolist())) == len(texts)
