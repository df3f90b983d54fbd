"""`vocabulary_block_size`: losses, gradients and metrics are those of whole logits."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.masked_prediction import MaskingConfig
from tests.modeling.helpers import randomize
from tests.objectives.helpers import refuses
from tests.training.all_objectives import SETTINGS, batch_of, task_of
from tests.training.step_values import check_equal, check_two_replicas, step_values

DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2}
NAMES = [name for name, config in SETTINGS.items() if isinstance(config, MaskingConfig)]
# The vocabulary has more entries, and no multiple.
BLOCK = 30


def _model(folders, name, block_size, static_shapes=False):
    task = task_of(folders, name, DROPOUT, vocabulary_block_size=block_size)
    assert len(task.vocabulary) > 2 * BLOCK and len(task.vocabulary) % BLOCK
    model = randomize(task.build_model())
    for objective in model.objectives.values():
        objective.static_shapes = static_shapes
    if name == "diff_cse":
        # The generator's random weights are those of the model, as after a start.
        task.initialize(model)
    return model, batch_of(task, name)


def _forbid_whole_logits(model, monkeypatch):
    """Lets a call of a head that returns logits fail."""
    heads = [model.head]
    if "diff_cse" in model.objectives:
        heads.append(model.objectives["diff_cse"].generator_head)
    for head in heads:
        before = head.call

        def call(outputs, masked_positions, factors=False, before=before):
            assert factors
            return before(outputs, masked_positions, factors)

        monkeypatch.setattr(head, "call", call)


def test_every_objective_with_the_head_has_it():
    assert set(NAMES) == {name for name in SETTINGS if SETTINGS[name].needs_language_model_head()}


@pytest.mark.parametrize("name", NAMES)
def test_training_and_validation(folders, name, monkeypatch):
    """Eager steps with dropout, in chunks too, and what a validation reports."""
    model, features = _model(folders, name, 0)
    expected = step_values(model, features)
    validated = model(features)[name]
    model, features = _model(folders, name, BLOCK)
    _forbid_whole_logits(model, monkeypatch)
    check_equal(step_values(model, features), expected)
    check_equal(step_values(model, features, chunk_size=3), expected, rtol=1e-4)
    found = model(features)[name]
    check_equal(
        tf.nest.flatten([found.loss, found.metrics]),
        tf.nest.flatten([validated.loss, validated.metrics]),
    )


@pytest.mark.parametrize(
    # Each compiles for ten seconds or more.
    "name",
    [pytest.param(name, marks=() if name == "mlm" else pytest.mark.long) for name in NAMES],
)
def test_compiled(folders, name):
    """Shapes are static, the rest of the vocabulary's too."""
    model, features = _model(folders, name, 0, static_shapes=True)
    expected = step_values(model, features)
    model, features = _model(folders, name, BLOCK, static_shapes=True)
    check_equal(tf.function(step_values, jit_compile=True)(model, features), expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["cmlm", "declutr"])
def test_two_replicas_equal_one_device(folders, name):
    """Each replica's part of the table's gradient is added."""
    single, whole = _model(folders, name, 0)
    check_two_replicas(single, whole, lambda: _model(folders, name, BLOCK)[0])


def test_half_precision(folders, bfloat16):
    """The head reads its weights in the precision of the computation, as for whole logits."""
    values = []
    for block_size in (0, BLOCK):
        model, features = _model(folders, "mlm", block_size)
        values.append(step_values(model, features))
    assert {value.dtype for value in values[1]} == {tf.float32}
    assert float(values[1][0]) == pytest.approx(float(values[0][0]), rel=1e-4)
    # Some gradients are rounding alone, so all are measured together.
    found, expected = (np.concatenate([np.ravel(v) for v in each[1:]]) for each in values[::-1])
    assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected)


@pytest.mark.long
def test_with_rematerialised_blocks_compiled(folders):
    """Both together, as a training of a large model has them."""
    model, features = _model(folders, "cmlm", 0, static_shapes=True)
    expected = step_values(model, features)
    task = task_of(folders, "cmlm", {**DROPOUT, "remat": "blocks"}, vocabulary_block_size=BLOCK)
    both = randomize(task.build_model())
    both.objectives["cmlm"].static_shapes = True
    check_equal(tf.function(step_values, jit_compile=True)(both, features), expected, rtol=1e-4)


def test_refuses_sizes_below_0():
    from tests.conftest import tiny_encoder_config

    config = SETTINGS["mlm"].replace(vocabulary_block_size=-1)
    refuses(lambda: config.check(tiny_encoder_config(), "there"), "vocabulary_block_size", "-1")
