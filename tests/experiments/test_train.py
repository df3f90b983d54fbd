"""The end of a training, as its user reads it."""

import pytest

from official_cmlm import cli
from tests.binaries import call


@pytest.mark.parametrize("is_drawn", [True, False])
def test_last_lines_name_encoder_curve_and_next_command(is_drawn, tmp_path, monkeypatch, capsys):
    """Another program that runs the training as a part of its job has last lines of its own."""
    folder = tmp_path / "my model"
    folder.mkdir()
    if is_drawn:
        (folder / "training_curve.png").touch()
    monkeypatch.setattr("official_cmlm.training.run.run", lambda *_: None)
    request = ["--experiment=cmlm/tiny", "--mode=train", f"--model_dir={folder}"]
    assert call("experiments.train", *request) == 0
    encoder, curve, after = capsys.readouterr().err.splitlines()[-3:]
    assert encoder == f"encoder: {folder}"
    assert (f"{folder}/training_curve.png" if is_drawn else f"{folder}/history.jsonl") in curve
    assert after == f"next:    cmlm export '{folder}' --to=tfhub"
    with cli.keep_reason():
        assert call("experiments.train", *request) == 0
    assert "next:" not in capsys.readouterr().err
