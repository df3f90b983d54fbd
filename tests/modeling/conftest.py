"""Fixtures of the tests of layers."""

import pytest
import tf_keras


@pytest.fixture
def fixed_seed():
    """A test draws the same masks whatever ran before it."""
    tf_keras.utils.set_random_seed(1)


@pytest.fixture
def bfloat16():
    """Mixed precision within the test."""
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    yield
    tf_keras.mixed_precision.set_global_policy(before)
