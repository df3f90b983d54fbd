"""A batch in chunks gives the loss, gradients and metrics of the whole, with dropout on."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.contrastive import ContrastiveConfig
from official_cmlm.training.chunks import chunked_gradients
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.step import whole_gradients
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import mirrored_strategy, tiny_encoder_config
from tests.modeling.helpers import make_tokens, randomize
from tests.training.all_objectives import SETTINGS, batch_of, records_of, task_of
from tests.training.helpers import data, task_config
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
    """As a training computes them, which does not know how large its batches will be."""
    task = task_of(folders, name, DROPOUT)
    model, features = randomize(task.build_model()), batch_of(task, name)
    found = _of_any_size(model, features)(features)
    _check_equal([v.numpy() for v in found], step_values(model, features), model)


def _of_any_size(model, features, chunk_size=3, **options):
    """A step in chunks for batches of unknown sizes and lengths."""
    unknown = tf.nest.map_structure(
        lambda value: tf.TensorSpec([None] * len(value.shape), value.dtype), features
    )
    return tf.function(
        lambda batch: step_values(model, batch, chunk_size),
        input_signature=[unknown],
        autograph=False,
        **options,
    )


def _with_static_shapes(model):
    for objective in model.objectives.values():
        objective.static_shapes = True
    return model


@pytest.mark.parametrize(
    ("name", "chunk_size"),
    # Each compiles for ten seconds or more.
    [pytest.param(name, 3, marks=pytest.mark.long) for name in SETTINGS]
    + [pytest.param("cmlm_cse", 4, marks=pytest.mark.long), ("mlm", 4)],
)
def test_compiled(folders, name, chunk_size):
    """By XLA: 8 examples in chunks of 3, 3 and 2, or of 4 and 4."""
    task = task_of(folders, name, DROPOUT)
    model, features = _with_static_shapes(randomize(task.build_model())), batch_of(task, name)
    expected = step_values(model, features)
    found = tf.function(step_values, jit_compile=True)(model, features, chunk_size)
    _check_equal(found, expected, model)


@pytest.mark.long
def test_compiled_for_batches_of_each_bucket(folders):
    """XLA learns the sizes of batches, and so of chunks, when the graph is there."""
    task = task_of(folders, "contrastive", DROPOUT)
    model = _with_static_shapes(randomize(task.build_model()))
    batches = [batch_of(task, "contrastive", count) for count in (8, 7)]
    step = _of_any_size(model, batches[0], jit_compile=True)
    for batch in batches:
        _check_equal(step(batch), step_values(model, batch), model)


def _sum_of_objectives(folders, encoder=None, **objectives):
    """A model of several objectives, and groups of 8, 5 and 1 examples of them."""
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


def test_groups_of_different_sizes(folders):
    """Chunks of one group are not those of another, the smallest of which has one example."""
    model, features = _sum_of_objectives(folders, **THREE)
    expected = step_values(model, features)
    for chunk_size in (3, 4):
        _check_equal(step_values(model, features, chunk_size), expected, model)


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
    _check_equal(compiled(_with_static_shapes(other), features, 3), expected, model)


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


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_means_are_over_what_the_chunks_predict(folders, share):
    """Where slots are left out, fewer tokens are predicted; none is counted that is not."""
    task = task_of(folders, "mlm", DROPOUT, max_predictions_share=share)
    model, features = _with_static_shapes(randomize(task.build_model())), batch_of(task, "mlm")
    used = float(tf.reduce_sum(features["mlm"]["segment_masked"]["masked_lm_weights"]))
    loss, *_, total, count = (float(tf.reduce_sum(v)) for v in step_values(model, features, 3))
    assert count == used if share == 1 else 0 < count < used
    assert loss == pytest.approx(0.5 * total / count, rel=1e-5)


@pytest.mark.long
def test_the_compiled_step_needs_the_memory_of_a_chunk():
    """By XLA's own account: chunks of 4 of 16 examples, or of 15, against a batch of 4."""
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

    return compiled_memory(step, {"contrastive": batch}).temporary


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
