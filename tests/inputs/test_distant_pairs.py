"""Pairs of segments at distances up to a maximum."""

import collections
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_cmlm.inputs.views import AdjacentPairs
from tests.inputs.blocks import DOCUMENTS, SLOW, SPECIAL, make_block, random_documents, wrap
from tests.oracles.cmlm_numpy import pair_segments


def _pairs(document, distance):
    """Finds the pairs of a list's elements at most so far apart, by trying all pairs."""
    indexed = itertools.combinations(enumerate(document), 2)
    return [(left, right) for (i, left), (j, right) in indexed if j - i <= distance]


def _counter(pairs):
    """Pairs of lists, counted; the order inside a pair is kept."""
    return collections.Counter((tuple(left), tuple(right)) for left, right in pairs)


def _examples(view, block):
    examples = view(block)
    pairs = list(zip(*(examples[name].to_list() for name in view.sequences), strict=True))
    keys = examples["key"].numpy().tolist()
    assert len(set(keys)) == len(keys) == len(pairs)
    return pairs


@settings(SLOW, max_examples=25)
@given(
    documents=DOCUMENTS,
    distance=st.integers(1, 8),
    segment=st.sampled_from(["sentence", "packed"]),
    limit=st.integers(1, 20),
    swapped=st.booleans(),
)
def test_all_pairs_near_each_other(documents, distance, segment, limit, swapped):
    """Pairs at distance 1 … d inside one record, each once, and no others."""
    view = AdjacentPairs(segment, limit + 2, float(swapped), SPECIAL, distance)
    expected = []
    for document in documents:
        runs = [[i] for i in range(len(document))]
        if segment == "packed":
            runs = pair_segments([len(sentence) for sentence in document], limit)
        parts = [wrap([t for i in run for t in document[i]][:limit]) for run in runs]
        expected += _pairs(parts, distance)
    pairs = _examples(view, make_block(documents))
    assert _counter(pair[::-1] if swapped else pair for pair in pairs) == _counter(expected)


@pytest.mark.parametrize("distance", [1, 2, 3, 5, 9])
def test_numbers_of_pairs(distance):
    """A record of n segments gives n − 1 pairs, n − 2 of distance 2, and so on."""
    documents = [[[10 + i] for i in range(n)] for n in (1, 2, 5, 3, 9)]
    pairs = _examples(AdjacentPairs("sentence", 5, 0.0, SPECIAL, distance), make_block(documents))
    assert len(pairs) == sum(max(n - d, 0) for n in (1, 2, 5, 3, 9) for d in range(1, distance + 1))
    apart = collections.Counter(right[1] - left[1] for left, right in pairs)
    assert set(apart) == set(range(1, min(distance, 8) + 1))


def test_swaps():
    """Half of the pairs of each distance are swapped."""
    documents = [[[10 + i] for i in range(9)]] * 200
    pairs = _examples(AdjacentPairs("sentence", 5, 0.5, SPECIAL, 3), make_block(documents))
    for distance in (1, 2, 3):
        steps = [second[1] - first[1] for first, second in pairs]
        signs = [step > 0 for step in steps if abs(step) == distance]
        assert len(signs) == 200 * (9 - distance)
        assert abs(sum(signs) / len(signs) - 0.5) < 4 * (0.25 / len(signs)) ** 0.5


def test_pairs_depend_on_the_record_key_alone():
    """A record gives the same pairs in any block."""
    documents = random_documents(5, 7)
    view = AdjacentPairs("sentence", 34, 0.5, SPECIAL, 3)
    together = _examples(view, make_block(documents, keys=range(60, 65)))
    alone = [
        pair
        for i, d in enumerate(documents)
        for pair in _examples(view, make_block([d], keys=[60 + i]))
    ]
    assert together == alone


@pytest.mark.parametrize("documents", [[], [[[7]], [[8]]]])
def test_no_pairs(documents):
    """An empty block and one of single segments give nothing, and no error."""
    assert _examples(AdjacentPairs("packed", 8, 0.5, SPECIAL, 3), make_block(documents)) == []


def test_the_distance_makes_another_view():
    """Neighbours and wider pairs do not share a pipeline; neighbours are the default."""
    views = [AdjacentPairs("sentence", 9, 0.5, SPECIAL, distance) for distance in (1, 2, 3)]
    assert len(set(views)) == 3
    assert AdjacentPairs("sentence", 9, 0.5, SPECIAL) == views[0]
