"""A lowered training, which runs without TensorFlow, against the training itself."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from experiments.lower import _PROGRAM
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training.lowered import write_lowered
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


def _train(folder, *arguments, **options):
    command = [sys.executable, "-c", _ALONE, str(folder / _PROGRAM.name), "--report_every=1"]
    result = subprocess.run([*command, *arguments], capture_output=True, text=True, **options)
    return result


@pytest.fixture(scope="module")
def lowered(records_dir, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lowered") / "folder"
    with skip_input_checks():
        write_lowered(_params(records_dir), str(folder), _PROGRAM)
    return folder


@pytest.fixture
def copy(lowered, tmp_path):
    return shutil.copytree(lowered, tmp_path / "copy")


def _losses(folder):
    lines = read_history(folder / "history.jsonl")
    return {n["step"]: n["training_loss"] for n in lines if n["split"] == "train"}


@pytest.mark.long
def test_a_lowered_training_has_the_losses_and_weights_of_the_training(copy, records_dir, tmp_path):
    """Two objectives, two lengths, dropout; by default every step has a batch of its own."""
    run(_params(records_dir), "train", str(tmp_path / "model"))
    result = _train(copy)
    assert result.returncode == 0, result.stderr
    expected, actual = _losses(tmp_path / "model"), _losses(copy)
    assert len(set(json.loads((copy / "lowered.json").read_text())["batches"])) == 2
    assert list(actual) == [*range(1, _STEPS + 1)] and np.ptp([*expected.values()]) > 0.01
    np.testing.assert_allclose([*actual.values()], [*expected.values()], rtol=1e-6)
    texts = ["a cat sat", "on the mat"]
    vectors = [SentenceEncoder.load(each).encode(texts) for each in (copy, tmp_path / "model")]
    np.testing.assert_allclose(*vectors, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_a_lowered_training_goes_on_where_it_stopped(copy, tmp_path):
    """Bit for bit; another number of batches than of steps is read again."""
    contents = json.loads((copy / "lowered.json").read_text())
    contents["batches"] = contents["batches"][:4]
    (copy / "lowered.json").write_text(json.dumps(contents))
    other = shutil.copytree(copy, tmp_path / "other")
    assert _train(copy).returncode == 0
    assert _train(other, "--steps=3").returncode == _train(other, "--half").returncode == 0
    name = f"state-{_STEPS}.npz"
    assert [path.name for path in other.glob("state-*")] == [name]
    with np.load(copy / name) as one, np.load(other / name) as two:
        assert len(one.files) == len(contents["variables"])
        for key in one.files:
            np.testing.assert_array_equal(one[key], two[key])
    stored = [(each / "weights.safetensors").read_bytes() for each in (copy, other)]
    assert [b"objectives/cmlm/projection" in each for each in stored] == [True, False]
    assert [b"language_model_head/" in each for each in stored] == [True, False]
    # 16 bits keep three digits.
    vectors = [SentenceEncoder.load(each).encode(["a cat sat"]) for each in (copy, other)]
    np.testing.assert_allclose(*vectors, rtol=0.02, atol=0.01)


@pytest.mark.long
def test_a_step_that_fails_ends_a_lowered_training(copy):
    """In one line; the weights stay those of the checkpoint before."""
    state = dict(np.load(copy / "state.npz"))
    weights = json.loads((copy / "lowered.json").read_text())["weights"]
    state[str(weights["word_embeddings/embeddings"])][:] = np.nan
    np.savez(copy / "state.npz", **state)
    result = _train(copy, "--steps=2")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("error: step 1: loss nan")
    assert not (copy / "weights.safetensors").exists()


def test_weights_that_are_drawn_elsewhere_have_the_same_deviation(records_dir, tmp_path):
    folder = tmp_path / "folder"
    params = _params(records_dir, encoder={"hidden_size": 128, "intermediate_size": 128})
    with skip_input_checks():
        write_lowered(params, str(folder), _PROGRAM, 1, (), redraw=True)
        with pytest.raises(UserError, match="holds a lowered training already"):
            write_lowered(params, str(folder), _PROGRAM)
        started = params.replace(task={"init_checkpoint": "model"})
        with pytest.raises(UserError, match="are not random"):
            write_lowered(started, str(tmp_path / "other"), _PROGRAM, redraw=True)
    from experiments.run_lowered import draw

    rows = json.loads((folder / "lowered.json").read_text())["variables"]
    drawn = [row for row in rows if "normal" in row]
    assert len(drawn) > 5
    for row in drawn:
        value = draw(row, 0, "one")
        assert list(value.shape) == row["shape"] and value.dtype == row["dtype"]
        np.testing.assert_array_equal(value, draw(row, 0, "one"))
        assert (value != draw(row, 0, "two")).any() and (value != draw(row, 1, "one")).any()
        assert value.std() == pytest.approx(row["normal"][1], rel=0.05)
