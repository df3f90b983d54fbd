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
    """Inputs are taken to be checked, until it is left: a check builds each pipeline once more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SentenceEncoderTask, "check_inputs", lambda *_: None)
        yield


@contextlib.contextmanager
def quick_runs() -> Iterator[None]:
    """That, and steps are computed eagerly: to trace one takes longer than to compute some ten."""
    tf.config.run_functions_eagerly(True)
    try:
        with unchecked_inputs():
            yield
    finally:
        tf.config.run_functions_eagerly(False)
