"""QuickThought with an encoder of its own for the second side."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from tests.modeling.helpers import output_of, randomize
from tests.objectives.helpers import (
    check_everything_learns,
    embed,
    first_batch,
    make_task,
    random_model,
    refuses,
    train,
    value,
)
from tests.oracles import cmlm_numpy as oracle
from tests.training.helpers import data

# Logeswaran and Lee 2018, as the module's text has it.
PUBLISHED = {
    "encoders": "separate",
    "margin": 0.0,
    "normalize": False,
    "logit_scale": 1.0,
    "bidirectional": False,
}


def _task(folder, encoder=None, **settings):
    config = QuickThoughtConfig(**({"encoders": "separate"} | settings))
    return make_task(folder, "quick_thought", config, encoder)


@pytest.fixture(scope="module")
def batch(records_dir):
    return first_batch(_task(records_dir))


def _context(model):
    return model.objectives["quick_thought"].context_encoder


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        (PUBLISHED, {}),
        ({}, {}),
        (PUBLISHED, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
)
def test_loss_equals_the_reference(records_dir, batch, settings, encoder):
    """s1 goes through the exported encoder f, s2 through the other one, g."""
    task = _task(records_dir, encoder, **settings)
    model, config = random_model(task), task.chosen["quick_thought"]
    first = embed(model, batch["first"])
    second = _context(model)(batch["second"])["default"].numpy()
    assert not np.allclose(second, embed(model, batch["second"]), atol=1e-2)
    output = model({"quick_thought": batch})["quick_thought"]
    expected = oracle.additive_margin_softmax(
        first, second, config.margin, config.logit_scale, config.normalize, config.bidirectional
    )
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    recall = oracle.recall_at_1(first, second, config.normalize)
    assert value(output, "recall_at_1") == pytest.approx(recall)


def test_shared_has_no_second_encoder(records_dir):
    """The default builds one encoder and nothing else."""
    model = _task(records_dir, encoders="shared").build_model()
    assert _context(model) is None
    assert len(model.trainable_variables) == 37


def test_both_start_from_equal_weights(records_dir, batch):
    """After building, and after other weights have been put into the exported encoder."""
    task = _task(records_dir)
    model = task.build_model()

    def pairs():
        return zip(_context(model).get_weights(), model.encoder.get_weights(), strict=True)

    assert not {id(w) for w in _context(model).weights} & {id(w) for w in model.encoder.weights}
    assert all(np.array_equal(one, other) for one, other in pairs())
    randomize(model.encoder, seed=4)
    assert not all(np.array_equal(one, other) for one, other in pairs())
    task.initialize(model)
    assert all(np.array_equal(one, other) for one, other in pairs())
    shared = random_model(_task(records_dir, encoders="shared"))
    shared.encoder.set_weights(model.encoder.get_weights())
    losses = [float(m({"quick_thought": batch})["quick_thought"].loss) for m in (model, shared)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_gradient_reaches_both_encoders(records_dir, batch):
    """Both are trained as wholes, the keys' biases apart."""
    model = random_model(_task(records_dir, logit_scale=5.0))
    variables = {id(v) for v in model.trainable_variables}
    assert {id(v) for v in _context(model).trainable_variables} <= variables
    check_everything_learns(model, "quick_thought", batch, 2 * 37)


def test_training_moves_the_encoders_apart(records_dir, batch):
    """From the same start, optimizer steps give f and g different weights and a lower loss."""
    encoder = {"num_layers": 1, "dropout_rate": 0.1, "attention_dropout_rate": 0.1}
    model, losses = train(_task(records_dir, encoder), 8, {"quick_thought": batch})
    apart = [
        not np.array_equal(one, other)
        for one, other, weight in zip(
            _context(model).get_weights(), model.encoder.get_weights(), model.encoder.weights
        )
        if weight.trainable and "pooler_transform" not in weight.name
    ]
    assert all(apart)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_second_encoder_has_dropout_in_training_alone(records_dir, batch):
    """The second side is encoded with dropout in training, and without it otherwise."""
    task = _task(records_dir, {"dropout_rate": 0.3, "attention_dropout_rate": 0.3})
    objective = random_model(task).objectives["quick_thought"]
    first = {"default": tf.constant(embed(random_model(task), batch["first"]))}

    def losses(training):
        """Returns both have the same first side."""
        encode = lambda inputs, name: first  # noqa: E731
        encode.training = training
        encode.stream = lambda name: None
        return [float(output_of(objective, batch, encode).loss) for _ in range(2)]

    trained, evaluated = losses(True), losses(False)
    assert trained[0] != trained[1]
    assert evaluated[0] == evaluated[1]


def test_second_encoder_is_not_exported(records_dir):
    """The encoder that a checkpoint names for others is f alone."""
    model = _task(records_dir).build_model()
    assert set(model.checkpoint_items) == {"encoder", "data_positions"}
    assert model.checkpoint_items["encoder"] is model.encoder


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("encoders", "both"),
        ("context_size", 0),
        ("weight", 0.0),
        ("weight", -1.0),
        ("logit_scale", 0.0),
        ("margin", float("nan")),
    ],
)
def test_settings_without_meaning_are_refused(records_dir, field, wrong):
    """The message names the field and what it was set to."""
    refuses(
        lambda: _task(records_dir, **{field: wrong}),
        f"task.objectives.quick_thought.{field}",
        wrong,
    )


def test_a_batch_of_one_is_refused(records_dir):
    """One pair has no other candidates."""
    task = make_task(
        records_dir,
        "quick_thought",
        QuickThoughtConfig(encoders="separate"),
        train_data=data(records_dir, global_batch_size=1),
    )
    refuses(lambda: task.check_batch_sizes(1), "task.train_data.global_batch_size", 1)
