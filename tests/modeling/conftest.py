"""Fixtures of the tests of layers."""

import pytest
import tf_keras


@pytest.fixture
def fixed_seed():
    """A test draws the same masks whatever ran before it."""
    tf_keras.utils.set_random_seed(1)
