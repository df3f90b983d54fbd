"""Trainings of seconds, where neither the traced step nor the checks of inputs are the subject.

`test_runtime.py` and `tests/unchanged` have trainings with both.
"""

import contextlib
from collections.abc import Iterator

import pytest
import tensorflow as tf

from official_cmlm.training.task import SentenceEncoderTask


@contextlib.contextmanager
def unchecked_inputs() -> Iterator[None]:
    """Skips the check of inputs within a `with` block: it builds each pipeline once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentenceEncoderTask, "check_inputs", lambda *_: None)
        yield


@contextlib.contextmanager
def quick_runs() -> Iterator[None]:
    """Skips the check, and computes steps eagerly: tracing one takes longer than ten steps."""
    tf.config.run_functions_eagerly(True)
    try:
        with unchecked_inputs():
            yield
    finally:
        tf.config.run_functions_eagerly(False)
