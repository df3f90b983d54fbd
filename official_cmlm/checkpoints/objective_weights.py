"""Restores weights of objectives, e.g. CMLM's projection, when a chain of experiments continues."""

import os
from collections import Counter

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_directory import checkpoint_of

# Where a training's checkpoint keeps them.
_PREFIX = "model/objectives/"


def restore_objectives(
    path: str | os.PathLike, objectives: dict[str, tf_keras.layers.Layer]
) -> set[str]:
    """Restores the objectives that a checkpoint also holds, with weights of the same shapes.

    Args:
      path: a model directory or a checkpoint.
      objectives: name -> objective, as `MultiObjectiveModel` has them.

    Returns:
      The names of those that were restored.
    """
    prefix = checkpoint_of(path)
    stored: dict[str, Counter] = {name: Counter() for name in objectives}
    for key, shape in tf.train.list_variables(prefix):
        name = key.removeprefix(_PREFIX).partition("/")[0]
        if key.startswith(_PREFIX) and name in stored and "OPTIMIZER_SLOT" not in key:
            stored[name][tuple(shape)] += 1
    same = {
        name: objective
        for name, objective in objectives.items()
        if objective.own_weights()
        and stored[name] == Counter(tuple(v.shape) for v in objective.own_weights())
    }
    if same:
        layers = tf.train.Checkpoint(**same)
        root = tf.train.Checkpoint(model=tf.train.Checkpoint(objectives=layers))
        root.read(prefix).assert_existing_objects_matched().expect_partial()
    return set(same)
