"""A training that is stopped and goes on ends with the same weights, bit for bit."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.data_position import (
    CHECKPOINT_NAME,
    DataPositions,
    padded,
    read_positions,
)
from official_cmlm.inputs.plan import Plan
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import mirrored_strategy
from tests.training.all_objectives import SETTINGS, records_of
from tests.training.helpers import data, task_config

_BUCKETS = {"bucket_boundaries": [12, 16, 24], "shuffle_sentences": 60}
_DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}
_ADAM = {
    "optimizer": {"type": "adamw", "adamw": {"weight_decay_rate": 0.01}},
    "learning_rate": {
        "type": "polynomial",
        "polynomial": {"initial_learning_rate": 0.01, "decay_steps": 50},
    },
}


def _task(folders, names):
    """Objectives at once, each with its own records, dropout and several buckets."""
    objectives = {}
    for name in names:
        config = SETTINGS[name]
        folder = records_of(folders, name)
        own = data(folder, **_BUCKETS) if folder.name != "documents" else None
        objectives[name] = config.replace(weight=0.5, train_data=own)
    documents = records_of(folders, "cmlm")
    config = task_config(
        documents,
        objectives,
        {"num_layers": 1, **_DROPOUT},
        train_data=data(documents, seed=5, **_BUCKETS),
        validation_data=DataConfig(is_training=False),
    )
    return SentenceEncoderTask(config)


class _Run:
    """One process's part of a training: what is lost when it stops, all but the checkpoint."""

    def __init__(self, folders, strategy, names, prefix=None):
        tf_keras.utils.set_random_seed(99 if prefix else 5)
        with strategy.scope():
            self.task = _task(folders, names)
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
@pytest.mark.parametrize(
    ("names", "before", "after"),
    [(tuple(SETTINGS), 1, 1), (("quick_thought", "bitext_retrieval"), 3, 12)],
    ids=["all", "for-an-epoch"],
)
def test_goes_on_to_the_same_weights(folders, tmp_path, names, before, after):
    """On two devices, stopped between steps: all objectives, and two for longer."""
    strategy = mirrored_strategy()
    whole = _Run(folders, strategy, names)
    losses = whole.steps(before)
    prefix = whole.checkpoint.write(str(tmp_path / "one"))
    losses += whole.steps(after)
    again = _Run(folders, strategy, names, prefix)
    found = again.steps(after)
    assert found == losses[before:]
    assert len(set(losses)) == before + after
    for one, other in zip(whole.model.weights, again.model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    if after > 1:
        assert max(again.model.data_positions.epochs().values()) >= 1


def test_begins_anew_with_a_word(folders, tmp_path):
    """Other data or settings, or a checkpoint without a position, begin anew."""
    config = task_config(records_of(folders, "mlm"), {"mlm": SETTINGS["mlm"]})
    task = SentenceEncoderTask(config)
    (group,) = task.train_groups
    plan = Plan.of(group.data, task.manifest(group.data), group.view)
    positions, third_block = DataPositions(["mlm"]), tf.constant([plan.fingerprint, 3], tf.int64)
    positions.take({"mlm": {"position": padded(third_block)}})
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
