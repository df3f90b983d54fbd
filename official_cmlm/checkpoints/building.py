"""Builds the encoder that a `Source` describes, with its weights."""

import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.source import Source, Tensors
from official_cmlm.modeling.language_model_head import build_language_model_head
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.modeling.variables import encoder_variables, head_variables


def build(source: Source) -> tuple[SentenceEncoderModel, tf_keras.layers.Layer | None]:
    """Returns the encoder and, where the source has one, its language-model head."""
    model = SentenceEncoderModel(source.config, random_weights=False)
    _assign(encoder_variables(model), source.encoder)
    if source.head is None:
        return model, None
    head = build_language_model_head(model)
    _assign(head_variables(head), source.head)
    return model, head


def _assign(variables: dict[str, tf.Variable], tensors: Tensors) -> None:
    if variables.keys() != tensors.keys():
        raise ValueError(
            f"weights got {sorted(tensors.keys() - variables.keys())} too many and "
            f"{sorted(variables.keys() - tensors.keys())} too few"
        )
    for name, variable in variables.items():
        variable.assign(tensors[name])
