"""DiffCSE: what the generator fills in, and the loss of finding it, against plain loops."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.diff_cse import DiffCseConfig
from tests.modeling.helpers import NUM_HEADS, randomize
from tests.objectives.helpers import (
    embed,
    first_batch,
    make_task,
    oracle_block,
    random_model,
    refuses,
    train,
    value,
)
from tests.oracles import contrastive_numpy as oracle


def _task(folder, encoder=None, **settings):
    config = DiffCseConfig(**({"lexical_layers": 1, "fusion_layers": 2} | settings))
    return make_task(folder, "diff_cse", config, encoder)


@pytest.fixture(scope="module")
def batch(records_dir):
    return first_batch(_task(records_dir))


def _model(folder, encoder=None, **settings):
    """Returns a model whose generator holds the starting weights, all of them random."""
    task = _task(folder, encoder, **settings)
    model = random_model(task)
    task.initialize(model)
    return model


def _filled(model, batch):
    """Fills each masked place with the most likely token of the model's own encoder and head."""
    masked = batch["first_masked"]
    states = model.encoder(masked)["sequence_output"]
    filled = batch["first"]["input_word_ids"].numpy().copy()
    logits = model.head(states, masked_positions=masked["masked_lm_positions"]).numpy()
    weights = masked["masked_lm_weights"].numpy()
    for row, place in zip(*np.nonzero(weights)):
        at = int(masked["masked_lm_positions"][row, place])
        filled[row, at] = logits[row, place].argmax()
    return filled


def _reference(model, batch, vectors):
    """Computes the mean loss a token, and the share of right answers."""
    objective = model.objectives["diff_cse"]
    filled, first = _filled(model, batch), batch["first"]
    layers = objective.config.lexical_layers
    inputs = {**first, "input_word_ids": tf.constant(filled)}
    lexical = model.encoder(inputs)["encoder_outputs"][layers - 1].numpy()
    blocks = [oracle_block(block) for block in objective.auxiliary.fusion]
    kernel, bias = (weight.numpy() for weight in objective.is_original.weights)
    losses, right = [], []
    for row, vector in enumerate(vectors):
        mask = first["input_mask"].numpy()[row]
        fused = oracle.fuse(vector, lexical[row], mask, blocks, NUM_HEADS)
        for place in range(1, int(mask.sum())):
            logit = float(np.asarray(fused)[place] @ kernel[:, 0] + bias[0])
            original = filled[row, place] == int(first["input_word_ids"][row, place])
            losses.append(math.log1p(math.exp(-logit if original else logit)))
            right.append((logit > 0) == original)
    return np.mean(losses), np.mean(right), len(losses)


@pytest.mark.parametrize(
    "settings",
    [
        {"replaced_token_weight": 1.0},
        {"replaced_token_weight": 0.005, "lexical_layers": 2, "contrastive_weight": 0.5},
    ],
)
def test_loss_equals_the_reference(records_dir, batch, settings):
    """L = L_contrast + λ · L_rtd, over all real tokens but the first."""
    model = _model(records_dir, projection_head="none", **settings)
    output, config = model({"diff_cse": batch})["diff_cse"], model.objectives["diff_cse"].config
    views = [embed(model, batch[name]) for name in ("first", "second")]
    contrast = np.mean(oracle.simcse(*views, config.temperature))
    replaced, accuracy, count = _reference(model, batch, views[0])
    expected = config.contrastive_weight * contrast + config.replaced_token_weight * replaced
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert value(output, "replaced_token_loss") == pytest.approx(replaced, rel=1e-4)
    assert value(output, "replaced_token_accuracy") == pytest.approx(accuracy)
    assert float(output.metrics["replaced_token_loss"][1]) == count


@pytest.mark.parametrize("conditioning", ["vector", "projected"])
def test_conditioning(records_dir, batch, conditioning):
    """The vector before the projection head, or after it."""
    model = _model(records_dir, conditioning=conditioning, replaced_token_weight=1.0)
    vectors = embed(model, batch["first"])
    if conditioning == "projected":
        vectors = model.objectives["diff_cse"].projection_head(vectors).numpy()
    output = model({"diff_cse": batch})["diff_cse"]
    expected, *_ = _reference(model, batch, vectors)
    assert value(output, "replaced_token_loss") == pytest.approx(expected, rel=1e-4)


def test_only_masked_places_are_filled_in(records_dir, batch):
    """Some of them with another token; special tokens and padding stay."""
    model = _model(records_dir)
    objective = model.objectives["diff_cse"]
    filled = objective.fill_in(batch["first"], batch["first_masked"]).numpy()
    np.testing.assert_array_equal(filled, _filled(model, batch))
    changed = filled != batch["first"]["input_word_ids"].numpy()
    weights = batch["first_masked"]["masked_lm_weights"].numpy()
    assert 0 < changed.sum() <= weights.sum()
    assert not changed[:, 0].any()
    assert not (changed & (batch["first"]["input_mask"].numpy() == 0)).any()


def test_the_generator_stays_what_the_training_started_from(records_dir):
    """The encoder and the network after it learn."""
    task = _task(records_dir, replaced_token_weight=1.0)
    started = {}

    def start(model):
        randomize(model)
        started["encoder"] = [weight.numpy() for weight in model.encoder.weights]

    model, losses = train(task, 3, start=start)
    assert np.isfinite(losses).all()
    generator = model.objectives["diff_cse"].generator
    for weight, before in zip(generator.weights, started["encoder"], strict=True):
        np.testing.assert_array_equal(weight, before)
    learned = zip(model.encoder.weights, started["encoder"])
    assert any(not np.array_equal(now, before) for now, before in learned)
    trained = {id(v) for v in model.trainable_variables}
    frozen = [*generator.weights, *model.objectives["diff_cse"].auxiliary.extractor.weights]
    assert not trained & {id(v) for v in frozen}
    assert {id(v) for v in model.objectives["diff_cse"].is_original.weights} <= trained


def test_without_replaced_tokens(records_dir):
    """Weight 0 is SimCSE: no network is built, nothing is masked."""
    task = _task(records_dir, replaced_token_weight=0.0)
    model = random_model(task)
    assert model.head is None and model.objectives["diff_cse"].auxiliary is None
    assert "first_masked" not in first_batch(task)


def test_a_start_without_a_language_model_head_is_refused(exported, records_dir):
    """The generator would fill in nonsense."""
    task = make_task(
        records_dir,
        "diff_cse",
        DiffCseConfig(lexical_layers=1, fusion_layers=1),
        init_checkpoint=str(exported[0]),
    )
    refuses(lambda: task.initialize(task.build_model()), "no language-model head", "diff_cse")


def test_settings_without_meaning_are_refused(records_dir):
    weights = {"replaced_token_weight": 0.0, "contrastive_weight": 0.0}
    where = "task.objectives.diff_cse"
    refuses(lambda: _task(records_dir, **weights), where, *weights)
    refuses(lambda: _task(records_dir, lexical_layers=3), f"{where}.lexical_layers", 3, 2)
