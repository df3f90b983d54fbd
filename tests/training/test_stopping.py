"""How a training ends before its time, and what it leaves: signals, damage, a full disk, a NaN."""

import json
import re
import resource
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.checkpoints.integrity import latest_good_checkpoint
from official_cmlm.common.errors import Stopped, UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training.non_finite import FiniteGuard
from official_cmlm.training.progress import TrainingProgress, read_history
from official_cmlm.training.run import run
from tests.training.quick_runs import ask_to_stop, at_call, quick_runs
from tests.training.tiny_training import tiny_run

# How a run ends does not depend on what it trains.
_ONLY = "quick_thought"


@pytest.fixture
def quick():
    """Nor on how its steps are computed; the long tests trace them."""
    with quick_runs():
        yield


def _summary(folder):
    return json.loads((folder / "train_summary.json").read_text())


def _damage(path):
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.long
def test_a_signal_inside_a_long_loop_and_going_on(records_dir, tmp_path, monkeypatch, capfd):
    """A few of a million steps are taken; the same command goes on, past a damaged checkpoint."""
    folder = tmp_path / "model"
    with monkeypatch.context() as patch:
        # Asked for after each piece of the loop.
        at_call(patch, FiniteGuard, "failure", 3, ask_to_stop)
        million = {"steps_per_loop": 10**6, "summary_interval": 10**6, "checkpoint_interval": 10**6}
        params = tiny_run(records_dir, 10**6, **million)
        with pytest.raises(
            Stopped, match="stopped at step .* run the same command to resume"
        ) as caught:
            run(params, "train_and_eval", str(folder))
    first = _summary(folder)
    step = first["step"]
    assert 3 <= step < 1000 and f"step {step} of 1000000, saved as {folder}" in str(caught.value)
    assert not first["completed"] and first["steps"] == step
    assert first["checkpoint"] == str(folder / f"ckpt-{step}")
    assert "a second signal stops at once" in capfd.readouterr().err

    params = tiny_run(records_dir, step + 2, checkpoint_interval=2)
    run(params, "train", str(folder))
    second = _summary(folder)
    assert second["completed"] and (second["step"], second["steps"]) == (step + 2, 2)
    assert 16 <= second["examples"] <= 64 and second["tokens"] > second["examples"]
    assert 0 < second["padding_share"] < 1 and 0 <= second["waiting_share"] <= 1
    assert second["loss"] > 0 and second["gradient_norm"] > 0 and second["learning_rate"] > 0
    assert second["peak_memory_mib"] > 100 and second["replicas"] == len(second["devices"]) == 1
    assert second["versions"]["tensorflow"] == tf.__version__
    # From the beginning of the run, so more than its steps took; tiny steps are not compiled.
    assert second["seconds_to_first_step"] > 0 and second["compiled"] is False

    _damage(folder / f"ckpt-{step + 2}.data-00000-of-00001")
    with pytest.raises(UserError, match=f"ckpt-{step + 2}: damaged .*resume the training"):
        SentenceEncoder.load(folder)
    with pytest.raises(UserError, match=f"ckpt-{step + 2}: damaged"):
        run(params, "eval", str(folder))
    capfd.readouterr()
    run(params, "train", str(folder))
    assert f"ckpt-{step + 2}: damaged" in (err := capfd.readouterr().err)
    assert f"resuming from ckpt-{step}" in err
    assert _summary(folder)["steps"] == 2
    assert SentenceEncoder.load(folder).encode(["a cat sat"]).shape == (1, 16)


