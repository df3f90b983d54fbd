"""Rematerialised blocks: which are computed again, with which dropout masks, in which memory."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.checkpoints.encoder_directory import EncoderDirectory, describe, differences
from official_cmlm.configs.encoder import REMATS
from official_cmlm.modeling.dropout import DropoutStream
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.training import model as model_module
from official_cmlm.training.inherited_fields import StartingEncoder
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_masked, make_tokens, randomize
from tests.training.all_objectives import batch_of, task_of
from tests.training.helpers import DROPOUT
from tests.training.step_values import measure_bytes, step_values

KINDS = [kind for kind in REMATS if kind != "none"]


def _count_blocks(monkeypatch):
    """Counts calls of attention: each is one of a block."""
    calls = []
    before = tf_keras.layers.MultiHeadAttention._masked_softmax

    def count(self, *arguments, **options):
        calls.append(self)
        return before(self, *arguments, **options)

    monkeypatch.setattr(tf_keras.layers.MultiHeadAttention, "_masked_softmax", count)
    return calls


@pytest.mark.parametrize(
    "kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.long) for kind in KINDS[1:])]
)
def test_each_block_is_computed_twice(folders, kind, monkeypatch):
    """Blocks that are not trained, as those of DiffCSE's generator, are not computed again."""
    calls, counts = _count_blocks(monkeypatch), []
    for each in ("none", kind):
        task = task_of(folders, "diff_cse", {**DROPOUT, "num_layers": 2, "remat": each})
        model, features = randomize(task.build_model()), batch_of(task, "diff_cse")
        calls.clear()
        step_values(model, features)
        counts.append(len(calls))
    assert counts[0] < counts[1] < 2 * counts[0]


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


def test_encoder_directories_do_not_store_remat(tmp_path, vocabulary):
    """The encoder that a training leaves does not remember how memory was saved."""
    config = tiny_encoder_config(vocab_size=len(vocabulary), remat="blocks")
    describe(tmp_path, config, vocabulary)
    stored = EncoderDirectory.open(tmp_path).config
    assert stored == config.replace(remat="none")
    assert differences(stored, config) == []
    start = StartingEncoder(str(tmp_path), stored, 24, for_sentences=True)
    assert "remat" not in start.fields_to_inherit((), ())
    assert start.notes(config, config, ()) == []


@pytest.mark.long
def test_the_compiled_step_needs_less_memory():
    """XLA sees whether both computations were made one: 256 tokens, dropout of attention."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    masked = make_masked([256] * 4, 256, [9] * 4)
    batch = {"mlm": {"segment_masked": masked, "key": tf.range(4, dtype=tf.int64)}}
    needed = {}
    for kind in REMATS:
        config = tiny_encoder_config(
            num_layers=6,
            hidden_size=32,
            intermediate_size=128,
            num_attention_heads=4,
            attention_dropout_rate=0.2,
            max_position_embeddings=256,
            remat=kind,
        )
        needed[kind] = measure_bytes(config, {"mlm": MlmConfig()}, batch)
    assert needed["blocks"] < 0.5 * needed["none"], needed
    # Within a part that is computed again, masks are not kept either.
    assert needed["attention"] < 0.6 * needed["none"], needed


@pytest.mark.long
@pytest.mark.parametrize(("rate", "share"), [(0.0, 0.84), (0.2, 0.9)])
def test_a_compiled_step_keeps_neither_masks_nor_wide_inputs(bfloat16, monkeypatch, rate, share):
    """XLA's own account: attention's masks alone, or GELU's and the norms' inputs alone."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    masked = make_masked([128] * 8, 128, [9] * 8)
    batch = {"mlm": {"segment_masked": masked, "key": tf.range(8, dtype=tf.int64)}}
    config = tiny_encoder_config(
        num_layers=6,
        hidden_size=32 if rate else 64,
        intermediate_size=32 if rate else 256,
        num_attention_heads=8 if rate else 2,
        attention_dropout_rate=rate,
        max_position_embeddings=128,
    )
    needed = measure_bytes(config, {"mlm": MlmConfig()}, batch)
    monkeypatch.setattr(
        model_module, "DropoutStream", lambda key, row, recomputes: DropoutStream(key, row)
    )
    kept = measure_bytes(config, {"mlm": MlmConfig()}, batch)
    assert needed < share * kept, (needed, kept)
