"""Views: which examples a block of documents gives, and in what form."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs.views import AdjacentPairs, Segments
from tests.inputs.blocks import DOCUMENTS, SLOW, SPECIAL, make_block, random_documents, wrap
from tests.oracles.cmlm_numpy import greedy_pack, pair_segments

SEGMENT = st.sampled_from(["sentence", "packed"])


def _parts(document, segment, limit, pack=greedy_pack):
    """Lists the segments of one document, special tokens around each."""
    indices = [[i] for i in range(len(document))]
    if segment == "packed":
        indices = pack([len(sentence) for sentence in document], limit)
    return [wrap([t for i in run for t in document[i]][:limit]) for run in indices]


def _examples(view, block):
    examples = view(block)
    return list(zip(*(examples[name].to_list() for name in view.sequences)))


@SLOW
@given(
    documents=DOCUMENTS,
    distance=st.integers(1, 8),
    segment=SEGMENT,
    limit=st.integers(1, 20),
    swapped=st.booleans(),
)
def test_all_pairs_near_each_other(documents, distance, segment, limit, swapped):
    """Pairs at distance 1 … d inside one record, each once, and no others."""
    view = AdjacentPairs(segment, limit + 2, float(swapped), SPECIAL, distance)
    expected = []
    for document in documents:
        parts = _parts(document, segment, limit, pair_segments)
        expected += [(a, b) for i, a in enumerate(parts) for b in parts[i + 1 : i + 1 + distance]]
    pairs = _examples(view, make_block(documents))
    assert sorted(pair[::-1] if swapped else pair for pair in pairs) == sorted(expected)


@pytest.mark.parametrize(
    ("lengths", "limit", "halves"),
    [
        ([20] * 12, 254, (120, 120)),
        ([5, 1, 1, 1], 8, (5, 3)),
        ([1, 1, 1, 5], 8, (3, 5)),
        ([2, 2, 2], 6, (2, 4)),
        ([1, 6], 7, (1, 6)),
        ([3, 4], 6, (3, 4)),
        ([9, 1], 6, (6, 1)),
        ([5], 6, None),
        ([9], 6, None),
    ],
)
def test_short_documents(lengths, limit, halves):
    """A record that fits one segment is split in the middle; a longer one is packed as ever."""
    view = AdjacentPairs("packed", limit + 2, 0.0, SPECIAL)
    pairs = _examples(view, make_block([[[6] * length for length in lengths]]))
    sizes = [tuple(len(side) - 2 for side in pair) for pair in pairs]
    assert sizes == ([halves] if halves else [])


def test_the_end_of_a_long_document():
    """It begins with the sentence that is repeated, without which its last one had no pair."""
    documents = [[[10] * 8, [11] * 8, [12] * 3], [[12] * 3, [13] * 4]]
    view = AdjacentPairs("packed", 12, 0.0, SPECIAL)
    pairs = _examples(view, make_block(documents, [False, True]))
    assert pairs[-1] == (wrap([12] * 3), wrap([13] * 4))


def test_half_of_the_pairs_are_swapped():
    """Order apart, the pairs are those of the text; each is swapped independently."""
    block = make_block(random_documents(400, 9))
    plain, swapped = (
        _examples(AdjacentPairs("sentence", 34, share, SPECIAL), block) for share in (0.0, 0.5)
    )
    assert all(pair in (text, text[::-1]) for pair, text in zip(swapped, plain, strict=True))
    swapped = [pair != text for pair, text in zip(swapped, plain) if text[0] != text[1]]
    n = len(swapped)
    assert n > 3000
    assert abs(sum(swapped) - n / 2) < 5 * math.sqrt(n / 4)
    # Neighbours agree as often as not.
    agree = sum(a == b for a, b in zip(swapped, swapped[1:]))
    assert abs(agree - (n - 1) / 2) < 5 * math.sqrt(n / 4)


@SLOW
@given(documents=DOCUMENTS, segment=SEGMENT, limit=st.integers(1, 20), data=st.data())
def test_segments_leave_out_what_is_repeated(documents, segment, limit, data):
    """Each segment once, without the first sentence of records that repeat it."""
    size = len(documents)
    repeats = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    # A record that repeats a sentence always goes on after it.
    repeats = [repeated and len(d) > 1 for d, repeated in zip(documents, repeats)]
    kept = [d[1:] if repeated else d for d, repeated in zip(documents, repeats)]
    expected = [part for document in kept for part in _parts(document, segment, limit)]
    view = Segments(segment, limit + 2, SPECIAL)
    result = view(make_block(documents, repeats))
    assert result["segment"].to_list() == expected
    assert result["key"].shape[0] == len(expected)
