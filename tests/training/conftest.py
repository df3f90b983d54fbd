"""Fixtures of trainings: checks that are left out."""

import pytest

from tests.training.quick_runs import skip_input_checks


@pytest.fixture
def unchecked():
    """Skips the check of inputs, where it is not what refuses a run."""
    with skip_input_checks():
        yield
