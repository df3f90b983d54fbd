"""Reads the weights of encoder directories into Keras models, and writes those of Keras models."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_arrays import EncoderWeights, Tensors
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, check_same
from official_cmlm.checkpoints.encoder_weights import (
    check_finite,
    read_weights,
    write_weights,
)
from official_cmlm.checkpoints.integrity import checkpoints_of, refuse_damage
from official_cmlm.checkpoints.training_checkpoint import (
    OBJECTIVES,
    layers_of,
    read_checkpoint,
    weights_of,
)
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride
from official_cmlm.modeling.language_model_head import build_language_model_head, head_variables
from official_cmlm.modeling.pooling import Projection
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel, encoder_variables
from official_cmlm.tokenization import Vocabulary


def checkpoint_of(path: str | os.PathLike) -> str:
    """Finds the prefix of a checkpoint: the newest one of a folder, or `path` if it is a prefix.

    Raises:
      UserError: without a checkpoint, or if files of the folder's newest one are missing.
    """
    path = os.fspath(path)
    prefixes = checkpoints_of(path)
    prefix = prefixes[0] if prefixes else path
    if prefixes and not tf.io.gfile.exists(f"{prefix}.index"):
        refuse_damage(prefix)
    if not tf.io.gfile.exists(f"{prefix}.index"):
        raise UserError(f"{path}: no checkpoint there; train first, or name another folder")
    return prefix


def non_finite(variables: Iterable[tf.Variable]) -> list[str]:
    """Returns the names of variables with a NaN or an infinity; each is checked on its device."""
    floating = [variable for variable in variables if variable.dtype.is_floating]
    # They are read together, so that the host waits for a device only once.
    finite = [tf.reduce_all(tf.math.is_finite(v.read_value())) for v in floating]
    flags = tf.stack(finite).numpy() if finite else ()
    return [variable.name for variable, good in zip(floating, flags) if not good]


def load_encoder(
    directory: EncoderDirectory,
    override: VectorOverride = OWN_VECTOR,
    max_seq_length: int | None = None,
) -> SentenceEncoderModel:
    """Rebuilds the encoder of an encoder directory with its latest weights.

    Args:
      directory: the encoder directory.
      override: the vector that the encoder returns. Default: its own.
      max_seq_length: length that texts will be cut to, in tokens. Default: the directory's own.

    Raises:
      UserError: if the directory has no such vector, or no undamaged vocabulary and checkpoint.
    """
    return model_of(read_weights(directory, override, max_seq_length))


def model_of(weights: EncoderWeights) -> SentenceEncoderModel:
    """Builds the Keras encoder of these weights."""
    model = SentenceEncoderModel(weights.config, random_weights=False)
    _assign_encoder(model, weights)
    return model


def save_weights(
    folder: str | os.PathLike,
    encoder: SentenceEncoderModel,
    head: tf_keras.layers.Layer | None = None,
    projections: Mapping[str, Projection] | None = None,
    checkpoint: str | None = None,
) -> None:
    """Writes `weights.safetensors` of Keras models.

    Args:
      folder: the encoder directory.
      encoder, head: the models.
      projections: the P of each objective that has one, by name.
      checkpoint: see `write_weights`.
    """
    objectives = {name: layers_of(projection) for name, projection in (projections or {}).items()}
    weights = weights_of(encoder, head)
    write_weights(Path(folder), weights, objectives=objectives, checkpoint=checkpoint)


def assign_weights(
    weights: EncoderWeights, model: SentenceEncoderModel, head: tf_keras.layers.Layer
) -> None:
    """Assigns weights with a language-model head to Keras models of their shape."""
    _assign_encoder(model, weights)
    _assign(head_variables(head), weights.head)


def _assign_encoder(model: SentenceEncoderModel, weights: EncoderWeights) -> None:
    _assign(encoder_variables(model), weights.encoder)
    if model.projection is not None:
        for name, index in (("kernels", 0), ("biases", 1)):
            for variable, layer in zip(getattr(model.projection, name), weights.projection):
                variable.assign(layer[index])


def restore_pretrained(
    path: str | os.PathLike,
    encoder: SentenceEncoderModel,
    head: tf_keras.layers.Layer | None,
    vocabulary: Vocabulary,
) -> bool:
    """Loads weights from an encoder directory, or from a checkpoint inside one, into a new model.

    The language-model head is loaded if both sides have one; returns whether it was.

    Raises:
      UserError: without a checkpoint, or if its encoder has another shape or vocabulary.
    """
    prefix = os.fspath(path)
    inside = os.path.exists(f"{prefix}.index")
    directory = EncoderDirectory.open(os.path.dirname(prefix) if inside else prefix)
    check_same(f"init_checkpoint {directory.path} holds", directory, encoder.config, vocabulary)
    if inside:
        weights, _ = read_checkpoint(prefix, directory.config)
        check_finite(prefix, weights.encoder | (weights.head or {}))
    else:
        weights = read_weights(directory, with_head=True)
    _assign_encoder(encoder, weights)
    if head is None or weights.head is None:
        return False
    _assign(head_variables(head), weights.head)
    return True


def restore_objectives(
    path: str | os.PathLike, objectives: dict[str, tf_keras.layers.Layer]
) -> set[str]:
    """Restores each objective whose weights a checkpoint holds with the same shapes.

    Args:
      path: a model directory or a checkpoint.
      objectives: name -> objective, as `MultiObjectiveModel` has them.

    Returns:
      The names of the restored objectives.
    """
    if EncoderDirectory.is_at(path) and EncoderDirectory.open(path).checkpoint is None:
        # An import has no objectives.
        return set()
    prefix = checkpoint_of(path)
    stored: dict[str, Counter] = {name: Counter() for name in objectives}
    for key, shape in tf.train.list_variables(prefix):
        name = key.removeprefix(OBJECTIVES).partition("/")[0]
        if key.startswith(OBJECTIVES) and name in stored and "OPTIMIZER_SLOT" not in key:
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


def build(weights: EncoderWeights) -> tuple[SentenceEncoderModel, tf_keras.layers.Layer | None]:
    """Builds the Keras encoder of these weights and its language-model head; None without one."""
    if weights.head is None:
        return model_of(weights), None
    model = SentenceEncoderModel(weights.config, random_weights=False)
    head = build_language_model_head(model)
    assign_weights(weights, model, head)
    return model, head


def _assign(variables: dict[str, tf.Variable], tensors: Tensors) -> None:
    if variables.keys() != tensors.keys():
        raise ValueError(
            f"weights got {sorted(tensors.keys() - variables.keys())} too many and "
            f"{sorted(variables.keys() - tensors.keys())} too few"
        )
    for name, variable in variables.items():
        variable.assign(tensors[name])
