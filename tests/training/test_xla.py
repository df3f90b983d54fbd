"""The whole step compiles with XLA, as a TPU demands, and computes what it computes without."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.modeling import optimization

from official_cmlm.training.task import SentenceEncoderTask
from tests.modeling.helpers import randomize
from tests.training.all_objectives import SETTINGS, batch_of, records_of
from tests.training.helpers import task_config

_SGD = {
    "optimizer": {"type": "sgd", "sgd": {"momentum": 0.0}},
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 0.1}},
}
_DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}


def _step(folders, name, static, compiled):
    """Loss, metrics and weights after one step."""
    config = task_config(
        records_of(folders, name),
        {name: SETTINGS[name]},
        {"num_layers": 1, **_DROPOUT},
        static_shapes=static,
    )
    tf_keras.utils.set_random_seed(3)
    task = SentenceEncoderTask(config)
    model = randomize(task.build_model())
    optimizer = task.create_optimizer(optimization.OptimizationConfig(_SGD))
    _ = optimizer.iterations
    metrics = task.build_metrics()

    @tf.function(jit_compile=compiled)
    def step(features):
        return task.train_step(features, model, optimizer, metrics)["loss"]

    loss = step(batch_of(task, name))
    return [loss.numpy(), *(float(m.result()) for m in metrics), *model.get_weights()]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("cmlm", "contrastive") else pytest.mark.long)
        for name in SETTINGS
    ],
)
def test_compiled_step_equals_the_other(folders, name):
    """Loss, metrics and updated weights, with dropout on and static shapes."""
    compiled = _step(folders, name, static=True, compiled=True)
    plain = _step(folders, name, static=False, compiled=False)
    assert plain[0] > 0.1
    for found, expected in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
