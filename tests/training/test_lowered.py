"""A lowered training, which runs without TensorFlow, against the training itself."""

import json
import shutil
import subprocess
import sys
import weakref

import numpy as np
import pytest

from experiments.lower import _PROGRAM
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training import lowered
from official_cmlm.training.progress import read_history
from official_cmlm.training.run import run
from tests.training.quick_runs import skip_input_checks
from tests.training.tiny_training import EVERY_STEP, tiny_run

pytest.importorskip("jax", reason="needs JAX: pip install jax")

_STEPS = 6
# Without TensorFlow and without this project; compiled steps are kept.
_ALONE = """
import runpy, sys
sys.modules |= dict.fromkeys(("tensorflow", "official_cmlm", "experiments"))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _params(records, **changes):
    params = tiny_run(records, _STEPS, **EVERY_STEP)
    encoder = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2}
    task = {"encoder": encoder, "validation_data": {"input_path": ""}, **changes}
    return params.replace(task=task, runtime={"distribution_strategy": "pjrt"})


def _train(folder, *arguments):
    command = [sys.executable, "-c", _ALONE, str(folder / _PROGRAM.name), "--report_every=1"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def _losses(folder):
    lines = read_history(folder / "history.jsonl")
    return {n["step"]: n["training_loss"] for n in lines if n["split"] == "train"}


@pytest.mark.long
def test_a_lowered_training_has_the_losses_and_weights_of_the_training(
    records_dir, tmp_path, monkeypatch
):
    """Two objectives, two lengths, dropout; by default every step has a batch of its own.

    Batches are written one by one. A training that stops and goes on ends with the same numbers,
    bit for bit.
    """
    arrays, held = [], []

    def narrow(array, narrow=lowered._narrow):
        held.append(sum(each() is not None for each in arrays))
        arrays.append(weakref.ref(narrowed := narrow(array)))
        return narrowed

    monkeypatch.setattr(lowered, "_narrow", narrow)
    copy, other = tmp_path / "copy", tmp_path / "other"
    with skip_input_checks():
        lowered.write_lowered(_params(records_dir), str(copy), _PROGRAM)
    assert max(held) <= 1 < len(held) / _STEPS
    shutil.copytree(copy, other)
    run(_params(records_dir), "train", str(tmp_path / "model"))
    for arguments in ((copy,), (other, "--steps=3"), (other, "--half")):
        _train(*arguments)
    expected, actual = _losses(tmp_path / "model"), _losses(copy)
    contents = json.loads((copy / "lowered.json").read_text())
    assert len(set(contents["batches"])) == 2
    assert list(actual) == [*range(1, _STEPS + 1)] and np.ptp([*expected.values()]) > 0.01
    np.testing.assert_allclose([*actual.values()], [*expected.values()], rtol=1e-6)
    name = f"state-{_STEPS}.npz"
    assert [path.name for path in other.glob("state-*")] == [name]
    with np.load(copy / name) as one, np.load(other / name) as two:
        assert len(one.files) == len(contents["variables"])
        for key in one.files:
            np.testing.assert_array_equal(one[key], two[key])
    stored = [(each / "weights.safetensors").read_bytes() for each in (copy, other)]
    assert [b"objectives/cmlm/projection" in each for each in stored] == [True, False]
    assert [b"language_model_head/" in each for each in stored] == [True, False]
    texts = ["a cat sat", "on the mat"]
    expected, *vectors = (
        SentenceEncoder.load(each).encode(texts) for each in (tmp_path / "model", copy, other)
    )
    np.testing.assert_allclose(vectors[0], expected, rtol=1e-5, atol=1e-6)
    # 16 bits keep three digits.
    np.testing.assert_allclose(vectors[1], expected, rtol=0.02, atol=0.01)


def test_a_folder_is_not_written_over_and_given_weights_are_not_drawn(tmp_path):
    (tmp_path / lowered.CONTENTS).touch()
    with pytest.raises(UserError, match="holds a lowered training already"):
        lowered.write_lowered(_params(tmp_path), str(tmp_path), _PROGRAM)
    started = _params(tmp_path, init_checkpoint="model")
    with pytest.raises(UserError, match="are not random"):
        lowered.write_lowered(started, str(tmp_path / "other"), _PROGRAM, redraw=True)
