"""DeCLUTR against the reference: mean positives, NT-Xent over 2AN spans, MLM on the anchors."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.views import SpecialIds
from official_cmlm.objectives.declutr import DeclutrConfig
from tests.modeling.helpers import output_of
from tests.objectives.helpers import (
    Spy,
    check_everything_learns,
    end_to_end,
    first_batch,
    make_task,
    masked_tokens_reference,
    random_model,
    refuses,
    train,
    value,
)
from tests.oracles import contrastive_numpy as oracle
from tests.training.helpers import data

NAN, INF = float("nan"), float("inf")
# Anchors as they are, but for the tests of masked ones.
SPANS = {
    "min_span_length": 3,
    "max_span_length": 10,
    "masking_rate": 0.3,
    "contrastive_on_masked_anchors": False,
}
MASKED_ANCHORS = {"contrastive_on_masked_anchors": True}
MASKED = ("masked_token_loss", "masked_token_accuracy")


def _task(folder, encoder=None, global_batch_size=4, seq_length=10, **settings):
    config = DeclutrConfig(**(SPANS | settings))
    records = {"seq_length": seq_length, "global_batch_size": global_batch_size}
    return make_task(
        folder,
        "declutr",
        config,
        encoder,
        train_data=data(folder, **records),
        validation_data=data(folder, is_training=False, **records),
    )


@pytest.fixture(scope="module")
def batch(records_dir):
    """Returns 4 documents with 2 anchors of 3 positives each."""
    return first_batch(_task(records_dir, num_positives=3))


def _spans(encode, batch, num_anchors, num_positives, masked=False):
    """Returns e_1 … e_AN and their mean positives, numbered as in §3.1; anchors masked or not."""
    anchors = [f"anchor_{a}{'_masked' * masked}" for a in range(num_anchors)]
    positives = [f"positive_{a}_{p}" for p in range(num_positives) for a in range(num_anchors)]
    anchors, positives = (
        [vector for name in names for vector in encode(batch[name], name)["default"].numpy()]
        for names in (anchors, positives)
    )
    return anchors, oracle.mean_positives(positives, len(anchors))


def _masked(model, batch, num_anchors):
    """Computes the masked anchors' loss, accuracy and count from the encoder's outputs."""
    masked = [batch[f"anchor_{a}_masked"] for a in range(num_anchors)]
    sequences = [model.encoder(features)["sequence_output"].numpy() for features in masked]
    return masked_tokens_reference(model, masked, sequences)


@pytest.mark.parametrize(
    ("anchors", "positives", "settings", "encoder"),
    [
        (1, 1, {}, {}),
        (2, 2, {}, {}),
        (2, 3, {"mlm_weight": 0.1}, {}),
        (2, 2, {"temperature": 0.5, "mlm_weight": 2.0}, {"pooling": "cls"}),
        (2, 3, MASKED_ANCHORS, {}),
        (1, 2, MASKED_ANCHORS | {"mlm_weight": 0.5}, {"pooling": "cls"}),
    ],
)
def test_loss_equals_the_reference(records_dir, batch, anchors, positives, settings, encoder):
    """L = L_contrastive per span + mlm_weight · L_MLM per masked token of the anchors."""
    shape = {"num_anchors": anchors, "num_positives": positives}
    task = _task(records_dir, encoder, **shape, **settings)
    model, config = random_model(task), task.chosen["declutr"]
    # Without dropout.
    output = model({"declutr": batch}, training=True)["declutr"]
    spans = _spans(model.encoder, batch, anchors, positives, settings.keys() >= {*MASKED_ANCHORS})
    contrast = oracle.nt_xent_mean(*spans, config.temperature)
    predicted, accuracy, count = _masked(model, batch, anchors)
    assert value(output, "contrastive_loss") == pytest.approx(contrast, rel=1e-3, abs=1e-4)
    assert float(output.metrics["contrastive_loss"][1]) == 4 * anchors
    hits = [
        oracle.finds_own(anchor, [*spans[1], *spans[0][:i], *spans[0][i + 1 :]], own=i)
        for i, anchor in enumerate(spans[0])
    ]
    assert value(output, "recall_at_1") == pytest.approx(np.mean(hits))
    assert value(output, "masked_token_loss") == pytest.approx(predicted, rel=1e-4)
    assert value(output, "masked_token_accuracy") == pytest.approx(accuracy)
    assert float(output.metrics["masked_token_loss"][1]) == count >= 4 * anchors
    expected = contrast + config.mlm_weight * predicted
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_batch_is_what_the_loss_needs(batch):
    """A anchors, A · P positives and A masked anchors, 4 documents each; spans differ."""
    anchors = {f"anchor_{a}" for a in range(2)}
    positives = {f"positive_{a}_{p}" for a in range(2) for p in range(3)}
    masked = {f"{name}_masked" for name in anchors}
    assert set(batch) == {"key", "position"} | anchors | positives | masked
    ids = [batch[name]["input_word_ids"].numpy() for name in sorted(anchors | positives)]
    assert {len(rows) for rows in ids} == {4}
    assert len({rows.tobytes() for rows in ids}) == len(ids)


def test_every_positive_counts(records_dir, batch):
    """Each positive moves the loss, the order of an anchor's positives does not."""
    model = random_model(_task(records_dir, mlm_weight=0.0))
    loss = lambda features: float(model({"declutr": features})["declutr"].loss)  # noqa: E731
    before = loss(batch)
    for a in range(2):
        one, two = f"positive_{a}_0", f"positive_{a}_1"
        swapped = {**batch, one: batch[two], two: batch[one]}
        assert loss(swapped) == pytest.approx(before, rel=1e-5)
        for name in (one, two):
            rows = tf.nest.map_structure(lambda x: x[::-1], batch[name])
            assert abs(loss({**batch, name: rows}) - before) > 1e-4
    # Positives belong to their own anchor.
    crossed = {
        **batch,
        "positive_0_0": batch["positive_1_0"],
        "positive_1_0": batch["positive_0_0"],
    }
    assert abs(loss(crossed) - before) > 1e-4


