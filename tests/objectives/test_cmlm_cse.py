"""CMLM-CSE: its loss against the reference, and what SimCSE it becomes without the masked words."""

import numpy as np
import pytest

from official_cmlm.objectives.cmlm_cse import CmlmCseConfig
from tests.modeling.helpers import NUM_HEADS, oracle_block, randomize
from tests.objectives.helpers import (
    embed,
    make_batch,
    make_task,
    masked_tokens_reference,
    random_model,
    refuses,
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


def _lexical(model, masked):
    """Returns the outputs of the encoder's own first layers on the masked sentences."""
    layers = model.objectives["cmlm_cse"].config.lexical_layers
    return model.encoder(masked)["encoder_outputs"][layers - 1].numpy()


def _reference(model, batch, vectors=None):
    """Computes masked-token loss, accuracy and count; [h; h'] and the fusion blocks in NumPy."""
    masked = batch["first_masked"]
    vectors = embed(model, batch["first"]) if vectors is None else vectors
    blocks = [oracle_block(block) for block in model.objectives["cmlm_cse"].auxiliary.fusion]
    rows = zip(vectors, _lexical(model, masked), masked["input_mask"].numpy())
    fused = [oracle.fuse(*row, blocks, NUM_HEADS) for row in rows]
    return masked_tokens_reference(model, [masked], [fused])


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


def test_starting_weights_reach_the_extractor(records_dir, batch):
    """The extractor takes the weights the encoder starts with, also those set after building."""
    task = _task(records_dir)
    model = task.build_model()
    extractor = model.objectives["cmlm_cse"].auxiliary.extractor
    inputs = {name: batch["first_masked"][name] for name in batch["first"]}

    def same():
        got = extractor(inputs)["sequence_output"].numpy()
        return np.allclose(got, _lexical(model, inputs), rtol=1e-5, atol=1e-6)

    assert same()
    randomize(model.encoder, seed=9)
    assert not same()
    task.initialize(model)
    assert same()


def test_nothing_to_learn_is_refused(records_dir):
    """Both factors 0: the message names both."""
    build = lambda: _task(records_dir, mlm_weight=0.0, contrastive_weight=0.0)  # noqa: E731
    refuses(build, "task.objectives.cmlm_cse", "mlm_weight", "contrastive_weight")


def test_layers_of_the_encoder_are_named(records_dir):
    """The paper's 8 layers do not fit an encoder of 2, and the message says so."""
    build = lambda: make_task(records_dir, "cmlm_cse", CmlmCseConfig())  # noqa: E731
    refuses(build, "task.objectives.cmlm_cse.lexical_layers", "encoder.num_layers", 8, 2)
