"""Rematerialised blocks: which are computed again, with which dropout masks, in which memory."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe, differences
from official_cmlm.configs.encoder import REMATS
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.training.inherited_fields import StartingEncoder
from official_cmlm.training.model import MultiObjectiveModel
from official_cmlm.training.step import whole_gradients
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_masked, make_tokens, randomize
from tests.objectives.helpers import refuses
from tests.training.all_objectives import batch_of, task_of
from tests.training.step_values import KEY, check_equal, step_values

DROPOUT = {"dropout_rate": 0.2, "attention_dropout_rate": 0.2, "drophead_rate": 0.2}
KINDS = [kind for kind in REMATS if kind != "none"]


def _model(folders, name, kind, static_shapes=False):
    """Returns a model with all dropouts, the same for every `kind`."""
    task = task_of(folders, name, {**DROPOUT, "num_layers": 2, "remat": kind})
    model = randomize(task.build_model())
    for objective in model.objectives.values():
        objective.static_shapes = static_shapes
    return model, batch_of(task, name)


def _count_blocks(monkeypatch):
    """Counts calls of attention: each is one of a block."""
    calls = []
    before = tf_keras.layers.MultiHeadAttention._masked_softmax

    def counted(self, *arguments, **options):
        calls.append(self)
        return before(self, *arguments, **options)

    monkeypatch.setattr(tf_keras.layers.MultiHeadAttention, "_masked_softmax", counted)
    return calls


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])]
)
def test_each_block_is_computed_twice(folders, kind, monkeypatch):
    """Blocks that are not trained, as those of DiffCSE's generator, are not computed again."""
    calls = _count_blocks(monkeypatch)
    model, features = _model(folders, "diff_cse", "none")
    calls.clear()
    step_values(model, features)
    plain = len(calls)
    model, features = _model(folders, "diff_cse", kind)
    calls.clear()
    step_values(model, features)
    assert plain < len(calls) < 2 * plain


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("contrastive", "blocks"),
        pytest.param("declutr", "attention", marks=pytest.mark.long),
        pytest.param("contrastive", "attention", marks=pytest.mark.long),
        pytest.param("declutr", "blocks", marks=pytest.mark.long),
    ],
)
def test_views_that_share_a_batch(folders, name, kind):
    """Views of one batch have masks of their own, in the second computation too."""
    chosen = {"controlled_dropout": True} if name == "contrastive" else {}
    values = []
    for each in ("none", kind):
        task = task_of(folders, name, {**DROPOUT, "remat": each}, **chosen)
        model = randomize(task.build_model())
        values.append(step_values(model, batch_of(task, name)))
    check_equal(values[1], values[0])


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_stream_nothing_is_computed_again(kind, monkeypatch):
    """Masks of Keras's own generator cannot be drawn twice; encoding has no gradient."""
    model = randomize(SentenceEncoderModel(tiny_encoder_config(**DROPOUT, remat=kind)))
    plain = randomize(SentenceEncoderModel(tiny_encoder_config(**DROPOUT)))
    tokens = make_tokens([6, 2, 9], 9)
    calls = _count_blocks(monkeypatch)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tokens, training=True)["default"] ** 2)
    tape.gradient(loss, model.trainable_variables)
    assert len(calls) == 2
    np.testing.assert_array_equal(model(tokens)["default"], plain(tokens)["default"])


def test_names_of_weights_and_checkpoints_are_the_same(tmp_path):
    """A training may go on with another setting, in either direction."""
    keys = []
    for kind in REMATS:
        model = SentenceEncoderModel(tiny_encoder_config(remat=kind))
        prefix = tf.train.Checkpoint(encoder=model).write(str(tmp_path / kind))
        keys.append(([v.name for v in model.weights], tf.train.list_variables(prefix)))
    assert keys[0] == keys[1] == keys[2]


def test_an_encoder_directory_does_not_know_it(tmp_path, vocabulary):
    """The encoder that a training leaves does not remember how memory was saved."""
    config = tiny_encoder_config(vocab_size=len(vocabulary), remat="blocks")
    describe(tmp_path, config, vocabulary)
    found = EncoderDirectory.open(tmp_path).config
    assert found == config.replace(remat="none")
    assert differences(found, config) == []
    start = StartingEncoder(str(tmp_path), found, 24, for_sentences=True)
    assert "remat" not in start.inherited((), ())
    assert start.notes(config, config, ()) == []


def test_refuses_unknown_kinds():
    refuses(lambda: tiny_encoder_config(remat="all").check(), "encoder.remat", "'all'")


@pytest.mark.long
def test_the_compiled_step_needs_less_memory():
    """XLA's own account sees whether both computations were made one."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    needed = {kind: _temporaries(kind) for kind in REMATS}
    assert needed["blocks"] < 0.5 * needed["none"], json.dumps(needed)
    assert needed["attention"] < 0.7 * needed["none"], json.dumps(needed)


def _temporaries(kind):
    """Bytes of a step's temporary buffers: sequences of 256 tokens, dropout of attention."""
    from official_cmlm.training.jax_loop import compiled_memory

    config = tiny_encoder_config(
        num_layers=6,
        hidden_size=32,
        intermediate_size=128,
        num_attention_heads=4,
        attention_dropout_rate=0.2,
        max_position_embeddings=256,
        remat=kind,
    )
    model = MultiObjectiveModel(
        SentenceEncoderModel(config), {"mlm": MlmConfig()}, static_shapes=True
    )
    masked = make_masked([256] * 4, 256, [9] * 4)
    batch = {"mlm": {"segment_masked": masked, "key": tf.range(4, dtype=tf.int64)}}

    def step(features):
        _, gradients, _ = whole_gradients(
            model, features, tf.constant(KEY, tf.int64), tf.constant(1.0)
        )
        for variable, gradient in zip(model.trainable_variables, gradients):
            if gradient is not None:
                variable.assign_sub(0.1 * tf.convert_to_tensor(gradient))

    return compiled_memory(step, batch)
