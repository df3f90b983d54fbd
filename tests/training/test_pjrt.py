"""Whole runs with `runtime.distribution_strategy: pjrt`."""

import contextlib
import json

import pytest

from experiments import registry
from official_cmlm.common.errors import Stopped, UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training import jax_loop, runtime
from official_cmlm.training.progress import TrainingProgress, read_history
from official_cmlm.training.run import run
from tests.training.helpers import assert_same_checkpoints
from tests.training.quick_runs import ask_to_stop, at_call, quick_runs, skip_input_checks
from tests.training.tiny_training import tiny_run

jax = pytest.importorskip("jax", reason="needs JAX: pip install jax")

_STEPS = 6


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Skips the checks of inputs: all runs here are of one program."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.5,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    with skip_input_checks():
        yield
    for name, value in before.items():
        jax.config.update(name, value)


def _params(records, strategy):
    """Returns QuickThought with dropout, batches of one length, a checkpoint every second step."""
    often = {"steps_per_loop": 1, "summary_interval": 1}
    params = tiny_run(records, _STEPS, "quick_thought", **often)
    task = {
        "train_data": {"bucket_boundaries": [32]},
        "encoder": {"dropout_rate": 0.2, "attention_dropout_rate": 0.2},
    }
    return params.replace(task=task, runtime={"distribution_strategy": strategy})


def _train_until_stop(folder, records, strategy, monkeypatch):
    with monkeypatch.context() as patch:
        at_call(patch, TrainingProgress, "on_train", 3, ask_to_stop)
        with pytest.raises(Stopped, match=f"stopped at step . of {_STEPS}, saved as"):
            run(_params(records, strategy), "train", str(folder))
    return folder


@pytest.fixture(scope="module")
def undisturbed(records_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pjrt") / "model"
    run(_params(records_dir, "pjrt"), "train_and_eval", str(folder))
    return folder


@pytest.mark.long
def test_a_run_leaves_what_every_run_leaves(undisturbed):
    """An encoder directory, a history with both splits, a summary with JAX's device."""
    assert SentenceEncoder.load(undisturbed).encode(["a cat sat"]).shape == (1, 16)
    lines = read_history(undisturbed / "history.jsonl")
    trained = [line for line in lines if line["split"] == "train"]
    assert [line["step"] for line in trained] == [1, 2, 3, 4, 5, 6] and len(lines) > 6
    assert all(line["tokens_per_second"] > 0 for line in trained)
    summary = json.loads((undisturbed / "train_summary.json").read_text())
    assert summary["completed"] and summary["steps"] == 6 and summary["tokens"] > 0
    assert summary["devices"] == [jax_loop.describe_device()]
    assert summary["versions"]["jax"] == jax.__version__


# Rounding of another compiler, which Adam enlarges where gradients are small.
_NEAR = {"rtol": 1e-4, "atol": 3e-4}


def _assert_equal(folder, undisturbed, **tolerances):
    prefixes = [each / f"ckpt-{_STEPS}" for each in (undisturbed, folder)]
    assert_same_checkpoints(prefixes, **tolerances)


@pytest.mark.long
@pytest.mark.parametrize("begun", ["pjrt", "one_device"])
def test_a_training_goes_on_with_the_other_loop(
    undisturbed, records_dir, tmp_path, monkeypatch, begun
):
    """A checkpoint of JAX's is one of TensorFlow's; `test_resume.py` has JAX's own resumption."""
    folder = _train_until_stop(tmp_path / "model", records_dir, begun, monkeypatch)
    other = "one_device" if begun == "pjrt" else "pjrt"
    with quick_runs() if other == "one_device" else contextlib.nullcontext():
        run(_params(records_dir, other), "train", str(folder))
    _assert_equal(folder, undisturbed, **_NEAR)


@pytest.mark.long
def test_a_device_that_is_lost(undisturbed, records_dir, tmp_path, monkeypatch):
    """One line; the checkpoint is intact and the same command goes on, bit for bit."""
    folder = tmp_path / "model"

    def lose():
        raise jax.errors.JaxRuntimeError("UNAVAILABLE: device lost\nmore")

    with monkeypatch.context() as patch:
        at_call(patch, jax_loop.JaxLoop, "_take", 4, lose)
        with pytest.raises(UserError) as caught:
            run(_params(records_dir, "pjrt"), "train", str(folder))
    text = str(caught.value)
    assert "UNAVAILABLE: device lost; the last good checkpoint is" in text and "ckpt-3;" in text
    assert text.endswith("; run the same command to resume") and "\n" not in text
    run(_params(records_dir, "pjrt"), "train", str(folder))
    _assert_equal(folder, undisturbed)


@pytest.mark.long
def test_too_little_memory(records_dir, tmp_path, monkeypatch):
    """The line says what to lower."""

    def full(*args):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")

    monkeypatch.setattr(jax_loop.JaxLoop, "_run", full)
    with pytest.raises(UserError, match=r"no checkpoint yet; lower task.train_data.global_batch"):
        run(_params(records_dir, "pjrt"), "train", str(tmp_path / "model"))


@pytest.mark.long
def test_a_non_finite_loss(records_dir, tmp_path):
    """The step is not applied, as by TensorFlow."""
    params = _params(records_dir, "pjrt")
    params.trainer.schedule.peak = 1e30
    with pytest.raises(UserError, match=r"^step [2-9]: loss .*; the step was not applied; "):
        run(params, "train", str(tmp_path / "model"))


def test_several_devices_are_refused():
    """In one line, before anything is built."""
    values = {"runtime": {"distribution_strategy": "pjrt", "num_gpus": 2}}
    with pytest.raises(UserError, match="num_gpus is 2.*one device; set it to 1"):
        runtime.resolve_runtime(registry.load("demo", params_override=json.dumps(values)))
