"""The loop of a lowered training, in this process, on a step that JAX alone has made."""

import json
import shutil
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from tests.binaries import call

jax = pytest.importorskip("jax", reason="needs JAX: requirements-jax.txt")

from experiments import run_lowered  # noqa: E402
from official_cmlm.training.lowered import _describe  # noqa: E402


def _lower(folder):
    """Writes a training that adds each batch to two weights; its metric `norm` never counts."""
    shapes = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((2,), (), (2,))]
    step = jax.jit(lambda new, old, batch: ([new[0] + batch[0], new[1] + 4], new[0][:1]))
    exported = jax.export.export(step, platforms=["cpu"])(shapes[:2], [], shapes[2:])
    filled = [([2], 0.0), ([], 0.0), ([], 0.0), ([], -1.0), ([2], 0.0)]
    contents = {
        "train_steps": 9,
        "ahead": 3,
        "compiler_options": {},
        "batches": [0] * 3,
        "variables": [{"shape": s, "fill": value, "dtype": "float32"} for s, value in filled],
        "steps": [{"updated": [0, 1], "read": []}],
        "names": ["x"],
        "metrics": {"norm": [2, 2], "tokens": [1]},
        "guard": [3, 4],
        "weights": {"weight": 0},
    }
    folder.mkdir()
    (folder / "lowered.json").write_text(json.dumps(contents))
    (folder / "step_0_cpu.bin").write_bytes(exported.serialize())
    np.savez(folder / "state.npz")
    np.savez(folder / "batches.npz", **{f"{i}/0": np.float32([i / 3, 1]) for i in range(3)})


@pytest.fixture
def folder(tmp_path):
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    _lower(tmp_path / "folder")
    yield tmp_path / "folder"
    for number, handler in kept.items():
        signal.signal(number, handler)


def _train(folder, *flags):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["run_lowered.py", str(folder), *flags])
        run_lowered.main()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_in_the_traced_interval_leaves_a_trace_and_a_state(folder, number, monkeypatch):
    """The training then goes on bit for bit."""
    other, read = shutil.copytree(folder, folder.with_name("other")), run_lowered.Training.read

    def interrupt(self, step):
        if step == 4:
            signal.raise_signal(number)
        return read(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(run_lowered.Training, "read", interrupt)
        _train(folder, f"--profile={folder / 'trace'}")
    (state,) = folder.glob("state-*")
    assert state.name in ("state-4.npz", "state-5.npz")
    assert [*(folder / "trace").rglob("*.xplane.pb")]
    _train(folder)
    _train(other)
    with np.load(folder / "state-9.npz") as one, np.load(other / "state-9.npz") as two:
        np.testing.assert_array_equal(one["0"], two["0"])


def test_a_kill_before_the_state_is_written_leaves_the_weights(folder, monkeypatch):
    def replace(source, target, replace=run_lowered.os.replace):
        if "state-" in str(target):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(run_lowered.os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        _train(folder)
    assert (folder / "weights.safetensors").exists()


def test_a_finished_training_keeps_its_figures(folder, capsys):
    _train(folder)
    summary = (folder / "train_summary.json").read_text()
    _train(folder)
    assert (folder / "train_summary.json").read_text() == summary
    assert "no step is done; it is at step 9 of 9" in capsys.readouterr().out


def test_the_history_has_seconds_since_the_start_and_no_mean_of_nothing(folder, monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(run_lowered, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    _train(folder, "--report_every=2")
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 4, 6, 8, 9]
    assert {line["norm"] for line in lines} == {None}
    assert (np.diff([line["seconds"] for line in lines]) > 0).all()


@pytest.mark.parametrize("name", ["lowered.json", "batches.npz", "state-3.npz", "step_0_cpu.bin"])
def test_a_damaged_file_is_named_in_one_line(folder, name):
    (folder / name).write_bytes(b"PK")
    with pytest.raises(SystemExit, match=f"^error: .*folder: {name} is missing or damaged"):
        _train(folder)


def test_a_step_that_fails_ends_the_training(folder):
    np.savez(folder / "state.npz", **{"3": np.int64(1), "4": np.float32([np.nan, 2])})
    with pytest.raises(SystemExit, match="^error: step 1: loss nan, gradient norm 2; "):
        _train(folder)
    assert not (folder / "weights.safetensors").exists()


def test_a_device_that_fails_ends_the_training_in_one_line(folder, monkeypatch):
    def fail(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory\nmore")

    monkeypatch.setattr(jax, "device_put", fail)
    with pytest.raises(SystemExit, match="folder: RESOURCE_EXHAUSTED: Out of memory$"):
        _train(folder)


@pytest.mark.parametrize("flag", ["--steps=0", "--report_every=0"])
def test_intervals_are_at_least_one(folder, flag):
    with pytest.raises(SystemExit, match="must be at least 1$"):
        _train(folder, flag)


def test_the_step_is_that_of_jax_s_own_platform(folder, monkeypatch):
    monkeypatch.setattr(jax.export, "default_export_platform", lambda: "rocm")
    with pytest.raises(SystemExit, match="lower with --platforms=rocm"):
        _train(folder)


def test_a_platform_that_jax_does_not_know_is_refused_at_once(tmp_path, capsys):
    flags = f"--output_dir={tmp_path}", "--platforms=gpu"
    assert call("experiments.lower", "--experiment=demo", *flags) == 1
    assert "one of cpu, cuda, rocm, tpu" in capsys.readouterr().err


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_drawn_weights_have_the_mean_the_deviation_and_the_cut_of_the_layer_s(mean):
    """TensorFlow's own are cut at two deviations; each name draws others."""
    own = tf.random.stateless_truncated_normal([300, 200], [1, 2], mean, 0.02)
    variable = tf.Variable(own)
    (row,), stored = _describe([variable], {variable.ref()})
    assert not stored
    value = run_lowered.draw(row, "one")
    assert value.shape == own.shape and value.dtype == np.float32
    assert value.mean() == pytest.approx(mean, abs=3e-4)
    assert value.std() == pytest.approx(np.std(own), rel=0.01)
    assert np.abs(value - mean).max() == pytest.approx(0.04, rel=0.01)
    np.testing.assert_array_equal(value, run_lowered.draw(row, "one"))
    assert (value != run_lowered.draw(row, "two")).any()
