"""An example means the same whatever it is padded to and whoever shares its batch."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.mlm import MlmConfig
from tests.modeling.helpers import build, make_pairs, output_of


@pytest.fixture(
    scope="module",
    params=["mean", *(pytest.param(name, marks=pytest.mark.long) for name in ("max", "cls"))],
)
def model(request):
    objectives = {"cmlm": CmlmConfig(num_projections=3), "mlm": MlmConfig()}
    return build(objectives, pooling=request.param)


def _losses(model, padded):
    pairs = make_pairs(padded)
    features = {"cmlm": pairs, "mlm": {"segment_masked": pairs["second_masked"]}}
    outputs = model({name: features[name] for name in model.objectives})
    return {name: float(output.loss) for name, output in outputs.items()}


def test_padding_does_not_change_the_losses(model):
    """CMLM's and MLM's loss of the same examples padded to 24, 32 and 45 is the same."""
    short = _losses(model, 24)
    for padded in (32, 45):
        assert _losses(model, padded) == pytest.approx(short, abs=1e-5)


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
