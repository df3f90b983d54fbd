"""The head with batch normalisation against plain loops: steps, validation, replicas, restart."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.contrastive import ContrastiveConfig
from official_cmlm.objectives.projection_heads import BatchNormMlp
from tests.conftest import tiny_encoder_config, two_replicas
from tests.modeling.helpers import randomize
from tests.objectives.helpers import embed, make_batch, make_task, random_model, refuses, value
from tests.oracles import contrastive_numpy as oracle
from tests.training.helpers import task_config

CONFIG = ContrastiveConfig(
    projection_head="batch_norm_mlp", augmentation="word_deletion", temperature=0.5
)


class _Head:
    """DiffCSE's head for one row and one component at a time, by PyTorch's rules."""

    def __init__(self, layer):
        weights = layer.widen.kernel, layer.hidden_norm.gamma, layer.hidden_norm.beta
        self.wide, self.gamma, self.beta = (np.float64(weight) for weight in weights)
        self.narrow = np.float64(layer.narrow.kernel)
        norms = layer.hidden_norm, layer.norm
        self.means = [np.float64(norm.moving_mean) for norm in norms]
        self.variances = [np.float64(norm.moving_variance) for norm in norms]

    def _normalize(self, rows, norm, training):
        normalized = np.zeros_like(rows)
        for j in range(rows.shape[1]):
            mean, variance = self.means[norm][j], self.variances[norm][j]
            if training:
                mean = sum(rows[:, j]) / len(rows)
                squares = sum((x - mean) ** 2 for x in rows[:, j])
                variance = squares / len(rows)
                self.means[norm][j] += 0.1 * (mean - self.means[norm][j])
                unbiased = squares / (len(rows) - 1)
                self.variances[norm][j] += 0.1 * (unbiased - self.variances[norm][j])
            for i in range(len(rows)):
                normalized[i, j] = (rows[i, j] - mean) / np.sqrt(variance + 1e-5)
        return normalized

    def __call__(self, rows, training):
        hidden = self._normalize(np.float64(rows) @ self.wide, 0, training)
        hidden = np.maximum(hidden * self.gamma + self.beta, 0)
        return self._normalize(hidden @ self.narrow, 1, training)


def _check_averages(layer, expected):
    for norm, mean, variance in zip(
        (layer.hidden_norm, layer.norm), expected.means, expected.variances, strict=True
    ):
        np.testing.assert_allclose(norm.moving_mean.numpy(), mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(norm.moving_variance.numpy(), variance, rtol=1e-4, atol=1e-5)


def test_steps_and_validation_equal_the_loops(records_dir, tmp_path):
    """Both views are normalised together; validation takes the averages and does not move them.

    A restored model validates as the one that was saved.
    """
    task = make_task(records_dir, "contrastive", CONFIG)
    model = random_model(task)
    layer = model.objectives["contrastive"].projection_head
    head = _Head(layer)
    for start, training in ((0, True), (8, True), (0, False), (8, None)):
        batch = make_batch(task, start=start)
        views = [embed(model, batch[name]) for name in ("first", "second")]
        expected = np.split(head(np.concatenate(views), bool(training)), 2)
        output = model({"contrastive": batch}, training=training)["contrastive"]
        loss = np.mean(oracle.simcse(*expected, 0.5))
        assert float(output.loss) == pytest.approx(loss, rel=1e-3)
        _check_averages(layer, head)
    prefix = tf.train.Checkpoint(model=model).write(str(tmp_path / "saved"))
    restored = task.build_model()
    tf.train.Checkpoint(model=restored).read(prefix).assert_consumed()
    again = restored({"contrastive": batch})["contrastive"]
    assert value(again, "contrastive_loss") == value(output, "contrastive_loss")


def test_replicas_share_the_statistics():
    """Outputs and averages are those of the whole batch; gradients: test_step_matrix.py."""
    rows = np.random.default_rng(3).normal(1.0, 2.0, [6, 16]).astype(np.float32)
    config = tiny_encoder_config()
    single = randomize(BatchNormMlp(config))
    expected = _Head(single)
    strategy = two_replicas()
    with strategy.scope():
        layer = BatchNormMlp(config)
    layer.set_weights(single.get_weights())
    halves = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(np.split(rows, 2)[context.replica_id_in_sync_group])
    )
    outputs = strategy.run(lambda half: layer(half, training=True), args=(halves,))
    outputs = np.concatenate([part.numpy() for part in outputs.values])
    np.testing.assert_allclose(outputs, expected(rows, True), rtol=1e-3, atol=1e-4)
    _check_averages(layer, expected)


def test_chunks_are_refused(records_dir):
    """Statistics of a chunk are not those of the batch."""
    task = task_config(records_dir, {"contrastive": CONFIG}, chunk_size=4)
    refuses(task.check, "task.chunk_size is 4", "task.objectives.contrastive.projection_head")
    task.replace(chunk_size=0).check()
