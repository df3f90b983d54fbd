"""Fixtures of trainings: checks that are left out."""

import pytest

from tests.training.quick_runs import unchecked_inputs


@pytest.fixture
def unchecked():
    """Skips the check of inputs, where it is not what refuses a run."""
    with unchecked_inputs():
        yield
