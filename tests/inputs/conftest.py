"""One set of pipelines for all tests: building one takes seconds, reading from it does not."""

import pytest

from official_cmlm.inputs.masking import MaskTokens
from tests.inputs.pipelines import Pipeline, pairs_by_hand, special_ids


@pytest.fixture(scope="session")
def pipeline(records_dir, vocabulary):
    """Pairs of the tiny records, with a masked copy of the second half."""
    mask = MaskTokens("second", "masked", 0.313, 8, special_ids(vocabulary))
    return Pipeline(records_dir, vocabulary, [mask])


@pytest.fixture(scope="session")
def corpus(pipeline):
    """Reads every adjacent pair of the tiny records by hand."""
    return pairs_by_hand(pipeline.folder, pipeline.special, 24)