def test_positives_are_averaged_before_they_are_normalised(records_dir, batch):
    """e_{i+AN} is the mean of the vectors, in which long ones count more than short ones."""
    task = _task(records_dir, num_positives=3, mlm_weight=0.0, temperature=1.0)
    table = np.random.default_rng(3).normal(size=[len(task.vocabulary), 16])
    # Words up to 30 times as long as others.
    table *= np.geomspace(0.1, 3.0, len(table))[:, np.newaxis]

    def encode(inputs, name, views=1):
        inputs = end_to_end(inputs)
        ids, mask = (inputs[f"input_{name}"].numpy() for name in ("word_ids", "mask"))
        return {"default": tf.constant((table[ids] * mask[..., np.newaxis]).sum(1), tf.float32)}

    output = output_of(random_model(task).objectives["declutr"], batch, encode)
    expected = oracle.nt_xent_mean(*_spans(encode, batch, 2, 3), 1.0)
    assert float(output.loss) == pytest.approx(expected, rel=1e-5)


def test_contrastive_inputs_are_not_masked(records_dir, batch):
    """One pass over the anchors as they are, one over the positives, one over masked anchors."""
    task = _task(records_dir)
    model = random_model(task)
    spy = Spy(model.encoder)
    output_of(model.objectives["declutr"], batch, spy)
    (anchors, _, _), (positives, _, _), (masked, _, _) = spy.calls
    names = ["anchor_0", "anchor_1"]
    spans = names + [f"positive_{a}_{p}" for a in range(2) for p in range(2)]
    ids = {
        name: batch[name]["input_word_ids"].numpy()
        for name in (*spans, *batch)
        if name not in ("key", "position")
    }
    mask = task.vocabulary.special_ids["mask"]
    for found, expected in ((anchors, names), (positives, spans[2:])):
        rows = found["input_word_ids"].numpy()
        np.testing.assert_array_equal(rows, np.concatenate([ids[name] for name in expected]))
        assert mask not in rows
    np.testing.assert_array_equal(
        masked["input_word_ids"], np.concatenate([ids[f"{name}_masked"] for name in names])
    )
    assert mask in masked["input_word_ids"].numpy()


