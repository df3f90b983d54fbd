"""DiffCSE: what the generator fills in, and the loss of finding it, against plain loops."""

import math

import numpy as np
import pytest
import tensorflow as tf

from experiments import registry
from official_cmlm.objectives.diff_cse import DiffCseConfig
from official_cmlm.training.task import SentenceEncoderTask
from tests.modeling.helpers import NUM_HEADS, oracle_block
from tests.objectives.helpers import (
    Spy,
    embed,
    make_batch,
    make_task,
    random_model,
    refuses,
    value,
)
from tests.oracles import contrastive_numpy as oracle
from tests.training.helpers import data, task_config

# The settings of the paper's code.
REFERENCE = {"detection": "reference", "bernoulli_masking": True}
SMALL = {"lexical_layers": 1, "fusion_layers": 2}


def _task(folder, encoder=None, **settings):
    config = DiffCseConfig(**(SMALL | settings))
    return make_task(folder, "diff_cse", config, encoder)


def _model(folder, encoder=None, **settings):
    """Returns a model whose generator holds the starting weights, all of them random."""
    task = _task(folder, encoder, **settings)
    model = random_model(task)
    task.initialize(model)
    return model


def _fill(model, batch, name):
    """Fills one view with the most likely tokens of the model's own encoder and head."""
    masked, ids = batch[f"{name}_masked"], batch[name]["input_word_ids"].numpy()
    states = model.encoder(masked)["sequence_output"]
    everywhere = tf.broadcast_to(tf.range(ids.shape[1]), ids.shape)
    likely = model.head(states, masked_positions=everywhere).numpy().argmax(axis=-1)
    filled = ids.copy()
    for row, mask in enumerate(batch[name]["input_mask"].numpy()):
        places = range(1, int(mask.sum()))
        if model.objectives["diff_cse"].config.detection == "masked":
            slots = zip(*(masked[f"masked_lm_{n}"].numpy()[row] for n in ("positions", "weights")))
            places = [int(place) for place, weight in slots if weight]
        for place in places:
            filled[row, place] = likely[row, place]
    return filled


def _reference(model, batch, vectors):
    """Computes the mean loss a token, the share of right answers, and the number of tokens.

    Args:
      model, batch: the model, and what it reads.
      vectors: h of each view that is judged.
    """
    objective = model.objectives["diff_cse"]
    everywhere = objective.config.detection == "reference"
    blocks = [oracle_block(block) for block in objective.auxiliary.fusion]
    kernel, bias = (weight.numpy() for weight in objective.is_original.weights)
    losses, right = [], []
    for name, view in zip(("first", "second"), vectors):
        filled, originals = _fill(model, batch, name), batch[name]["input_word_ids"].numpy()
        outputs = model.encoder({**batch[name], "input_word_ids": tf.constant(filled)})
        lexical = outputs["encoder_outputs"][objective.config.lexical_layers - 1].numpy()
        for row, vector in enumerate(view):
            mask = batch[name]["input_mask"].numpy()[row]
            fused = oracle.fuse(vector, lexical[row], mask, blocks, NUM_HEADS, everywhere)
            for place in range(0 if everywhere else 1, len(fused)):
                logit = float(np.asarray(fused)[place] @ kernel[:, 0] + bias[0])
                original = filled[row, place] == originals[row, place]
                losses.append(math.log1p(math.exp(-logit if original else logit)))
                right.append((logit > 0) == original)
    return np.mean(losses), np.mean(right), len(losses)


@pytest.mark.parametrize(
    "settings",
    [
        {"replaced_token_weight": 1.0},
        {"replaced_token_weight": 0.005, "lexical_layers": 2, "contrastive_weight": 0.5},
        {"replaced_token_weight": 1.0, "conditioning": "vector"},
        {"replaced_token_weight": 1.0, "projection_head": "mlp"},
        {"replaced_token_weight": 1.0, **REFERENCE},
        {"replaced_token_weight": 1.0, **REFERENCE, "projection_head": "mlp"},
        {"replaced_token_weight": 1.0, "encoder": {"dense_size": 4}},
    ],
)
def test_loss_equals_the_reference(records_dir, settings):
    """L = L_contrast + λ · L_rtd: of one view and real tokens, or of both and all positions.

    Both views differ here, and h is the vector before the projection head or after it. A linear map
    brings it to the width of the lexical features.
    """
    settings = {"projection_head": "none", "augmentation": "word_deletion"} | settings
    model = _model(records_dir, **settings)
    widened = model.objectives["diff_cse"].auxiliary.widened
    config = model.objectives["diff_cse"].config
    batch = make_batch(_task(records_dir, **settings), count=4)
    output = model({"diff_cse": batch})["diff_cse"]
    views = [embed(model, batch[name]) for name in ("first", "second")]
    compared = views
    if config.projection_head == "mlp":
        compared = [model.objectives["diff_cse"].projection_head(view).numpy() for view in views]
    contrast = np.mean(oracle.simcse(*compared, config.temperature))
    vectors = views if config.conditioning == "vector" else compared
    judged = vectors if config.detection == "reference" else vectors[:1]
    if widened is not None:
        kernel, bias = (weight.numpy() for weight in widened.weights)
        judged = [vectors @ kernel + bias for vectors in judged]
    replaced, accuracy, count = _reference(model, batch, judged)
    expected = config.contrastive_weight * contrast + config.replaced_token_weight * replaced
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert value(output, "replaced_token_loss") == pytest.approx(replaced, rel=1e-4)
    assert value(output, "replaced_token_accuracy") == pytest.approx(accuracy)
    assert float(output.metrics["replaced_token_loss"][1]) == count


