"""Determines the activation function of a SavedModel by running it: its weights do not tell."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.building import build
from official_cmlm.checkpoints.source import Source
from official_cmlm.configs.encoder import ACTIVATIONS
from official_cmlm.errors import UserError

# Largest difference of token outputs that counts as equal; the two GELUs differ by more.
_TOLERANCE = 1e-4


def with_known_activation(path: Path, source: Source) -> Source:
    """The source with the activation function that reproduces the SavedModel's outputs.

    Args:
      path: folder of a SavedModel that maps BERT's three inputs to a dict with `sequence_output`.
      source: what was read from its weights.

    Raises:
      UserError: if it cannot be called like that, or if no activation reproduces its outputs.
    """
    rng = np.random.default_rng(0)
    length = min(16, source.config.max_seq_length)
    ids = tf.constant(rng.integers(0, source.config.vocab_size, [2, length]), tf.int32)
    mask = tf.sequence_mask([length, length - 2], length, tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    try:
        expected = tf.saved_model.load(str(path))(inputs, training=False)["sequence_output"]
    except (tf.errors.OpError, ValueError, TypeError, KeyError, OSError, RuntimeError) as error:
        raise UserError(
            f"{path}: cannot be run as a BERT encoder ({str(error).splitlines()[0][:160]}); it "
            "must map input_word_ids, input_mask and input_type_ids to sequence_output"
        ) from None
    differences = {}
    for activation in dict.fromkeys(
        itertools.chain([source.config.hidden_activation], ACTIVATIONS)
    ):
        config = source.config.replace(hidden_activation=activation)
        candidate = dataclasses.replace(source, config=config, head=None)
        got = build(candidate)[0](inputs)["sequence_output"]
        if got.shape != expected.shape:
            raise UserError(
                f"{path}: its sequence_output is {expected.shape}, a BERT encoder's {got.shape}; "
                "it is no plain BERT encoder"
            )
        real = mask.numpy() > 0
        differences[activation] = float(np.abs(got.numpy() - expected.numpy())[real].max())
        if differences[activation] < _TOLERANCE:
            return dataclasses.replace(source, config=config)
    listed = ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
    raise UserError(
        f"{path}: the imported encoder's outputs differ from the module's own ({listed}); it is no "
        "plain BERT encoder"
    )
