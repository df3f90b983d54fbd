"""An objective outside of the package: `--import_module`, an experiment file, in chunks and not."""

import json
import subprocess
import sys

import numpy as np
import pytest

from official_cmlm.cli import import_user_module
from official_cmlm.errors import UserError
from tests.docs.pages import ROOT

# The program under test is examples/own_objective.py. The objective must be known before the
# configuration's classes are made, so it is trained in a process of its own.
_TRAIN = """
import json, sys
from experiments import registry
from official_cmlm.cli import import_user_module

import_user_module("examples.own_objective", "")
import tensorflow as tf
import tf_keras
from official_cmlm.training.task import SentenceEncoderTask

overrides = json.loads(sys.argv[1])
results = []
for chunk_size in (0, 3):
    overrides["task"]["chunk_size"] = chunk_size
    config = registry.load("examples/own_objective.yaml", params_override=json.dumps(overrides))
    tf_keras.utils.set_random_seed(1)
    task = SentenceEncoderTask(config.task)
    model = task.build_model()
    task.initialize(model)
    optimizer = task.create_optimizer(config.trainer.optimization())
    metrics = task.build_metrics()
    batches = iter(task.build_inputs(config.task.train_data))
    # Eagerly: to compile the step of chunks would take most of the test.
    losses = [
        float(task.train_step(next(batches), model, optimizer, metrics)["loss"]) for _ in range(2)
    ]
    norms = [float(tf.norm(v)) for v in model.trainable_variables]
    measured = {m.name: float(m.result()) for m in metrics}
    results.append({"losses": losses, "norms": norms, "metrics": measured})
json.dump(results, sys.stdout)
"""


@pytest.mark.long
def test_it_trains_equally_in_chunks(records_dir):
    """Some steps with dropout: the same losses, metrics and weights, whole and in chunks of 3."""
    data = {
        "input_path": str(records_dir),
        "seq_length": 24,
        "bucket_boundaries": [24],
        "global_batch_size": 8,
        "max_bucket_batch_size": 8,
    }
    encoder = {
        "num_layers": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "max_position_embeddings": 24,
    }
    overrides = {
        "task": {"encoder": encoder, "train_data": data},
        "trainer": {"schedule": {"peak": 0.01, "warmup_steps": 1}},
    }
    done = subprocess.run(
        [sys.executable, "-c", _TRAIN, json.dumps(overrides)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    whole, chunked = json.loads(done.stdout)
    np.testing.assert_allclose(chunked["losses"], whole["losses"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(chunked["norms"], whole["norms"], rtol=1e-4, atol=1e-5)
    assert np.isfinite(whole["losses"]).all() and len(set(whole["losses"])) == 2
    for name, value in whole["metrics"].items():
        assert chunked["metrics"][name] == pytest.approx(value, rel=1e-3, abs=1e-5)
    assert {"alignment_uniformity/alignment", "alignment_uniformity/uniformity"} <= set(
        whole["metrics"]
    )


def test_it_is_short():
    """The lines that a user has to write, both files together."""
    files = [ROOT / "examples" / f"own_objective.{kind}" for kind in ("py", "yaml")]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) < 100


def test_a_module_that_cannot_be_imported(tmp_path, monkeypatch):
    """One line with the name and the reason, whatever the module raises."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_objective.py").write_text("raise RuntimeError('no luck')\n")
    with pytest.raises(UserError, match=r"broken_objective: cannot be .* no luck\); try again"):
        import_user_module("broken_objective", "try again")
    with pytest.raises(UserError, match="no_such_objective: cannot be imported"):
        import_user_module("no_such_objective", "try again")
