"""A training that is stopped, or killed, and goes on ends with the same weights, bit for bit."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.data_position import (
    CHECKPOINT_NAME,
    DataPositions,
    pad_to_size,
    read_positions,
)
from official_cmlm.inputs.plan import Plan
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, two_replicas, write_records
from tests.training.all_objectives import SETTINGS, records_of
from tests.training.helpers import DROPOUT, assert_same_checkpoints, data, task_config


def _epoch_of(position):
    return int(position[1]) >> 32


_BUCKETS = {"bucket_boundaries": [12, 16, 24], "shuffle_sentences": 60}
_ADAM = {
    "optimizer": {"type": "adamw", "adamw": {"weight_decay_rate": 0.01}},
    "learning_rate": {
        "type": "polynomial",
        "polynomial": {"initial_learning_rate": 0.01, "decay_steps": 50},
    },
}


def _task(folders):
    """Objectives at once, each with its own records, dropout and several buckets."""
    objectives = {}
    for name, config in SETTINGS.items():
        folder = records_of(folders, name)
        own = data(folder, **_BUCKETS) if folder.name != "documents" else None
        objectives[name] = config.replace(weight=0.5, train_data=own)
    # A step's result depends on its batch alone, but moving averages on all steps.
    objectives["contrastive"].projection_head = "batch_norm_mlp"
    documents = records_of(folders, "cmlm")
    config = task_config(
        documents,
        objectives,
        {"num_layers": 1, **DROPOUT},
        train_data=data(documents, seed=5, **_BUCKETS),
        validation_data=DataConfig(is_training=False),
    )
    return SentenceEncoderTask(config)


class _Run:
    """One process's part of a training: what is lost when it stops, all but the checkpoint."""

    def __init__(self, folders, strategy, prefix=None):
        tf_keras.utils.set_random_seed(99 if prefix else 5)
        with strategy.scope():
            self.task = _task(folders)
            self.model = self.task.build_model()
            self.task.initialize(self.model)
            self.optimizer = self.task.create_optimizer(optimization.OptimizationConfig(_ADAM))
            _ = self.optimizer.iterations
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, **self.model.checkpoint_items
        )
        reached = {}
        if prefix:
            reached = read_positions(prefix, self.task.training_data())
            assert not self.task.resume_notes(reached, strategy.num_replicas_in_sync)
            self.checkpoint.read(prefix)
        params = self.task.task_config.train_data
        inputs = strategy.distribute_datasets_from_function(
            lambda context: self.task.build_inputs(params, context, reached)
        )
        self._iterator, self._strategy = iter(inputs), strategy

    def _one_step(self):
        def replica(batch):
            return self.task.train_step(batch, self.model, self.optimizer)["loss"]

        # Not traced: tracing eight objectives takes longer than their few steps.
        losses = self._strategy.run(replica, args=(next(self._iterator),))
        return self._strategy.reduce("mean", losses, axis=None)

    def steps(self, count):
        return [float(self._one_step()) for _ in range(count)]


@pytest.mark.long
def test_goes_on_to_the_same_weights(folders, tmp_path):
    """On two devices, stopped between two steps: all objectives, each with its own records."""
    strategy = two_replicas()
    whole = _Run(folders, strategy)
    (first,) = whole.steps(1)
    prefix = whole.checkpoint.write(str(tmp_path / "one"))
    (second,) = whole.steps(1)
    again = _Run(folders, strategy, prefix)
    assert again.steps(1) == [second] != [first]
    for one, other in zip(whole.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_other_data_begin_anew(folders, tmp_path):
    """Other data or settings, or a checkpoint without a position, begin anew."""
    config = task_config(records_of(folders, "mlm"), {"mlm": SETTINGS["mlm"]})
    task = SentenceEncoderTask(config)
    (group,) = task.train_groups
    plan = Plan.of(group.data, task.manifest(group.data), group.view)
    positions, third_block = DataPositions(["mlm"]), tf.constant([plan.fingerprint, 3], tf.int64)
    positions.take({"mlm": {"position": pad_to_size(third_block)}})
    prefix = tf.train.Checkpoint(**{CHECKPOINT_NAME: positions.variables}).write(
        str(tmp_path / "one")
    )
    reached = read_positions(prefix, ["mlm"])
    assert task.resume_notes(reached, 1) == []
    config.train_data.seed = 6
    (line,) = SentenceEncoderTask(config).resume_notes(reached, 1)
    assert line.startswith("mlm: ") and "batch sizes differ from those of the checkpoint" in line
    bare = tf.train.Checkpoint(step=tf.Variable(1)).write(str(tmp_path / "bare"))
    (line,) = task.resume_notes(read_positions(bare, ["mlm"]), 1)
    assert "the checkpoint has no data position" in line


def _train_killed(folder, kills, *records, strategy="one_device"):
    """Prefixes of the last checkpoints: of an undisturbed training, of one that was killed."""
    folders = [str(folder / name) for name in ("undisturbed", "disturbed")]
    first, *second = map(str, records)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.training.killed_training"),
            *(first, *folders, str(kills), "1", strategy, *second),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    killed = int(done.stdout.split()[-2])
    # One that was to be killed may have been faster.
    assert killed >= 0.8 * kills - 1, done.stdout
    return [tf.train.latest_checkpoint(each) for each in folders]


@pytest.mark.long
def test_killed_ten_times(records_dir, tmp_path):
    """At random moments, also while a checkpoint is written: every number is equal, bit for bit."""
    assert_same_checkpoints(_train_killed(tmp_path, 10, records_dir))


@pytest.mark.long
def test_killed_on_two_devices_with_two_groups(records_dir, tmp_path, vocabulary):
    """Groups with batches of different size pass from one epoch to the next at different steps."""
    second = tmp_path / "second"
    write_records(second, make_documents(50, seed=9), vocabulary)
    prefixes = _train_killed(tmp_path, 4, records_dir, second)
    assert_same_checkpoints(prefixes)
    reached = read_positions(prefixes[0], ("cmlm", "mlm"))
    epochs = {name: _epoch_of(position) for name, position in reached.items()}
    assert epochs["cmlm"] >= 1 and epochs["mlm"] > epochs["cmlm"]


@pytest.mark.long
def test_killed_on_jax(records_dir, tmp_path, monkeypatch):
    """The newest weights are on JAX's device until a checkpoint asks for them."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))
    assert_same_checkpoints(_train_killed(tmp_path, 6, records_dir, strategy="pjrt"))
