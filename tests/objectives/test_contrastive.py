"""The contrastive objective of SimCSE and Mirror-BERT against the reference."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.contrastive import ContrastiveConfig
from tests.modeling.helpers import output_of
from tests.objectives.helpers import Spy, embed, make_batch, make_task, random_model, value
from tests.oracles import contrastive_numpy as oracle


def _task(folder, encoder=None, **settings):
    return make_task(folder, "contrastive", ContrastiveConfig(**settings), encoder)


@pytest.fixture(scope="module")
def batch(records_dir):
    """Sentences, and the same with a word less: without dropout, equal views are too easy."""
    return make_batch(_task(records_dir, augmentation="word_deletion"))


def _views(model, batch):
    """Returns both views' vectors as the loss sees them; the projection head is in NumPy."""
    views = [model.encoder(batch[name])["vector"].numpy() for name in ("first", "second")]
    if model.encoder.projection is not None:
        views = [embed(model, batch[name]) for name in ("first", "second")]
    head = model.objectives["contrastive"].projection_head
    if head is None:
        return views
    kernel, bias = (weight.numpy() for weight in head.weights)
    return [np.tanh(view.astype(np.float64) @ kernel + bias) for view in views]


def _reference(first, second, config):
    """Computes the mean loss over all anchors and recall@1 of the first view."""
    settings = (config.temperature, config.positive_in_denominator)
    if config.negatives == "both_views":
        losses = oracle.info_nce(first, second, *settings)
        losses = losses if config.bidirectional else losses[: len(first)]
    else:
        losses = oracle.simcse(first, second, *settings)
        losses += oracle.simcse(second, first, *settings) if config.bidirectional else []
    hits = []
    for i, anchor in enumerate(first):
        own_view = [*first[:i], *first[i + 1 :]] if config.negatives == "both_views" else []
        hits.append(oracle.finds_own(anchor, [*second, *own_view], own=i))
    return math.fsum(losses) / len(losses), sum(hits) / len(hits)


SIMCSE = {}
MIRROR_BERT = {"temperature": 0.04, "negatives": "both_views", "bidirectional": True}


@pytest.mark.parametrize(
    ("settings", "encoder"),
    [
        (SIMCSE, {}),
        (SIMCSE, {"normalize": True}),
        (SIMCSE | {"projection_head": "none"}, {}),
        (SIMCSE | {"temperature": 1.0}, {"pooling": "cls"}),
        (SIMCSE | {"bidirectional": True}, {}),
        (SIMCSE | {"positive_in_denominator": False}, {}),
        (MIRROR_BERT, {}),
        (MIRROR_BERT | {"projection_head": "none"}, {}),
        (MIRROR_BERT | {"positive_in_denominator": False, "projection_head": "none"}, {}),
        (MIRROR_BERT | {"bidirectional": False, "temperature": 0.2}, {"pooling": "max"}),
        (MIRROR_BERT, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
)
def test_loss_and_recall_equal_the_reference(records_dir, batch, settings, encoder):
    """The loss of the vectors of both views, and how often the other view is the nearest."""
    task = _task(records_dir, encoder, **settings)
    model = random_model(task)
    output = model({"contrastive": batch})["contrastive"]
    config = task.chosen["contrastive"]
    expected, recall = _reference(*_views(model, batch), config)
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-4)
    total, count = output.metrics["contrastive_loss"]
    assert float(count) == 8.0
    assert float(total) / 8.0 == pytest.approx(float(output.loss))
    assert value(output, "recall_at_1") == pytest.approx(recall)


def test_alignment_and_uniformity(records_dir, batch):
    """The metrics are those of the exported vectors, by loops over Wang and Isola's definitions."""
    model = random_model(_task(records_dir, {"normalize": True}))
    output = model({"contrastive": batch})["contrastive"]
    first, second = (embed(model, batch[name]).astype(np.float64) for name in ("first", "second"))
    alignment = np.mean([((x - y) ** 2).sum() for x, y in zip(first, second)])
    potentials = [
        math.exp(-2 * ((x - y) ** 2).sum())
        for i, x in enumerate(first)
        for j, y in enumerate(first)
        if i != j
    ]
    uniformity = math.log(np.mean(potentials))
    assert value(output, "alignment") == pytest.approx(alignment, rel=1e-4)
    assert value(output, "uniformity") == pytest.approx(uniformity, rel=1e-4)
    assert value(output, "alignment_uniformity") == pytest.approx(alignment + uniformity, rel=1e-4)
    one = tf.nest.map_structure(lambda x: x[:1], batch)
    alone = model({"contrastive": one})["contrastive"].metrics
    assert [float(x) for x in alone["alignment_uniformity"]] == [0.0, 0.0]


def test_validation_compares_two_views(records_dir, mirrored):
    """Dropout is on: each view draws its own masks, the same in every validation."""
    model = random_model(_task(records_dir, {"dropout_rate": 0.3}))
    one, other = (model({"contrastive": mirrored}, training=False)["contrastive"] for _ in "ab")
    assert value(one, "alignment") == value(other, "alignment") > 0.01
    assert float(one.loss) == float(other.loss)


@pytest.fixture(scope="module")
def mirrored(records_dir):
    """Sentences of which both views are equal."""
    return make_batch(_task(records_dir))


@pytest.mark.parametrize("controlled", [True, False])
def test_controlled_dropout(records_dir, mirrored, controlled):
    """With it, equal texts have equal vectors under dropout; without it, they have not."""
    task = _task(
        records_dir,
        {"dropout_rate": 0.3, "attention_dropout_rate": 0.3},
        controlled_dropout=controlled,
    )
    model = random_model(task)
    spy = Spy(model.encoder, training=True)
    output = output_of(model.objectives["contrastive"], mirrored, spy)
    ((_, views, outputs),) = spy.calls
    assert views == 2
    first, second = np.split(outputs["default"].numpy(), 2)
    assert np.allclose(first, second, atol=1e-5) == controlled
    # The loss is that of the vectors under these very masks.
    head = model.objectives["contrastive"].projection_head
    config = task.chosen["contrastive"]
    expected, _ = _reference(head(first).numpy(), head(second).numpy(), config)
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-4)
