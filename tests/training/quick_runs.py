"""Trainings of seconds, where neither the traced step nor the checks of inputs are the subject.

Long tests of `test_runtime.py` and of `tests/unchanged` have trainings with both.
"""

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
import tensorflow as tf

from official_cmlm.inputs.pipeline import Augment, Replicas, build_dataset
from official_cmlm.inputs.plan import Plan
from official_cmlm.training import task

_DATASETS: dict[tuple, tf.data.Dataset] = {}


def _keep_dataset(plan: Plan, augments: tuple[Augment, ...], replicas: Replicas) -> tf.data.Dataset:
    """Builds a pipeline, or returns the one of an earlier run: each can be read many times."""
    facts = (plan.config.as_dict(), plan.manifest, plan.fingerprint, plan.starts)
    key = (repr(facts), plan.static_shapes, plan.view, tuple(augments), replicas)
    if key not in _DATASETS:
        _DATASETS[key] = build_dataset(plan, augments, replicas)
    return _DATASETS[key]


def at_call(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, number: int, act) -> None:
    """Lets call `number` of a method do something first."""
    original, calls = getattr(owner, name), []

    def wrap(self, *args):
        calls.append(args)
        if len(calls) == number:
            act()
        return original(self, *args)

    monkeypatch.setattr(owner, name, wrap)


def ask_to_stop() -> None:
    """Sends this process the signal that asks a training to stop."""
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def skip_input_checks() -> Iterator[None]:
    """Skips the checks and counts of inputs in a `with` block, and builds equal pipelines once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task.SentenceEncoderTask, "check_inputs", lambda *_: None)
        patch.setattr(task, "unusable_records", lambda *_: [])
        patch.setattr(task, "build_dataset", _keep_dataset)
        yield


@contextlib.contextmanager
def quick_runs() -> Iterator[None]:
    """Skips the check, and computes steps eagerly: tracing one takes longer than ten steps."""
    tf.config.run_functions_eagerly(True)
    try:
        with skip_input_checks():
            yield
    finally:
        tf.config.run_functions_eagerly(False)