def test_masked_anchors_are_encoded_once(records_dir, batch):
    """One pass over the masked anchors feeds both losses, as in the reference code."""
    model = random_model(_task(records_dir, num_positives=3, **MASKED_ANCHORS))
    seen = []
    encoder = model.encoder.call

    def call(inputs, *args, **kwargs):
        seen.append(inputs["input_word_ids"].shape[0])
        return encoder(inputs, *args, **kwargs)

    model.encoder.call = call
    model({"declutr": batch}, training=True)
    # 4 documents: 2 anchors each, then 6 positives each.
    assert seen == [8, 24]
    changed = {**batch, "anchor_0": batch["anchor_1"]}

    def losses(training):
        both = (model({"declutr": each}, training=training) for each in (batch, changed))
        return [float(output["declutr"].loss) for output in both]

    assert len(set(losses(True))) == 1
    # Validation compares the anchors as they are.
    assert len(set(losses(False))) == 2


def test_positives_are_padded_apart_from_anchors(records_dir):
    """In a random batch each group ends with its own longest span; in buckets all are equal."""
    task = _task(records_dir, num_positives=3)
    batches = task.build_inputs(task.task_config.train_data).take(6)
    widths = []
    for batch in (element["declutr"] for element in batches):
        names = ("anchor_", "positive_")
        groups = [[n for n in batch if n.startswith(g) and "masked" not in n] for g in names]
        for group in groups:
            longest = max(batch[n]["input_mask"].numpy().sum(axis=1).max() for n in group)
            assert {batch[n]["input_word_ids"].shape[1] for n in group} == {longest}
        widths.append([batch[group[0]]["input_word_ids"].shape[1] for group in groups])
    assert any(anchors > positives for anchors, positives in widths)


def test_anchors_are_masked_independently(records_dir, batch):
    """Even equal anchors of a document have their masked places drawn one by one."""
    task = _task(records_dir)
    features = {"key": batch["key"], "anchor_0": batch["anchor_0"], "anchor_1": batch["anchor_0"]}
    for augment in task.chosen["declutr"].augments(SpecialIds.of(task.vocabulary)):
        features = augment(features)
    places = [features[f"anchor_{a}_masked"]["masked_lm_positions"].numpy() for a in range(2)]
    assert places[0].shape == places[1].shape
    assert not np.array_equal(*places)


def test_without_masked_words(records_dir, batch):
    """mlm_weight 0: the contrastive loss alone, no head, nothing masked, metrics that are 0."""
    task = _task(records_dir, num_positives=3, mlm_weight=0.0)
    assert task.chosen["declutr"].augments(SpecialIds.of(task.vocabulary)) == []
    unmasked = {name: batch[name] for name in batch if not name.endswith("_masked")}
    model = random_model(task)
    assert model.head is None
    outputs = model({"declutr": unmasked})
    expected = oracle.nt_xent_mean(*_spans(model.encoder, batch, 2, 3), 0.05)
    assert float(outputs["declutr"].loss) == pytest.approx(expected, rel=1e-3)
    metrics = task.build_metrics()
    task.process_metrics(metrics, {}, outputs)
    results = {metric.name: float(metric.result()) for metric in metrics}
    assert results["declutr/contrastive_loss"] == pytest.approx(expected, rel=1e-3)
    assert all(results[f"declutr/{name}"] == 0.0 for name in MASKED)


def test_masked_words_alone(records_dir, batch):
    """contrastive_weight 0: the masked-token loss alone, in one pass over the masked anchors."""
    task = _task(records_dir, num_positives=3, contrastive_weight=0.0, mlm_weight=2.0)
    model = random_model(task)
    predicted, _, _ = _masked(model, batch, 2)
    outputs = model({"declutr": batch})
    assert float(outputs["declutr"].loss) == pytest.approx(2.0 * predicted, rel=1e-4)
    metrics = task.build_metrics()
    task.process_metrics(metrics, {}, outputs)
    results = {metric.name: float(metric.result()) for metric in metrics}
    assert results["declutr/masked_token_loss"] == pytest.approx(predicted, rel=1e-4)
    assert results["declutr/contrastive_loss"] == results["declutr/recall_at_1"] == 0.0
    spy = Spy(model.encoder)
    output_of(model.objectives["declutr"], batch, spy)
    assert len(spy.calls) == 1
    # Words to predict need no other documents.
    one = _task(records_dir, global_batch_size=1, num_anchors=1, contrastive_weight=0.0)
    one.check_batch_sizes(1)


