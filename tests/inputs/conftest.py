"""One set of pipelines for all tests: building one takes seconds, reading from it does not."""

import pytest

from official_cmlm.inputs.masking import MaskTokens
from official_cmlm.inputs.views import SpecialIds
from tests.inputs.pipelines import Pipeline


@pytest.fixture(scope="session")
def pipeline(records_dir, vocabulary):
    """Pairs of the tiny records, with a masked copy of the second half."""
    mask = MaskTokens("second", "masked", 0.313, 8, SpecialIds.of(vocabulary))
    return Pipeline(records_dir, vocabulary, [mask])
