"""CMLM-CSE: its loss against the reference; without masked words it is SimCSE."""

import numpy as np
import pytest

from official_cmlm.objectives.cmlm_cse import CmlmCseConfig
from official_cmlm.objectives.contrastive import ContrastiveConfig
from tests.modeling.helpers import NUM_HEADS, oracle_block
from tests.objectives.helpers import (
    compute_masked_tokens,
    embed,
    make_batch,
    make_task,
    random_model,
    train,
    value,
)
from tests.oracles import contrastive_numpy as oracle


def _task(folder, encoder=None, **settings):
    config = CmlmCseConfig(**({"lexical_layers": 1, "fusion_layers": 2} | settings))
    return make_task(folder, "cmlm_cse", config, encoder)


@pytest.fixture(scope="module")
def batch(records_dir):
    return make_batch(_task(records_dir, augmentation="word_deletion", masking_rate=0.3))


def _model(folder, encoder=None, **settings):
    """Returns a model whose extractor holds its encoder's weights, all of them random."""
    task = _task(folder, encoder, **settings)
    model = random_model(task)
    task.initialize(model)
    return model


def _reference(model, batch, vectors=None):
    """Computes masked-token loss, accuracy and count; [h; h'] and the fusion blocks in NumPy."""
    masked, objective = batch["first_masked"], model.objectives["cmlm_cse"]
    vectors = embed(model, batch["first"]) if vectors is None else vectors
    # The frozen blocks are copies of the encoder's own first ones.
    lexical = model.encoder(masked)["encoder_outputs"][objective.config.lexical_layers - 1]
    blocks = [oracle_block(block) for block in objective.auxiliary.fusion]
    rows = zip(vectors, lexical.numpy(), masked["input_mask"].numpy())
    fused = [oracle.fuse(*row, blocks, NUM_HEADS) for row in rows]
    return compute_masked_tokens(model, [masked], [fused])


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        ({"mlm_weight": 1.0}, {}),
        ({"mlm_weight": 0.005, "lexical_layers": 2}, {}),
        ({"mlm_weight": 0.5, "contrastive_weight": 0.0, "fusion_layers": 1}, {}),
        ({"mlm_weight": 2.0, "contrastive_weight": 0.1}, {"pooling": "cls"}),
    ],
)
def test_loss_equals_the_reference(records_dir, batch, settings, encoder):
    """L = L_contrast + λ · L_mlm, each with its factor; the metrics are without them."""
    model = _model(records_dir, encoder, projection_head="none", **settings)
    output, config = model({"cmlm_cse": batch})["cmlm_cse"], model.objectives["cmlm_cse"].config
    views = [embed(model, batch[name]) for name in ("first", "second")]
    contrast = np.mean(oracle.simcse(*views, config.temperature))
    predicted, accuracy, count = _reference(model, batch)
    expected = config.contrastive_weight * contrast + config.mlm_weight * predicted
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    assert value(output, "contrastive_loss") == pytest.approx(contrast, rel=1e-3, abs=1e-5)
    assert value(output, "masked_token_loss") == pytest.approx(predicted, rel=1e-4)
    assert value(output, "masked_token_accuracy") == pytest.approx(accuracy)
    assert float(output.metrics["masked_token_loss"][1]) == count > 8


@pytest.mark.parametrize("conditioning", ["vector", "projected"])
@pytest.mark.parametrize("encoder", [{}, {"normalize": True}, {"dense_size": 4}])
def test_conditioning(records_dir, batch, conditioning, encoder):
    """h is the sentence vector, not normalised, or that after the projection head.

    A linear map brings it to the width of the lexical features.
    """
    model = _model(records_dir, encoder, conditioning=conditioning, mlm_weight=1.0)
    objective, outputs = model.objectives["cmlm_cse"], model.encoder(batch["first"])
    vectors = outputs["default" if "dense_size" in encoder else "vector"].numpy()
    if conditioning == "projected":
        vectors = objective.projection_head(vectors).numpy()
    if "dense_size" in encoder:
        kernel, bias = (weight.numpy() for weight in objective.auxiliary.widened.weights)
        vectors = vectors @ kernel + bias
    expected, _, _ = _reference(model, batch, vectors)
    output = model({"cmlm_cse": batch})["cmlm_cse"]
    assert value(output, "masked_token_loss") == pytest.approx(expected, rel=1e-4)


def _train(folder, name, config):
    """Returns model and losses of three steps with dropout; one layer is enough for them."""
    dropout = {"num_layers": 1, "dropout_rate": 0.1, "attention_dropout_rate": 0.1}
    task = make_task(folder, name, config, dropout)
    return train(task, 3, {name: make_batch(task)})


def test_without_masked_words_it_is_simcse(records_dir):
    """λ = 0: the losses and the weights of three steps with dropout are exactly SimCSE's."""
    expected, expected_losses = _train(records_dir, "contrastive", ContrastiveConfig())
    config = CmlmCseConfig(mlm_weight=0.0, lexical_layers=1, fusion_layers=1)
    model, losses = _train(records_dir, "cmlm_cse", config)
    assert losses == expected_losses and len(set(losses)) == 3
    for got, weight in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(got, weight)
    assert model.head is None and model.objectives["cmlm_cse"].auxiliary is None
