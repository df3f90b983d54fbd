"""Views: which examples a block of documents gives, and in what form."""

import math

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs.views import AdjacentPairs, Segments
from tests.inputs.blocks import DOCUMENTS, SLOW, SPECIAL, make_block, random_documents, wrap
from tests.oracles.cmlm_numpy import adjacent_pairs, greedy_pack, pair_segments

SEGMENT = st.sampled_from(["sentence", "packed"])


def _parts(document, segment, limit, pack=greedy_pack):
    """Lists the segments of one document, special tokens around each."""
    indices = [[i] for i in range(len(document))]
    if segment == "packed":
        indices = pack([len(sentence) for sentence in document], limit)
    return [wrap([t for i in run for t in document[i]][:limit]) for run in indices]


def _pairs(documents, segment, limit):
    """Lists all pairs in the order of the text."""
    result = []
    for document in documents:
        parts = _parts(document, segment, limit, pair_segments)
        result += [(parts[i], parts[j]) for i, j in adjacent_pairs(len(parts))]
    return result


def _examples(view, block):
    examples = view(block)
    return list(zip(*(examples[name].to_list() for name in view.sequences)))


@SLOW
@given(
    documents=DOCUMENTS,
    segment=SEGMENT,
    limit=st.integers(1, 40),
    swapped=st.booleans(),
)
def test_pairs(documents, segment, limit, swapped):
    """n − 1 pairs a document, in the text's order without swaps and reversed with them always."""
    view = AdjacentPairs(segment, limit + 2, float(swapped), SPECIAL)
    expected = _pairs(documents, segment, limit)
    if swapped:
        expected = [(right, left) for left, right in expected]
    assert _examples(view, make_block(documents)) == expected


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
    document = [[10 * (i + 1) + j for j in range(length)] for i, length in enumerate(lengths)]
    view = AdjacentPairs("packed", limit + 2, 0.0, SPECIAL)
    # Others in the block, which are long or have no sentence, change nothing.
    others = [[], [[6] * limit, [7] * limit], []]
    for documents in ([document], [*others, document, *others]):
        own = [pair for pair in _examples(view, make_block(documents)) if pair[0][1] >= 10]
        assert [tuple(len(side) - 2 for side in pair) for pair in own] == (
            [halves] if halves else []
        )
    assert not _examples(view, make_block([[], []]))
    # Plain MLM reads it as before.
    segments = Segments("packed", limit + 2, SPECIAL)(make_block([document]))["segment"]
    assert segments.to_list() == _parts(document, "packed", limit)


def test_the_end_of_a_long_document():
    """It begins with the sentence that is repeated, without which its last one had no pair."""
    documents = [[[10] * 8, [11] * 8, [12] * 3], [[12] * 3, [13] * 4]]
    view = AdjacentPairs("packed", 12, 0.0, SPECIAL)
    pairs = _examples(view, make_block(documents, [False, True]))
    assert pairs[-1] == (wrap([12] * 3), wrap([13] * 4))


def test_half_of_the_pairs_are_swapped():
    """Order apart, the pairs are those of the text; each is swapped independently."""
    documents = random_documents(400, 9)
    block = make_block(documents)
    result = _examples(AdjacentPairs("sentence", 34, 0.5, SPECIAL), block)
    swapped = []
    for example, (left, right) in zip(result, _pairs(documents, "sentence", 32), strict=True):
        assert example in ((left, right), (right, left))
        if left != right:
            swapped.append(example == (right, left))
    n = len(swapped)
    assert n > 3000
    assert abs(sum(swapped) - n / 2) < 5 * math.sqrt(n / 4)
    # Neighbours agree as often as not.
    agree = sum(a == b for a, b in zip(swapped, swapped[1:]))
    assert abs(agree - (n - 1) / 2) < 5 * math.sqrt(n / 4)


@pytest.mark.parametrize("probability", [0.1, 0.8])
def test_swap_probability(probability):
    """As many pairs are swapped as asked for."""
    documents = [[[10], [20]] for _ in range(3000)]
    view = AdjacentPairs("sentence", 3, probability, SPECIAL)
    swapped = sum(first == wrap([20]) for first, _ in _examples(view, make_block(documents)))
    assert abs(swapped - 3000 * probability) < 5 * math.sqrt(3000 * probability)


def test_swaps_depend_on_the_record_key_alone():
    """A record gives the same pairs in any block; with another key, others."""
    documents = random_documents(6, 12)
    view = AdjacentPairs("sentence", 34, 0.5, SPECIAL)
    together = view(make_block(documents, keys=range(60, 66)))
    for i, document in enumerate(documents):
        alone = view(make_block([document], keys=[60 + i]))
        for name in ("first", "second"):
            assert together[name][11 * i : 11 * i + 11].to_list() == alone[name].to_list()
        assert (
            together["key"][11 * i : 11 * i + 11].numpy().tolist() == alone["key"].numpy().tolist()
        )
    other = view(make_block(documents, keys=range(6)))
    assert other["first"].to_list() != together["first"].to_list()


@pytest.mark.parametrize(
    "view", [AdjacentPairs("sentence", 34, 0.5, SPECIAL), Segments("sentence", 34, SPECIAL)]
)
def test_keys_are_unique(view):
    """No two examples share a key."""
    keys = view(make_block(random_documents(300, 9)))["key"].numpy().tolist()
    assert len(set(keys)) == len(keys) >= 2400


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


def test_pairs_keep_what_is_repeated():
    """The repeated sentence is what joins two records: pairs need it."""
    documents = [[[10], [11], [12]], [[12], [13]]]
    view = AdjacentPairs("sentence", 5, 0.0, SPECIAL)
    result = _examples(view, make_block(documents, [False, True]))
    assert result == [(wrap([a]), wrap([a + 1])) for a in (10, 11, 12)]


def test_documents_of_one_sentence_give_no_pairs():
    """The result is empty, not an error, and has the same form."""
    examples = AdjacentPairs("packed", 8, 0.5, SPECIAL)(make_block([[[7, 8]], [[9]]]))
    assert examples["first"].to_list() == examples["second"].to_list() == []
    assert examples["first"].dtype == tf.int32 and examples["key"].dtype == tf.int64


def test_equal_settings_are_equal_views():
    """Views of equal settings are equal, so they share a pipeline."""
    views = [
        make(segment, length)
        for segment in ("sentence", "packed")
        for length in (8, 9)
        for make in (
            lambda s, n: AdjacentPairs(s, n, 0.5, SPECIAL),
            lambda s, n: AdjacentPairs(s, n, 0.0, SPECIAL),
            lambda s, n: Segments(s, n, SPECIAL),
        )
    ]
    assert len(set(views)) == len(views)
    assert AdjacentPairs("packed", 9, 0.5, SPECIAL) in set(views)
    assert Segments("packed", 9, SPECIAL) in set(views)
