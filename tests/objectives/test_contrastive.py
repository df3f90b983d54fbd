"""The contrastive objective of SimCSE and Mirror-BERT against the reference."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.contrastive import ContrastiveConfig
from tests.modeling.helpers import output_of
from tests.objectives.helpers import (
    Spy,
    check_everything_learns,
    embed,
    first_batch,
    make_task,
    random_model,
    refuses,
    train,
    value,
)
from tests.oracles import contrastive_numpy as oracle
from tests.training.helpers import data


def _task(folder, encoder=None, **settings):
    return make_task(folder, "contrastive", ContrastiveConfig(**settings), encoder)


@pytest.fixture(scope="module")
def batch(records_dir):
    """Sentences, and the same with a word less: without dropout, equal views are too easy."""
    return first_batch(_task(records_dir, augmentation="word_deletion"))


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


def test_some_views_are_not_found(records_dir, batch):
    """Recall counts single anchors: it is neither 0 nor 1 for views of unlike sentences."""
    model = random_model(_task(records_dir))
    other = {**batch["second"], "input_word_ids": batch["second"]["input_word_ids"] % 40 + 40}
    output = model({"contrastive": {**batch, "second": other}})["contrastive"]
    first, second = _views(model, {**batch, "second": other})
    hits = [oracle.finds_own(anchor, second, own=i) for i, anchor in enumerate(first)]
    assert 0 < sum(hits) < 8
    assert value(output, "recall_at_1") == sum(hits) / 8


@pytest.fixture(scope="module")
def mirrored(records_dir):
    """Sentences of which both views are equal."""
    return first_batch(_task(records_dir))


def test_equal_views_are_found(records_dir, mirrored):
    """Without augmentation and dropout both views are one, and every anchor finds its own."""
    tf.nest.map_structure(np.testing.assert_array_equal, mirrored["first"], mirrored["second"])
    model = random_model(_task(records_dir))
    assert value(model({"contrastive": mirrored})["contrastive"], "recall_at_1") == 1.0


def test_both_views_are_one_pass(records_dir, batch):
    """The encoder is called once, with the first views before the second ones."""
    model = random_model(_task(records_dir))
    spy = Spy(model.encoder)
    output_of(model.objectives["contrastive"], batch, spy)
    ((inputs, views, _),) = spy.calls
    assert views == 2
    for name, values in inputs.items():
        both = np.concatenate([batch["first"][name], batch["second"][name]])
        np.testing.assert_array_equal(values, both)


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


def test_projection_head_is_not_exported(records_dir, batch):
    """The head is in the loss and is trained, but the encoder does not know of it."""
    model = random_model(_task(records_dir))
    plain = random_model(_task(records_dir, projection_head="none"))
    assert plain.objectives["contrastive"].projection_head is None
    head = model.objectives["contrastive"].projection_head
    own = {id(weight) for weight in head.weights}
    assert len(own) == 2
    assert not own & {id(weight) for weight in model.encoder.weights}
    assert len(model.encoder.weights) == len(plain.encoder.weights)
    with tf.GradientTape() as tape:
        loss = model({"contrastive": batch})["contrastive"].loss
    # All anchors' similarities see the bias, so that it learns too.
    for gradient in tape.gradient(loss, head.trainable_variables):
        assert np.abs(gradient).max() > 1e-6
    before = embed(model, batch["first"])
    head.kernel.assign(head.kernel[::-1])
    assert float(model({"contrastive": batch})["contrastive"].loss) != pytest.approx(float(loss))
    np.testing.assert_array_equal(embed(model, batch["first"]), before)


def test_gradient_reaches_the_whole_encoder(records_dir, batch):
    """All of the encoder learns, the keys' biases apart, and no language-model head is built."""
    model = random_model(_task(records_dir, **MIRROR_BERT))
    assert model.head is None
    check_everything_learns(model, "contrastive", batch, 37 + 2)


def test_training_steps_lower_the_loss(records_dir, batch):
    """Some steps of the task with dropout and the optimizer learn a batch."""
    task = _task(records_dir, {"dropout_rate": 0.1, "attention_dropout_rate": 0.1})
    _, losses = train(task, 8, {"contrastive": batch})
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def test_span_masks_of_packed_segments_are_refused(records_dir):
    """`span_mask` works on a sentence's own text; the field of the records is named."""
    config = ContrastiveConfig(
        augmentation="span_mask", train_data=data(records_dir, segment="packed")
    )
    refuses(
        lambda: make_task(records_dir, "contrastive", config),
        "task.objectives.contrastive.train_data.segment",
        "span_mask",
    )


def test_a_batch_of_one_is_refused(records_dir):
    """One example has no negatives."""
    task = make_task(
        records_dir,
        "contrastive",
        ContrastiveConfig(),
        train_data=data(records_dir, global_batch_size=1),
    )
    refuses(lambda: task.check_batch_sizes(1), "task.train_data.global_batch_size", 1)
