"""Task configurations over tiny records."""

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from tests.conftest import tiny_encoder_config

# Every kind of dropout of the encoder.
DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}
_COUNT_OF_SAVES = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"


def data(folder, is_training=True, **overrides):
    """Records of at most 24 tokens, 8 pairs a step."""
    values = {"seq_length": 24, "global_batch_size": 8, "shuffle_sentences": 200}
    return DataConfig(input_path=str(folder), is_training=is_training, **(values | overrides))


def task_config(folder, objectives, encoder=None, **overrides):
    """Returns a task over the records, whose vocabulary the encoder takes."""
    from official_cmlm.training.config import ObjectivesConfig, SentenceEncoderTaskConfig

    values = {
        "encoder": tiny_encoder_config(**{"vocab_size": 0, **(encoder or {})}),
        "objectives": ObjectivesConfig(**objectives),
        "train_data": data(folder),
        "validation_data": data(folder, is_training=False),
    }
    return SentenceEncoderTaskConfig(**(values | overrides))


def optimizer_config(kind="adamw", rate=0.01, **settings):
    """Returns an optimizer's settings with a constant learning rate."""
    from official.modeling import optimization

    return optimization.OptimizationConfig(
        {
            "optimizer": {"type": kind, kind: settings},
            "learning_rate": {"type": "constant", "constant": {"learning_rate": rate}},
        }
    )


def assert_same_checkpoints(prefixes, **tolerances):
    """Checks that two checkpoints hold equal numbers, but for the count of their saves.

    Without tolerances they are equal bit for bit.
    """
    check = np.testing.assert_allclose if tolerances else np.testing.assert_array_equal
    expected, actual = (tf.train.load_checkpoint(str(prefix)) for prefix in prefixes)
    names = expected.get_variable_to_shape_map()
    assert names == actual.get_variable_to_shape_map() and len(names) > 50
    for name in names.keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH", _COUNT_OF_SAVES}:
        values = (reader.get_tensor(name) for reader in (actual, expected))
        check(*values, err_msg=name, **tolerances)


def by_objective(element):
    """Returns a batch of `build_inputs`, seen as each objective sees it: name -> features."""
    return {name: batch for names, batch in element.items() for name in names.split("+")}
