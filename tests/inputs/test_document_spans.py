"""DeCLUTR's spans: where anchors and positives may lie (§3.2), and what decides them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs.document_spans import SAMPLINGS, Spans
from tests.inputs.blocks import SLOW, SPECIAL, make_block

# Bounds of the length of a span, with [CLS] and [SEP] in the upper one.
_LENGTHS = st.integers(1, 12).flatmap(
    lambda least: st.tuples(st.just(least), st.integers(least + 2, 16))
)


def _numbered(lengths, sentence=7):
    """Documents whose tokens are numbered through the block, in sentences of `sentence` tokens."""
    documents, first = [], 10
    for length in lengths:
        ids = list(range(first, first + length))
        documents.append([ids[i : i + sentence] for i in range(0, length, sentence)])
        first += length
    return documents


def _places(view, examples):
    """Returns {sequence: (first token, last token + 1)} of each example of numbered documents."""
    result = [{} for _ in range(examples["key"].shape[0])]
    assert set(examples) == {*view.sequences, "key"}
    for name in view.sequences:
        for places, row in zip(result, examples[name].to_list(), strict=True):
            cls, *span, sep = row
            assert (cls, sep) == (SPECIAL.cls, SPECIAL.sep)
            assert span == list(range(span[0], span[0] + len(span))), "not a slice of the text"
            places[name] = (span[0], span[-1] + 1)
    return result


def _check(view, places, first, end):
    """Asserts the rules for one example of the document of tokens first … end − 1."""
    longest = view.max_span_length - 2
    starts = [places[name][0] for name in view.anchors]
    assert all(b - a >= 2 * view.max_span_length for a, b in zip(starts, starts[1:]))
    for a, anchor in enumerate(view.anchors):
        left, right = places[anchor]
        assert first <= left and right <= end
        assert view.min_span_length <= right - left <= longest
        for p in range(view.num_positives):
            start, stop = places[f"positive_{a}_{p}"]
            assert first <= start and stop <= end
            # Beside an anchor there may be less room than the shortest span takes.
            room = max(left - first, end - right) if view.sampling == "adjacent" else longest
            assert min(view.min_span_length, room) <= stop - start <= longest
            assert left <= stop and start <= right, "neither overlaps nor touches"
            if view.sampling == "adjacent":
                assert stop == left or start == right
            if view.sampling == "subsuming":
                assert left <= start and stop <= right


@SLOW
@given(
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    lengths=_LENGTHS,
    sampling=st.sampled_from(SAMPLINGS),
    extra=st.lists(st.integers(-5, 40), min_size=1, max_size=8),
    data=st.data(),
)
def test_spans(counts, lengths, sampling, extra, data):
    """Slices of one document, of allowed length, the anchors far apart, positives near theirs."""
    view = Spans(*counts, *lengths, sampling, SPECIAL)
    assert len(view.anchors) == counts[0] and len(view.positives) == counts[0] * counts[1]
    sizes = [max(1, view.min_record_tokens + more) for more in extra]
    keys = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), **_exactly(sizes), unique=True))
    examples = view(make_block(_numbered(sizes), keys=keys))
    long_enough = [i for i, more in enumerate(extra) if more >= 0]
    assert examples["key"].numpy().tolist() == [keys[i] for i in long_enough]
    bounds = [(10 + sum(sizes[:i]), 10 + sum(sizes[: i + 1])) for i in long_enough]
    for places, (first, end) in zip(_places(view, examples), bounds, strict=True):
        _check(view, places, first, end)


def _exactly(values):
    return {"min_size": len(values), "max_size": len(values)}


def test_positives_inside_an_anchor_are_drawn_no_longer_than_it():
    """Lengths are ℓmin + Beta(2, 4) · (ℓanchor − ℓmin): a third of the way, on average 138 tokens
    with §3.2's 32 and 512; hardly any is the whole anchor."""
    view = Spans(1, 2, 32, 512, "subsuming", SPECIAL)
    examples = view(make_block(_numbered([1024] * 600)))
    # Without the two special tokens.
    anchors = examples["anchor_0"].row_lengths().numpy() - 2
    for name in ("positive_0_0", "positive_0_1"):
        lengths = examples[name].row_lengths().numpy() - 2
        assert lengths.min() >= 32 and (lengths <= anchors).all()
        shares = (lengths - 32) / np.maximum(anchors - 32, 1)
        assert abs(shares.mean() - 1 / 3) < 0.02 and abs(lengths.mean() - 138) < 4
        assert (lengths == anchors).mean() < 0.01


def test_the_shortest_documents():
    """2 · A · ℓmax tokens are enough: 2,048 in the paper (§4.1)."""
    assert Spans(2, 2, 32, 512, "all", SPECIAL).min_record_tokens == 2048
    view = Spans(2, 1, 4, 8, "all", SPECIAL)
    examples = view(make_block(_numbered([31, 32, 33]), keys=[5, 6, 7]))
    assert examples["key"].numpy().tolist() == [6, 7]
    # Comparisons of several A read the same documents.
    one_anchor = Spans(1, 1, 4, 8, "all", SPECIAL, min_document_tokens=32)
    assert one_anchor(make_block(_numbered([31, 32]), keys=[5, 6]))["key"].numpy().tolist() == [6]


def test_what_is_repeated_counts_once():
    """The sentence that a cut repeats is not there: neither for the length nor in a span."""
    (document,) = _numbered([32])
    view = Spans(1, 2, 4, 16, "all", SPECIAL)
    shorter = view(make_block([document], [True]))
    assert shorter["key"].shape == (0,)
    repeated = [[1, 2, 3], *document]
    whole, cut = (
        view(make_block([d] * 50, [mark] * 50)) for d, mark in ((document, False), (repeated, True))
    )
    for name in view.sequences:
        assert whole[name].to_list() == cut[name].to_list()
