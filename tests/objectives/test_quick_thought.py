"""The retrieval objective against the reference."""

import pytest

from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from tests.modeling.helpers import build, make_pairs
from tests.objectives.helpers import check_everything_learns
from tests.oracles import cmlm_numpy as oracle

LENGTHS = {"first": (5, 9, 3, 7, 2), "second": (7, 4, 10, 2, 8), "counts": (1, 1, 1, 1, 1)}


@pytest.fixture(scope="module")
def pairs():
    return make_pairs(**LENGTHS)


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        ({}, {}),
        ({"margin": 0.0, "logit_scale": 1.0}, {}),
        ({"logit_scale": 3.0, "normalize": False}, {}),
        ({"bidirectional": False}, {}),
        ({}, {"pooling": "max"}),
        ({}, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
)
def test_loss_and_recall_equal_the_reference(pairs, settings, encoder):
    """The loss of the exported embeddings of s1 and s2, and how often s2 is s1's nearest."""
    config = QuickThoughtConfig(**settings)
    model = build({"quick_thought": config}, **encoder)
    first, second = (model.encoder(pairs[name])["default"].numpy() for name in ("first", "second"))
    output = model({"quick_thought": pairs})["quick_thought"]
    expected = oracle.additive_margin_softmax(
        first, second, config.margin, config.logit_scale, config.normalize, config.bidirectional
    )
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    total, count = output.metrics["retrieval_loss"]
    assert float(count) == 5.0
    assert float(total) == pytest.approx(5.0 * expected, rel=1e-4)
    hits, count = output.metrics["recall_at_1"]
    recall = oracle.recall_at_1(first, second, config.normalize)
    assert float(hits) / float(count) == pytest.approx(recall)


def test_equal_sides_are_found(pairs):
    """Where s2 is s1, every sentence finds its own."""
    model = build({"quick_thought": QuickThoughtConfig()})
    same = {**pairs, "second": pairs["first"]}
    hits, count = model({"quick_thought": same})["quick_thought"].metrics["recall_at_1"]
    assert float(hits) == float(count) == 5.0


def test_gradient_reaches_the_whole_encoder(pairs):
    """All of the encoder learns, the keys' biases apart, and no language-model head is built."""
    model = build({"quick_thought": QuickThoughtConfig()})
    assert model.head is None
    check_everything_learns(model, "quick_thought", pairs, 37)
