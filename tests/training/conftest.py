"""Fixtures of trainings: precision, and checks that are left out."""

import pytest
import tf_keras

from tests.training.quick_runs import unchecked_inputs


@pytest.fixture
def float32_after():
    """Ends the mixed precision that a test begins."""
    yield
    tf_keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def unchecked():
    """Skips the check of inputs, where it is not what refuses a run."""
    with unchecked_inputs():
        yield