def test_contrastive_weight_is_a_factor(records_dir, batch):
    """Its default leaves the sum of both losses as it is."""
    shape = {"num_positives": 3, "mlm_weight": 0.5}
    plain = random_model(_task(records_dir, **shape))({"declutr": batch})["declutr"]
    task = _task(records_dir, contrastive_weight=0.25, **shape)
    weighted = random_model(task)({"declutr": batch})["declutr"]
    contrast, predicted = (value(plain, f"{name}_loss") for name in ("contrastive", "masked_token"))
    assert DeclutrConfig().contrastive_weight == 1.0
    assert float(plain.loss) == pytest.approx(contrast + 0.5 * predicted, rel=1e-6)
    assert float(weighted.loss) == pytest.approx(0.25 * contrast + 0.5 * predicted, rel=1e-6)


def test_nothing_to_learn_is_refused(records_dir):
    """Both factors 0: the message names both."""
    build = lambda: _task(records_dir, mlm_weight=0.0, contrastive_weight=0.0)  # noqa: E731
    refuses(build, "task.objectives.declutr", "mlm_weight", "contrastive_weight")


def test_gradient_reaches_the_whole_model(records_dir, batch):
    """Encoder and head learn, the keys' biases apart."""
    model = random_model(_task(records_dir))
    check_everything_learns(model, "declutr", batch, 37 + 5)


def test_training_steps_lower_the_loss(records_dir, batch):
    """Some steps of the task with dropout and the optimizer learn a batch."""
    dropout = {"num_layers": 1, "dropout_rate": 0.1, "attention_dropout_rate": 0.1}
    _, losses = train(_task(records_dir, dropout), 8, {"declutr": batch})
    assert np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("weight", 0.0),
        ("weight", -1.0),
        ("temperature", 0.0),
        ("temperature", NAN),
        ("num_anchors", 0),
        ("num_positives", 0),
        ("min_span_length", 0),
        ("min_span_length", 9),
        ("sampling", "overlapping"),
        ("mlm_weight", -1.0),
        ("mlm_weight", NAN),
        ("mlm_weight", INF),
        ("contrastive_weight", -1.0),
        ("contrastive_weight", NAN),
        ("contrastive_weight", INF),
        ("temperature", INF),
        ("temperature", 1e-5),
        ("masking_rate", 0.0),
        ("max_predictions", 0),
        ("anchor_beta", [4]),
        ("min_document_tokens", 39),
    ],
)
def test_settings_without_meaning_are_refused(records_dir, field, wrong):
    """The message names the field and what it was set to."""
    build = lambda: _task(records_dir, **{field: wrong})  # noqa: E731
    refuses(build, "task.objectives.declutr", field, wrong)


def test_spans_longer_than_the_position_table_are_refused(records_dir):
    """48 positions hold spans of 48 tokens and no longer ones."""
    fields = ("task.objectives.declutr.max_span_length", "max_position_embeddings", 49, 48)
    refuses(lambda: _task(records_dir, seq_length=48, max_span_length=49), *fields)
    _task(records_dir, seq_length=48, max_span_length=48)
    # An offset takes rows from the table.
    encoder = {"position_offset": 2}
    build = lambda: _task(records_dir, encoder, seq_length=46, max_span_length=47)  # noqa: E731
    refuses(build, "task.objectives.declutr.max_span_length", 47, 46)


def test_spans_longer_than_the_sequences_are_refused(records_dir):
    """The records' `seq_length` must have room for the longest span."""
    build = lambda: _task(records_dir, seq_length=9)  # noqa: E731
    refuses(build, "task.train_data.seq_length", "declutr.max_span_length", 9, 10)


def test_a_single_span_is_refused(records_dir):
    """One document with one anchor has no negatives; with two anchors it has."""
    task = _task(records_dir, global_batch_size=1, num_anchors=2)
    task.check_batch_sizes(1)
    task = _task(records_dir, global_batch_size=1, num_anchors=1)
    refuses(lambda: task.check_batch_sizes(1), "task.train_data.global_batch_size", 1)
