"""Chunks where a plain batch of one objective is not all: see test_step_matrix.py for that."""

import pytest
import tensorflow as tf

from official_cmlm.objectives.contrastive import ContrastiveConfig
from official_cmlm.training.chunks import compute_in_chunks
from official_cmlm.training.step import compute_at_once
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_tokens, randomize
from tests.training.all_objectives import batch_of, records_of, task_of, with_own_records
from tests.training.helpers import DROPOUT, task_config
from tests.training.step_values import check_equal, measure_bytes, step_values


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("contrastive", {"ignore_equal_texts": True}),
        # The published ablation, which predicts nothing, has chunks too.
        ("cmlm_cse", {"mlm_weight": 0.0}),
        pytest.param("declutr", {"mlm_weight": 0.0}, marks=pytest.mark.long),
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
    twice = tf.nest.map_structure(lambda v: tf.concat([v, v], axis=0), half)
    model = randomize(task.build_model())
    expected = step_values(model, twice)
    check_equal(step_values(model, twice, 3), expected, rtol=1e-4)
    if settings.get("ignore_equal_texts"):
        plain = task_of(folders, name, DROPOUT, **(settings | {"ignore_equal_texts": False}))
        other = plain.build_model()
        other.set_weights(model.get_weights())
        assert float(step_values(other, twice)[0]) > float(expected[0]) + 0.01


def _sum_of_objectives(folders, objectives, encoder=None, static_shapes=False):
    """Returns a model of several objectives, and groups of 8, 5 and 1 examples of them."""
    settings = {n: with_own_records(folders, n, **changes) for n, changes in objectives.items()}
    encoder = {"num_layers": 1, **DROPOUT, **(encoder or {})}
    config = task_config(records_of(folders, next(iter(settings))), settings, encoder)
    task = SentenceEncoderTask(config, static_shapes=static_shapes)
    model, features = randomize(task.build_model()), {}
    for name, count in zip(settings, (8, 5, 1)):
        features |= batch_of(task_of(folders, name), name, count)
    return model, features


@pytest.mark.long
def test_a_sum_compiled_with_all_that_saves_memory(folders):
    """Chunks of each group beside blocks that are computed again and a vocabulary in blocks.

    The groups have 8, 5 and 1 examples; equal texts are ignored.
    """
    model, features = _sum_of_objectives(folders, {"mlm": {}, "bitext_retrieval": {}, "nli": {}})
    expected = step_values(model, features)
    saving = {
        "mlm": {"vocabulary_block_size": 30},
        "bitext_retrieval": {"ignore_equal_texts": True},
        "nli": {},
    }
    other, _ = _sum_of_objectives(folders, saving, {"remat": "blocks"}, static_shapes=True)
    compiled = tf.function(step_values, jit_compile=True)
    check_equal(compiled(other, features, 3), expected, rtol=1e-4)


def test_unused_weights_have_no_gradient(folders):
    """Zeros instead would let weight decay change DiffCSE's unused head."""
    task = task_of(folders, "diff_cse")
    model, features = task.build_model(), batch_of(task, "diff_cse", 4)
    arguments = (model, features, tf.constant(1, tf.int64), tf.constant(1.0))
    expected = [gradient is None for gradient in compute_at_once(*arguments)[1]]
    assert any(expected) and not all(expected)
    # With a chunk before the loop, and without.
    for chunk_size in (3, 2):
        gradients = compute_in_chunks(*arguments, chunk_size)[1]
        assert [gradient is None for gradient in gradients] == expected


@pytest.mark.long
def test_the_compiled_step_needs_the_memory_of_a_chunk():
    """Chunks of 4 of 16 examples, or of 15, against a batch of 4: sentences of 64 tokens."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    config = tiny_encoder_config(num_layers=3, hidden_size=32, max_position_embeddings=64)

    def measure(count, chunk_size):
        tokens = make_tokens([64] * count, 64)
        batch = {"first": tokens, "second": dict(tokens), "key": tf.range(count, dtype=tf.int64)}
        objectives = {"contrastive": ContrastiveConfig()}
        return measure_bytes(config, objectives, {"contrastive": batch}, chunk_size)

    whole, one = measure(16, 0), measure(4, 0)
    assert one < 0.3 * whole
    for count in (16, 15):
        assert measure(count, 4) < 1.15 * one
