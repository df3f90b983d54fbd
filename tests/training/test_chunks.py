"""A batch in chunks gives the loss, gradients and metrics of the whole, with dropout on."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import mirrored_strategy
from tests.modeling.helpers import randomize
from tests.training.all_objectives import SETTINGS, batch_of, task_of
from tests.training.step_values import step_values

DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}


def _check_equal(found, expected, model):
    learning = 1 + len(model.trainable_variables)
    assert len(found) == len(expected) > learning
    assert float(expected[0]) > 0.1
    # The generator's head is a copy of the model's, which then does not learn.
    unused = 5 if "diff_cse" in model.objectives else 0
    moved = sum(np.abs(g).max() > 1e-4 for g in expected[1:learning])
    assert moved >= learning - unused - 4
    for got, value in zip(found, expected):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_chunks_equal_the_whole(folders, name):
    """Chunks that do not divide the batch, and a single one, with every kind of dropout."""
    task = task_of(folders, name, DROPOUT)
    model, features = randomize(task.build_model()), batch_of(task, name)
    expected = step_values(model, features)
    for chunk_size in (3, 50):
        _check_equal(step_values(model, features, chunk_size), expected, model)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("contrastive", {"ignore_equal_texts": True, "max_negative_similarity": 0.9}),
        ("contrastive", {"loss": "multi_similarity", "multi_similarity_beta": 5.0}),
        ("bitext_retrieval", {"ignore_equal_texts": True}),
        ("declutr", {"ignore_equal_texts": True}),
        ("quick_thought", {"ignore_equal_texts": True, "matryoshka_dims": [4, 8]}),
    ],
)
def test_chunks_equal_the_whole_with_equal_texts(folders, name, settings):
    """The batch has each text twice, in different chunks."""
    task = task_of(folders, name, DROPOUT, **settings)
    half = batch_of(task, name, 4)
    ((group, features),) = half.items()
    twice = {group: tf.nest.map_structure(lambda v: tf.concat([v, v], axis=0), features)}
    model = randomize(task.build_model())
    expected = step_values(model, twice)
    _check_equal(step_values(model, twice, 3), expected, model)
    plain = task_of(folders, name, DROPOUT, **(settings | {"ignore_equal_texts": False}))
    other = plain.build_model()
    other.set_weights(model.get_weights())
    if settings.get("ignore_equal_texts"):
        assert float(step_values(other, twice)[0]) > float(expected[0]) + 0.01


@pytest.mark.parametrize(
    "name",
    # A graph of chunks takes up to a minute to trace; `contrastive` has one in test_non_finite.py.
    [pytest.param(name, marks=() if name == "mlm" else pytest.mark.long) for name in SETTINGS],
)
def test_chunks_in_a_graph(folders, name):
    """As a training computes them."""
    task = task_of(folders, name, DROPOUT)
    model, features = randomize(task.build_model()), batch_of(task, name)
    found = tf.function(step_values)(model, features, 3)
    _check_equal([v.numpy() for v in found], step_values(model, features), model)


@pytest.mark.parametrize("name", ["bitext_retrieval", "cmlm", "cmlm_cse", "declutr"])
def test_chunks_on_two_replicas_equal_one_device(folders, name):
    """Negatives and means reach over replicas and chunks; dropout masks are those of the rows."""
    task = task_of(folders, name, DROPOUT)
    whole = batch_of(task, name)
    halves = [
        tf.nest.map_structure(lambda x, i=i: tf.split(x, 2, axis=0)[i], whole) for i in range(2)
    ]
    strategy = mirrored_strategy()
    single = randomize(task.build_model())
    with strategy.scope():
        mirrored = task.build_model()
    mirrored.set_weights(single.get_weights())
    expected = [value.numpy() for value in step_values(single, whole)]
    features = strategy.experimental_distribute_values_from_function(
        lambda context: halves[context.replica_id_in_sync_group]
    )

    for chunk_size in (3,) if name != "cmlm" else (0, 2):
        # Not traced: that takes longer than the step.
        values = strategy.run(step_values, args=(mirrored, features, chunk_size))
        for replica in range(2):
            found = [strategy.experimental_local_results(v)[replica].numpy() for v in values]
            _check_equal(found, expected, single)


@pytest.mark.parametrize("name", ["cmlm_cse", "declutr"])
def test_chunks_without_masked_tokens(folders, name):
    """The published ablation, which predicts nothing, has chunks too."""
    task = task_of(folders, name, DROPOUT, mlm_weight=0.0)
    model, features = randomize(task.build_model()), batch_of(task, name)
    expected, found = step_values(model, features), step_values(model, features, 3)
    assert float(expected[0]) > 0.1
    for got, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=2e-5)


def test_another_step_has_other_masks(folders):
    """The key decides: the same again, and another one for another step."""
    task = task_of(folders, "contrastive", DROPOUT)
    model, features = randomize(task.build_model()), batch_of(task, "contrastive")
    losses = [
        float(
            model(features, training=True, step_key=tf.constant(key, tf.int64))["contrastive"].loss
        )
        for key in (1, 1, 2)
    ]
    assert losses[0] == losses[1] != losses[2]