@pytest.mark.parametrize("settings", [{}, REFERENCE], ids=["masked", "reference"])
def test_masked_words_are_filled_in(records_dir, settings):
    """Masked places only, or every token but the first, as training draws it; never padding."""
    dropout = {"dropout_rate": 0.5, "attention_dropout_rate": 0.5}
    model = _model(records_dir, dropout, **settings)
    batch = make_batch(_task(records_dir, dropout, **settings))
    objective, first = model.objectives["diff_cse"], batch["first"]

    def fill(training):
        encode = Spy(model.encoder, training)
        return objective.fill_in(first, batch["first_masked"], encode).numpy()

    np.testing.assert_array_equal(fill(None), _fill(model, batch, "first"))
    # In the reference's training the generator, too, has dropout.
    assert np.array_equal(fill(True), fill(None)) == (not settings)
    for training in (True, None):
        changed = fill(training) != first["input_word_ids"].numpy()
        masked = batch["first_masked"]["masked_lm_weights"].numpy().sum()
        assert (changed.sum() > masked) if settings else (0 < changed.sum() <= masked)
        assert not changed[:, 0].any() and not changed[first["input_mask"].numpy() == 0].any()


def test_each_view_has_a_masking_of_its_own(records_dir):
    """As published: equal views, of which different tokens are masked, by independent draws."""
    config = registry.load("diff_cse/bert_base").task.objectives.diff_cse
    task = make_task(records_dir, "diff_cse", DiffCseConfig(**config.as_dict() | SMALL))
    batch = make_batch(task, count=64)
    first, second = (batch[f"{name}_masked"] for name in ("first", "second"))
    assert np.array_equal(*(batch[name]["input_word_ids"] for name in ("first", "second")))
    chosen = [each["masked_lm_weights"].numpy().sum(axis=1) for each in (first, second)]
    assert not np.array_equal(*chosen)
    # 30 % of all tokens, with a standard deviation of 1.6 %; of a sequence, any number.
    candidates = batch["first"]["input_mask"].numpy().sum(axis=1) - 2
    share = sum(chosen).sum() / (2 * candidates.sum())
    assert abs(share - 0.3) < 0.06
    assert len({*(chosen[0] - np.round(0.3 * (candidates + 2)))}) > 3


def test_without_replaced_tokens(records_dir):
    """Weight 0 is SimCSE: no network is built, nothing is masked."""
    task = _task(records_dir, replaced_token_weight=0.0)
    model = random_model(task)
    assert model.head is None and model.objectives["diff_cse"].auxiliary is None
    assert "first_masked" not in make_batch(task)


def test_a_start_without_a_language_model_head_is_refused(exported, records_dir):
    """The generator would fill in nonsense."""
    task = make_task(
        records_dir,
        "diff_cse",
        DiffCseConfig(lexical_layers=1, fusion_layers=1),
        init_checkpoint=str(exported[0]),
    )
    refuses(lambda: task.initialize(task.build_model()), "no language-model head", "diff_cse")


def test_padding_of_several_hosts_is_refused(records_dir):
    """The mean over all positions depends on it; XLA and buckets have one length on all hosts."""
    reference = DiffCseConfig(**SMALL, **REFERENCE)

    def check(config=reference, static_shapes=False, **settings):
        records = data(records_dir, streams=2, **settings)
        task = task_config(records_dir, {"diff_cse": config}, train_data=records)
        SentenceEncoderTask(task, static_shapes=static_shapes).check_padding()

    refuses(check, "task.train_data.streams", "diff_cse")
    check(static_shapes=True)
    check(bucket_boundaries=[12, 24])
    check(DiffCseConfig(**SMALL))
