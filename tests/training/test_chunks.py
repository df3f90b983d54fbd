"""Chunks where a plain batch of one objective is not all: see test_step_matrix.py for that."""

import pytest
import tensorflow as tf

from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.contrastive import ContrastiveConfig
from official_cmlm.training.chunks import chunked_gradients
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.step import whole_gradients
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_tokens, randomize
from tests.training.all_objectives import SETTINGS, batch_of, records_of, task_of
from tests.training.helpers import data, task_config
from tests.training.step_values import check_equal, step_of_any_size, step_values

DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("contrastive", {"ignore_equal_texts": True}),
        pytest.param(
            *("contrastive", {"loss": "multi_similarity", "multi_similarity_beta": 5.0}),
            marks=pytest.mark.long,
        ),
        pytest.param("bitext_retrieval", {"ignore_equal_texts": True}, marks=pytest.mark.long),
        pytest.param("declutr", {"ignore_equal_texts": True}, marks=pytest.mark.long),
        pytest.param(
            *("quick_thought", {"ignore_equal_texts": True, "matryoshka_dims": [4, 8]}),
            marks=pytest.mark.long,
        ),
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
    check_equal(step_values(model, twice, 3), expected, rtol=1e-4)
    plain = task_of(folders, name, DROPOUT, **(settings | {"ignore_equal_texts": False}))
    other = plain.build_model()
    other.set_weights(model.get_weights())
    if settings.get("ignore_equal_texts"):
        assert float(step_values(other, twice)[0]) > float(expected[0]) + 0.01


def _with_static_shapes(model):
    for objective in model.objectives.values():
        objective.static_shapes = True
    return model


@pytest.mark.long
def test_compiled_for_batches_of_each_bucket(folders):
    """XLA learns the sizes of batches, and so of chunks, when the graph is there."""
    task = task_of(folders, "contrastive", DROPOUT)
    model = _with_static_shapes(randomize(task.build_model()))
    batches = [batch_of(task, "contrastive", count) for count in (8, 7)]
    step = step_of_any_size(model, batches[0], jit_compile=True)
    for batch in batches:
        check_equal(step(batch), step_values(model, batch), rtol=1e-4)


def _sum_of_objectives(folders, encoder=None, **objectives):
    """Returns a model of several objectives, and groups of 8, 5 and 1 examples of them."""
    settings = {
        name: SETTINGS[name].replace(
            **changes,
            train_data=data(records_of(folders, name)),
            validation_data=data(records_of(folders, name), is_training=False),
        )
        for name, changes in objectives.items()
    }
    encoder = {"num_layers": 1, **DROPOUT, **(encoder or {})}
    config = task_config(records_of(folders, next(iter(settings))), settings, encoder)
    model = randomize(SentenceEncoderTask(config).build_model())
    features = {}
    for name, count in zip(settings, (8, 5, 1)):
        features |= batch_of(task_of(folders, name), name, count)
    return model, features


THREE = {"mlm": {}, "bitext_retrieval": {}, "nli": {}}


@pytest.mark.long
def test_groups_of_different_sizes(folders):
    """Chunks of one group are not those of another, the smallest of which has one example."""
    model, features = _sum_of_objectives(folders, **THREE)
    expected = step_values(model, features)
    for chunk_size in (3, 4):
        check_equal(step_values(model, features, chunk_size), expected, rtol=1e-4)


@pytest.mark.long
def test_a_sum_compiled_with_all_that_saves_memory(folders):
    """Beside rematerialised blocks and a vocabulary in blocks, and with equal texts ignored."""
    model, features = _sum_of_objectives(folders, **THREE)
    expected = step_values(model, features)
    other, _ = _sum_of_objectives(
        folders,
        {"remat": "blocks"},
        mlm={"vocabulary_block_size": 30},
        bitext_retrieval={"ignore_equal_texts": True},
        nli={},
    )
    compiled = tf.function(step_values, jit_compile=True)
    check_equal(compiled(_with_static_shapes(other), features, 3), expected, rtol=1e-4)


def test_what_the_loss_does_not_reach_has_no_gradient(folders):
    """Zeros instead would let weight decay change DiffCSE's unused head."""
    task = task_of(folders, "diff_cse")
    model, features = task.build_model(), batch_of(task, "diff_cse", 4)
    arguments = (model, features, tf.constant(1, tf.int64), tf.constant(1.0))
    expected = [gradient is None for gradient in whole_gradients(*arguments)[1]]
    assert any(expected) and not all(expected)
    # With a chunk before the loop, and without.
    for chunk_size in (3, 2):
        found = chunked_gradients(*arguments, chunk_size)[1]
        assert [gradient is None for gradient in found] == expected


def test_means_are_over_what_the_chunks_predict(folders):
    """With static shapes too, where logits are computed at all slots, only masked tokens count."""
    task = task_of(folders, "mlm", DROPOUT)
    model, features = _with_static_shapes(randomize(task.build_model())), batch_of(task, "mlm")
    used = float(tf.reduce_sum(features["mlm"]["segment_masked"]["masked_lm_weights"]))
    loss, *_, total, count = (float(tf.reduce_sum(v)) for v in step_values(model, features, 3))
    assert count == used
    assert loss == pytest.approx(0.5 * total / count, rel=1e-5)


@pytest.mark.long
def test_the_compiled_step_needs_the_memory_of_a_chunk():
    """XLA's own account says so: chunks of 4 of 16 examples, or of 15, against a batch of 4."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    whole, one = _temporaries(16, 0), _temporaries(4, 0)
    assert one < 0.3 * whole
    for count in (16, 15):
        assert _temporaries(count, 4) < 1.15 * one


def _temporaries(count, chunk_size):
    """Bytes of a step's temporary buffers: sentences of 64 tokens."""
    from official_cmlm.training.jax_loop import compiled_memory

    config = tiny_encoder_config(num_layers=3, hidden_size=32, max_position_embeddings=64)
    model = MultiObjectiveModel(
        SentenceEncoderModel(config), {"contrastive": ContrastiveConfig()}, static_shapes=True
    )
    tokens = make_tokens([64] * count, 64)
    batch = {"first": tokens, "second": dict(tokens), "key": tf.range(count, dtype=tf.int64)}

    def step(features):
        values = step_values(model, features, chunk_size)
        for variable, gradient in zip(model.trainable_variables, values[1:]):
            variable.assign_sub(0.1 * gradient)

    return compiled_memory(step, {"contrastive": batch})


@pytest.mark.parametrize("name", ["cmlm_cse", pytest.param("declutr", marks=pytest.mark.long)])
def test_chunks_without_masked_tokens(folders, name):
    """The published ablation, which predicts nothing, has chunks too."""
    task = task_of(folders, name, DROPOUT, mlm_weight=0.0)
    model, features = randomize(task.build_model()), batch_of(task, name)
    expected, found = step_values(model, features), step_values(model, features, 3)
    check_equal(found, expected, rtol=1e-4)


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
