"""Segments: single sentences and packed runs of them, against plain loops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from official_cmlm.inputs.views import segments
from tests.inputs.blocks import DOCUMENTS, SLOW, make_block
from tests.oracles.cmlm_numpy import greedy_pack


def _packed(document, limit):
    """Computes the segments of one document by the oracle, uncut."""
    runs = greedy_pack([len(sentence) for sentence in document], limit)
    return [[token for index in run for token in document[index]] for run in runs]


@SLOW
@given(documents=DOCUMENTS, limit=st.integers(1, 15))
def test_sentences(documents, limit):
    """Each sentence is a segment, cut to the limit."""
    result = segments(make_block(documents), "sentence", limit).to_list()
    assert result == [[sentence[:limit] for sentence in document] for document in documents]


@SLOW
@given(documents=DOCUMENTS, limit=st.integers(1, 30))
def test_packed(documents, limit):
    """Whole sentences as long as they fit, by the oracle's loop; what is too long is cut."""
    result = segments(make_block(documents), "packed", limit).to_list()
    expected = [[run[:limit] for run in _packed(document, limit)] for document in documents]
    assert result == expected


@SLOW
@given(documents=DOCUMENTS, limit=st.integers(12, 40))
def test_packing_loses_nothing(documents, limit):
    """Where no sentence is longer than the limit, the segments end to end are the document."""
    result = segments(make_block(documents), "packed", limit).to_list()
    assert [sum(runs, []) for runs in result] == [sum(document, []) for document in documents]
    assert all(1 <= len(run) <= limit for runs in result for run in runs)


@SLOW
@given(
    documents=DOCUMENTS, limit=st.integers(1, 30), segment=st.sampled_from(["sentence", "packed"])
)
def test_documents_do_not_mix(documents, limit, segment):
    """Each document's segments do not depend on the others of its block."""
    together = segments(make_block(documents), segment, limit).to_list()
    for document, result in zip(documents, together):
        assert segments(make_block([document]), segment, limit).to_list() == [result]


@pytest.mark.parametrize(
    ("lengths", "limit", "runs"),
    [
        ([3, 3, 3], 6, [[0, 1], [2]]),
        ([3, 3, 3], 5, [[0], [1], [2]]),
        ([9, 1, 1], 6, [[0], [1, 2]]),
        ([1, 9, 1], 6, [[0], [1], [2]]),
        ([6, 6], 6, [[0], [1]]),
        ([1] * 7, 3, [[0, 1, 2], [3, 4, 5], [6]]),
    ],
)
def test_packed_by_hand(lengths, limit, runs):
    """Worked by hand: exact fits, sentences that are too long, remainders."""
    document = [[10 * (i + 1) + j for j in range(length)] for i, length in enumerate(lengths)]
    expected = [[t for i in run for t in document[i]][:limit] for run in runs]
    assert segments(make_block([document]), "packed", limit).to_list() == [expected]
