"""A step on four logical devices against one: a script, as a process has but one set of devices."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

from official_cmlm.tokenization import load_vocabulary
from tests.modeling.helpers import randomize
from tests.training.all_objectives import batch_of, task_of, write_folders

NAMES = ("bitext_retrieval", "cmlm", "contrastive")
_DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2}


def _trained(folder: Path, name: str, strategy: tf.distribute.Strategy) -> list[np.ndarray]:
    """Returns the loss and the weights after a step of plain gradient descent."""
    tf_keras.utils.set_random_seed(1)
    count = strategy.num_replicas_in_sync
    with strategy.scope():
        task = task_of(folder, name, _DROPOUT)
        model = randomize(task.build_model())
        optimizer = tf_keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    whole = batch_of(task, name)
    parts = [
        tf.nest.map_structure(lambda x, i=i: tf.split(x, count, axis=0)[i], whole)
        for i in range(count)
    ]
    features = strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group]
    )

    @tf.function
    def step(features: dict) -> tf.Tensor:
        losses = strategy.run(
            lambda batch: task.train_step(batch, model, optimizer)["loss"], args=(features,)
        )
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    return [step(features).numpy(), *model.get_weights()]


def main() -> None:
    """Args: folder of a vocabulary, folder to work in."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    folder = write_folders(Path(sys.argv[2]), load_vocabulary(sys.argv[1]))
    four = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(4)])
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    for name in NAMES:
        expected, found = _trained(folder, name, one), _trained(folder, name, four)
        for got, value in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-5, err_msg=name)
        print(f"{name}: loss {expected[0]:.4f}, {len(expected) - 1} weights equal")


if __name__ == "__main__":
    main()
