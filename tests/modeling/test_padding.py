"""An example means the same whatever it is padded to and whoever shares its batch."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.mlm import MlmConfig
from tests.modeling.helpers import build, make_pairs, make_tokens, output_of


@pytest.fixture(
    scope="module",
    params=["mean", *(pytest.param(name, marks=pytest.mark.long) for name in ("max", "cls"))],
)
def model(request):
    objectives = {"cmlm": CmlmConfig(num_projections=3), "mlm": MlmConfig()}
    return build(objectives, pooling=request.param)


@pytest.fixture(scope="module")
def large_model():
    """Returns the paper's position table: 256 tokens and 15 projected vectors."""
    return build({"cmlm": CmlmConfig()}, max_position_embeddings=271)


def _losses(model, padded):
    pairs = make_pairs(padded)
    features = {"cmlm": pairs, "mlm": {"segment_masked": pairs["second_masked"]}}
    outputs = model({name: features[name] for name in model.objectives})
    return {name: float(output.loss) for name, output in outputs.items()}


def test_padding_does_not_change_the_embedding(model):
    """The same tokens padded to 24, 32 and 45 have the same embedding."""
    lengths = [5, 24, 2]
    short = model.encoder(make_tokens(lengths, 24))["default"]
    for padded in (32, 45):
        longer = model.encoder(make_tokens(lengths, padded))["default"]
        np.testing.assert_allclose(longer, short, rtol=0, atol=1e-5)


def test_padding_does_not_change_the_losses(model):
    """CMLM's and MLM's loss of the same examples padded to 24, 32 and 45 is the same."""
    short = _losses(model, 24)
    for padded in (32, 45):
        assert _losses(model, padded) == pytest.approx(short, abs=1e-5)


def test_padding_with_the_position_table_of_the_paper(large_model):
    """Padding to 64, 128 or 256 of 271 positions changes neither embedding nor loss."""
    lengths = [40, 3, 64]
    short = large_model.encoder(make_tokens(lengths, 64))["default"]
    loss = _losses(large_model, 64)
    for padded in (128, 256):
        longer = large_model.encoder(make_tokens(lengths, padded))["default"]
        np.testing.assert_allclose(longer, short, rtol=0, atol=1e-5)
        assert _losses(large_model, padded) == pytest.approx(loss, abs=1e-5)


def test_order_of_the_batch(model):
    """Rows of a permuted batch have their own embeddings, and the loss is that of the batch."""
    order = [2, 0, 1]
    features = make_pairs()
    permuted = tf.nest.map_structure(lambda x: tf.gather(x, order), features)
    embeddings = model.encoder(features["first"])["default"].numpy()
    np.testing.assert_allclose(
        model.encoder(permuted["first"])["default"], embeddings[order], rtol=0, atol=1e-5
    )
    cmlm = model.objectives["cmlm"]
    losses = [output_of(cmlm, f, model.encoder).loss for f in (features, permuted)]
    assert float(losses[1]) == pytest.approx(float(losses[0]), abs=1e-5)


def test_company_in_the_batch(model):
    """A row alone has the embedding, and the loss sum, that it has among others."""
    features = make_pairs()
    together = model.encoder(features["first"])["default"].numpy()
    cmlm = model.objectives["cmlm"]
    whole, _ = output_of(cmlm, features, model.encoder).metrics["masked_token_loss"]
    parts = 0.0
    for row in range(3):
        alone = tf.nest.map_structure(lambda x, row=row: x[row : row + 1], features)
        embedding = model.encoder(alone["first"])["default"][0]
        np.testing.assert_allclose(embedding, together[row], rtol=0, atol=1e-5)
        parts += float(output_of(cmlm, alone, model.encoder).metrics["masked_token_loss"][0])
    assert parts == pytest.approx(float(whole), abs=1e-4)