@pytest.mark.long
def test_a_stop_during_the_evaluation(records_dir, tmp_path, monkeypatch):
    """The steps before it are saved; the next run begins with the evaluation.

    Here an average of the weights is evaluated, which then replaces them in the model.
    """
    from official_cmlm.training.trainer import Trainer

    weights, averages = [], []

    def params():
        made = tiny_run(records_dir, 4, _ONLY, validation_interval=2, checkpoint_interval=100)
        ema = {"average_decay": 0.5, "dynamic_decay": False}
        return made.replace(trainer={"optimizer_config": {"ema": ema}})

    folder = str(tmp_path / "model")
    with monkeypatch.context() as patch:
        begin = Trainer.eval_begin

        def ask_first(self):
            variables = self.model.encoder.trainable_variables
            weights.extend(v.numpy() for v in variables)
            ask_to_stop()
            begin(self)
            averages.extend(v.numpy() for v in variables)

        patch.setattr(Trainer, "eval_begin", ask_first)
        with pytest.raises(
            Stopped, match="stopped at step 2 of 4, saved as .*ckpt-2; run the same"
        ):
            run(params(), "train_and_eval", folder)
    assert _history(folder) == [("train", 2)]
    names = [name for name, _ in tf.train.list_variables(f"{folder}/ckpt-2") if "SLOT" not in name]
    stored = [tf.train.load_variable(folder, name) for name in names if "OBJECT" not in name]

    def is_stored(value):
        # Model Garden swaps by sums and differences, which round.
        near = (np.allclose(value, v, rtol=0, atol=1e-6) for v in stored if v.shape == value.shape)
        return any(near)

    assert all(map(is_stored, weights)) and not all(map(is_stored, averages))
    run(params(), "train_and_eval", folder)
    assert _history(folder)[1:] == [("validation", 2), ("train", 4), ("validation", 4)]


def _history(folder):
    lines = read_history(Path(folder) / "history.jsonl")
    return [(line["split"], line["step"]) for line in lines]


@pytest.mark.usefixtures("quick")
def test_a_stop_before_the_first_step(records_dir, tmp_path, monkeypatch):
    """A stop while the model is built saves nothing and does not look like a crash."""
    from official_cmlm.training.task import SentenceEncoderTask

    at_call(monkeypatch, SentenceEncoderTask, "build_model", 1, ask_to_stop)
    with pytest.raises(Stopped, match="stopped at step 0 of 4, nothing to save; .* start again"):
        run(tiny_run(records_dir, 4, _ONLY), "train", str(tmp_path / "model"))
    assert not list((tmp_path / "model").glob("ckpt*"))


@pytest.mark.usefixtures("quick")
def test_a_full_disk(records_dir, tmp_path, monkeypatch):
    """Writes fail for real from the fourth step on; the checkpoint before them is good."""
    folder, before = tmp_path / "model", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))

    at_call(monkeypatch, TrainingProgress, "on_train", 2, fill)
    try:
        with pytest.raises(UserError) as caught:
            run(tiny_run(records_dir, 8, _ONLY), "train", str(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    message = str(caught.value)
    assert "\n" not in message and f"{folder}: cannot be written (File too large, " in message
    assert (
        "MiB free); the last good checkpoint is" in message and "ckpt-2; free disk space" in message
    )
    assert not list(folder.glob("*_temp"))
    assert latest_good_checkpoint(folder) == str(folder / "ckpt-2")


@pytest.mark.usefixtures("quick")
def test_a_non_finite_loss_stops_the_training(records_dir, tmp_path):
    """The step is named; nothing of it is saved."""
    folder = tmp_path / "model"
    often = {"steps_per_loop": 1, "summary_interval": 1, "checkpoint_interval": 1}
    params = tiny_run(records_dir, 40, _ONLY, **often)
    params.trainer.schedule.override({"type": "constant", "peak": 1e32})
    with pytest.raises(UserError, match=r"^step \d+: loss .* not applied; .*lower the") as caught:
        run(params, "train", str(folder))
    message, latest = str(caught.value), tf.train.latest_checkpoint(str(folder))
    step = int(re.match(r"step (\d+): ", message)[1])
    # Four steps of warm-up, the first at 0.
    assert "\n" not in message and f"learning rate {(step - 1) * 2.5e31:g}; " in message
    assert latest.endswith(f"ckpt-{step - 1}") and latest in message
    reader = tf.train.load_checkpoint(latest)
    for name in reader.get_variable_to_shape_map():
        if name.startswith("encoder/") and "SLOT" not in name:
            values = reader.get_tensor(name)
            assert values.dtype.kind != "f" or np.isfinite(values).all()
