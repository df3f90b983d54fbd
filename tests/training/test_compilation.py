"""Which trainings XLA compiles where `runtime.enable_xla` is null."""

import json

import pytest

from experiments import registry
from official_cmlm.training import compilation, runtime

LONG = {"trainer": {"train_steps": 1_000_000}}


def _params(**values):
    return registry.load("demo", params_override=json.dumps(values))


@pytest.mark.parametrize(
    ("values", "num_gpus", "compiled", "reason"),
    [
        (LONG, 1, True, "10 shapes"),
        ({"trainer": {"train_steps": 9_999}}, 1, False, "9999 steps do not repay compiling 10"),
        ({"trainer": {"train_steps": 10_000}}, 1, True, "10 shapes"),
        (LONG, 0, False, "on CPUs"),
        (LONG | {"task": {"train_data": {"bucket_boundaries": []}}}, 1, False, "random batches"),
        (LONG | {"runtime": {"distribution_strategy": "tpu"}}, 0, False, "by itself"),
        (LONG | {"runtime": {"distribution_strategy": "pjrt"}}, 1, False, "by itself"),
    ],
)
def test_where_it_pays(values, num_gpus, compiled, reason):
    """Long trainings of length buckets on GPUs; the reason is printed."""
    found = compilation.decide(_params(**values), num_gpus)
    assert found.compiled == compiled and reason in str(found)
    assert str(found).startswith(f"XLA: {'on' if compiled else 'off'}, ")


def test_shapes_of_a_step():
    """A step takes a batch of each pipeline, so every combination; equal data share a pipeline."""
    data = _params().task.train_data
    assert compilation.step_shapes([data, data.replace()]) == 10
    other = data.replace(seed=5, bucket_boundaries=[64, 128])
    assert compilation.step_shapes([data, other]) == 20


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
    found = runtime.xla_decision(_params(runtime={"num_gpus": int(not known)}, **LONG), folder)
    assert found.compiled == known and "was begun" in found.reason


def test_nothing_is_kept_without_a_checkpoint(begun):
    """Nor what is not there, or no decision."""
    assert compilation.resumed(begun("runtime: {enable_xla: true}\n", checkpoint=False)) is None
    assert compilation.resumed(begun("runtime: {enable_xla: null}\n")) is None
    for text in ("runtime: [1]\n", "[]\n", "{", ""):
        assert compilation.resumed(begun(text)) is None


def test_what_is_not_possible_here_is_not_kept(begun):
    """A training may go on where its step cannot be compiled."""
    values = {"runtime": {"distribution_strategy": "multi_worker_mirrored", "num_gpus": 0}}
    folder = begun("runtime: {enable_xla: true}\n")
    found = runtime.xla_decision(_params(**LONG, **values), folder)
    assert not found.compiled and "was begun" not in found.reason


def test_prepared_settings():
    """The decision is written down; only a TPU also compiles validation."""
    found = runtime.prepared(_params(runtime={"num_gpus": 1}, **LONG))
    assert found.runtime.enable_xla is True
    assert found.task.static_shapes and not found.task.static_validation
    found = runtime.prepared(_params(runtime={"num_gpus": 0}, **LONG))
    assert found.runtime.enable_xla is False and not found.task.static_shapes
    tpu = {"distribution_strategy": "tpu", "tpu": "x"}
    found = runtime.prepared(_params(runtime=tpu))
    assert found.task.static_shapes and found.task.static_validation
