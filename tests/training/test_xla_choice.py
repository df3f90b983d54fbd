"""XLA's choice where `runtime.enable_xla` is null: which trainings it compiles."""

import json

import pytest

from experiments import registry
from official_cmlm.training import runtime

LONG = {"trainer": {"train_steps": 1_000_000}}


def _params(**values):
    return registry.load("cmlm/tiny", params_override=json.dumps(values))


@pytest.mark.parametrize(
    ("values", "num_gpus", "compiled", "reason"),
    [
        (LONG, 1, True, "7 shapes"),
        ({"trainer": {"train_steps": 6_999}}, 1, False, "6999 steps do not repay compiling 7"),
        ({"trainer": {"train_steps": 7_000}}, 1, True, "7 shapes"),
        (LONG, 0, False, "on CPUs"),
        (LONG | {"task": {"train_data": {"bucket_boundaries": []}}}, 1, False, "random batches"),
        (LONG | {"runtime": {"distribution_strategy": "tpu"}}, 0, False, "every step itself"),
        (LONG | {"runtime": {"distribution_strategy": "pjrt"}}, 1, False, "every step itself"),
    ],
)
def test_where_it_pays(values, num_gpus, compiled, reason):
    """Long trainings of length buckets on GPUs; the reason is printed."""
    found = runtime.choose_xla(_params(**values), num_gpus)
    assert found.compiled == compiled and reason in str(found)
    assert str(found).startswith(f"XLA: {'on' if compiled else 'off'}, ")


def test_shapes_of_a_step():
    """A step takes a batch of each pipeline, so every combination; equal data share a pipeline."""
    data = _params().task.train_data
    assert runtime.step_shapes([data, data.replace()]) == 7
    other = data.replace(seed=5, bucket_boundaries=[64, 128])
    assert runtime.step_shapes([data, other]) == 14


@pytest.fixture
def begun(tmp_path):
    """A function that writes a folder in which a training has a checkpoint, or none."""

    def write(text, checkpoint=True):
        (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
        if checkpoint:
            (tmp_path / "ckpt-2.index").write_bytes(b"")
        return str(tmp_path)

    return write


@pytest.mark.parametrize("known", [True, False])
def test_a_resumed_training_keeps_its_decision(begun, known):
    """Whatever the configuration would say now: XLA changes the last bits of a step."""
    folder = begun(f"runtime:\n  enable_xla: {str(known).lower()}\n")
    found = runtime.choose_xla(_params(**LONG), int(not known), folder)
    assert found.compiled == known and "was begun" in found.reason


@pytest.mark.parametrize(
    ("text", "checkpoint"),
    [
        ("runtime: {enable_xla: true}\n", False),
        ("runtime: {enable_xla: null}\n", True),
        ("runtime: [1]\n", True),
        ("[]\n", True),
        ("{", True),
        ("", True),
    ],
)
def test_nothing_is_kept_without_a_stored_choice(begun, text, checkpoint):
    """A folder without a checkpoint, and a file without a choice, say nothing."""
    found = runtime.choose_xla(_params(**LONG), 0, begun(text, checkpoint))
    assert not found.compiled and "was begun" not in found.reason


def test_what_is_not_possible_here_is_not_kept(begun):
    """A training may go on where its step cannot be compiled."""
    values = {"runtime": {"distribution_strategy": "multi_worker_mirrored", "num_gpus": 0}}
    folder = begun("runtime: {enable_xla: true}\n")
    found = runtime.choose_xla(_params(**LONG, **values), 0, folder)
    assert not found.compiled and "was begun" not in found.reason


def test_prepared_settings():
    """The choice is written down and returned; a given setting needs none."""
    found, choice = runtime.prepared(_params(runtime={"num_gpus": 1}, **LONG))
    assert found.runtime.enable_xla is True and runtime.is_compiled(found.runtime)
    assert choice.compiled
    found, _ = runtime.prepared(_params(runtime={"num_gpus": 0}, **LONG))
    assert found.runtime.enable_xla is False and not runtime.is_compiled(found.runtime)
    tpu = {"distribution_strategy": "tpu", "tpu": "x"}
    found, _ = runtime.prepared(_params(runtime=tpu))
    assert runtime.is_compiled(found.runtime)
    _, choice = runtime.prepared(_params(runtime={"enable_xla": False}))
    assert choice is None
