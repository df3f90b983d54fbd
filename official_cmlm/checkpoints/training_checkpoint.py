"""Reads the encoder of a training's checkpoint by TensorFlow, as arrays."""

import re
from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_arrays import EncoderWeights, Layers, Tensors
from official_cmlm.checkpoints.encoder_directory import architecture_error
from official_cmlm.checkpoints.integrity import VALUE
from official_cmlm.common.errors import guard_reader
from official_cmlm.common.files import refuse_special
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.modeling.language_model_head import build_language_model_head, head_variables
from official_cmlm.modeling.pooling import Projection
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel, encoder_variables

# Prefix of the weights of objectives.
OBJECTIVES = "model/objectives/"
_FIRST_KERNEL = re.compile(rf"{OBJECTIVES}([^/]+)/projection/kernel_0{VALUE}")


@guard_reader("copy it again, or resume the training")
def read_checkpoint(prefix: str, config: EncoderConfig) -> tuple[EncoderWeights, dict[str, Layers]]:
    """Reads a checkpoint of a training.

    Args:
      prefix: the checkpoint.
      config: the config of its encoder.

    Returns:
      The encoder's weights, and the P of each objective that has one, by name.

    Raises:
      UserError: if the checkpoint is damaged, or its encoder is of another shape.
    """
    refuse_special(f"{prefix}.index")
    reader = tf.train.load_checkpoint(prefix)
    keys = reader.get_variable_to_shape_map()
    projections = _read_projections(reader, keys)
    encoder = SentenceEncoderModel(config, random_weights=False)
    items, head = {"encoder": encoder}, None
    if any(key.startswith("language_model_head/") for key in keys):
        items["language_model_head"] = head = build_language_model_head(encoder)
    try:
        status = tf.train.Checkpoint(**items).read(prefix)
        status.assert_existing_objects_matched().expect_partial()
    except (AssertionError, ValueError) as error:
        raise architecture_error(prefix, " ".join(str(error).split())[:160]) from None
    return weights_of(encoder, head), projections


def _read_projections(reader: Any, keys: Collection[str]) -> dict[str, Layers]:
    """Reads the projections of objectives from a checkpoint with these keys."""
    projections = {}
    for owner in {match[1] for match in map(_FIRST_KERNEL.fullmatch, keys) if match}:
        layers = projections[owner] = []
        place = f"{OBJECTIVES}{owner}/projection"
        while f"{place}/kernel_{len(layers)}{VALUE}" in keys:
            names = [f"{place}/{kind}_{len(layers)}{VALUE}" for kind in ("kernel", "bias")]
            layers.append(tuple(map(reader.get_tensor, names)))
    return projections


def weights_of(
    encoder: SentenceEncoderModel, head: tf_keras.layers.Layer | None = None
) -> EncoderWeights:
    """Returns the weights of a Keras encoder and of its head."""
    layers = [] if encoder.projection is None else layers_of(encoder.projection)
    arrays = _arrays_of(encoder_variables(encoder))
    head_arrays = None if head is None else _arrays_of(head_variables(head))
    return EncoderWeights(encoder.config, arrays, layers, head_arrays)


def _arrays_of(variables: Mapping[str, tf.Variable]) -> Tensors:
    return {name: variable.numpy() for name, variable in variables.items()}


def layers_of(projection: Projection) -> Layers:
    """Returns the weights of CMLM's projection, layer by layer."""
    pairs = zip(projection.kernels, projection.biases)
    return [(kernel.numpy(), bias.numpy()) for kernel, bias in pairs]
