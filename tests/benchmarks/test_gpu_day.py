"""The day on which there is a GPU, rehearsed on the CPU at a toy size."""

import json
import math
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from tests.binaries import ROOT
from tests.conftest import make_documents
from tests.evaluation.toy import write_senteval

pytest.importorskip("jax", reason="needs JAX: requirements-jax.txt")
_NAME = "benchmarks/gpu_day.sh"
_STUDY = ("cmlm", "quick_thought", "simcse", "mlm")


def _call(script, verb, folder, status=0, **variables):
    """Runs a verb with Python of these tests; returns what has come back."""
    environment = os.environ | {"TOY": "1", "PYTHON": sys.executable} | variables
    command = ["bash", str(script), verb, str(folder)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    path = folder / "back" / "results.json"
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.long
def test_the_whole_way_from_text_to_scores(tmp_path, vocabulary):
    """The other machine has neither TensorFlow nor this project; only `back` comes back."""
    words = [" ".join(each.paragraphs) for each in make_documents(80)]
    (tmp_path / "book.txt").write_text("\n\n".join(words))
    vocabulary.save(tmp_path)
    folder, returned = tmp_path / "folder", tmp_path / "returned"
    texts = {"TEXT": str(tmp_path / "book.txt"), "VOCAB": str(tmp_path / "vocab.txt")}
    _call(ROOT / _NAME, "prepare", folder, **texts)
    for name in ("tensorflow", "official_cmlm", "experiments"):
        (tmp_path / "without" / name).mkdir(parents=True)
        (tmp_path / "without" / name / "__init__.py").write_text("raise ImportError\n")
    there = {"PYTHONPATH": str(tmp_path / "without")}
    with_torch = bool(find_spec("torch") and find_spec("transformers"))
    parts = _call(folder / _NAME, "step", folder, 0 if with_torch else 1, **there)
    assert parts.keys() == {"base", "fused", "torch", "torch_no_masks"}
    for name in ("base", "fused", *("torch", "torch_no_masks") * with_torch):
        assert parts[name]["exit_status"] == 0 < parts[name]["milliseconds_a_step"]
    assert (folder / "back/trace.tgz.aa").exists()
    parts = _call(folder / _NAME, "study", folder, **there)
    for name in _STUDY:
        assert parts[name]["exit_status"] == 0 < parts[name]["step"] <= 20
        assert math.isfinite(parts[name]["training_loss"])
    shutil.copytree(folder / "back", returned / "back")
    write_senteval(tmp_path / "data/senteval/downstream")
    results = _call(ROOT / _NAME, "score", returned, DATA=str(tmp_path / "data"))
    for name in _STUDY:
        assert results[name].items() >= parts[name].items()
        assert {"STS-B spearman", "MR accuracy"} <= results[name]["scores"].keys()
    # All are encoders of different trainings.
    vectors = [SentenceEncoder.load(returned / "scored" / n).encode("a cat") for n in _STUDY]
    assert len({vector.tobytes() for vector in vectors}) == len(_STUDY)


def test_a_part_that_fails_is_named_and_the_others_run(tmp_path):
    """Three trainings are missing; the other begins anew, and keeps its compiled steps."""
    (tmp_path / "cmlm").mkdir()
    (tmp_path / "cmlm/state-9.npz").touch()
    (tmp_path / "cmlm/run_lowered.py").write_text(
        "import json, os, sys\nkept = os.environ['JAX_COMPILATION_CACHE_DIR']\n"
        "files = os.listdir(os.path.dirname(__file__))\n"
        "print(json.dumps({'kept': kept, 'files': files}))\nsys.exit(2)\n"
    )
    parts = _call(ROOT / _NAME, "study", tmp_path, 1)
    assert {name: part["exit_status"] for name, part in parts.items()} == dict.fromkeys(_STUDY, 2)
    assert parts["cmlm"]["kept"] == str(tmp_path / "compiled")
    assert parts["cmlm"]["files"] == ["run_lowered.py"]
    assert _call(ROOT / _NAME, "studies", tmp_path / "other", 1) == {}
