"""DeCLUTR against the reference: mean positives, NT-Xent over 2AN spans, MLM on the anchors."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.inputs.pipeline import pad_sequences
from official_cmlm.inputs.views import RecordFacts, SpecialIds
from official_cmlm.objectives.declutr import DeclutrConfig
from tests.modeling.helpers import output_of
from tests.objectives.helpers import (
    Spy,
    compute_masked_tokens,
    end_to_end,
    make_batch,
    make_task,
    random_model,
    value,
)
from tests.oracles import contrastive_numpy as oracle
from tests.training.all_objectives import examples_of
from tests.training.helpers import data

# Anchors as they are, but for the tests of masked ones.
SPANS = {
    "min_span_length": 3,
    "max_span_length": 10,
    "masking_rate": 0.3,
    "contrastive_on_masked_anchors": False,
}
MASKED_ANCHORS = {"contrastive_on_masked_anchors": True}


def _task(folder, encoder=None, global_batch_size=4, **settings):
    config = DeclutrConfig(**(SPANS | settings))
    records = data(folder, seq_length=10, global_batch_size=global_batch_size)
    return make_task(folder, "declutr", config, encoder, train_data=records)


@pytest.fixture(scope="module")
def batch(records_dir):
    """Returns 4 documents with 2 anchors of 3 positives each."""
    return make_batch(_task(records_dir, num_positives=3), count=4)


def _spans(encode, batch, num_anchors, num_positives, masked=False):
    """Returns e_1 … e_AN and their mean positives, numbered as in §3.1; anchors masked or not."""
    anchors = [f"anchor_{a}{'_masked' * masked}" for a in range(num_anchors)]
    positives = [f"positive_{a}_{p}" for p in range(num_positives) for a in range(num_anchors)]
    anchors, positives = (
        [vector for name in names for vector in encode(batch[name], name)["default"].numpy()]
        for names in (anchors, positives)
    )
    return anchors, oracle.mean_positives(positives, len(anchors))


def _compute_masked(model, batch, num_anchors):
    """Computes the masked anchors' loss, accuracy and count from the encoder's outputs."""
    masked = [batch[f"anchor_{a}_masked"] for a in range(num_anchors)]
    sequences = [model.encoder(features)["sequence_output"].numpy() for features in masked]
    return compute_masked_tokens(model, masked, sequences)


@pytest.mark.parametrize(
    ("anchors", "positives", "settings", "encoder"),
    [
        (1, 1, {}, {}),
        (2, 2, {}, {}),
        (2, 3, {"mlm_weight": 0.1}, {}),
        (2, 2, {"temperature": 0.5, "mlm_weight": 2.0}, {"pooling": "cls"}),
        (2, 3, MASKED_ANCHORS, {}),
        (1, 2, MASKED_ANCHORS | {"mlm_weight": 0.5}, {"pooling": "cls"}),
        (2, 3, {"contrastive_weight": 0.25, "mlm_weight": 0.5}, {}),
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
    predicted, accuracy, count = _compute_masked(model, batch, anchors)
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
    expected = config.contrastive_weight * contrast + config.mlm_weight * predicted
    assert float(output.loss) == pytest.approx(expected, rel=1e-3, abs=1e-4)


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
    """In a random batch each group ends with its own longest span."""
    task, widths = _task(records_dir, num_positives=3), []
    view = task.chosen["declutr"].view(task.task_config.train_data, RecordFacts(task.vocabulary))
    examples = examples_of(str(records_dir), view)
    for start in range(0, 24, 4):
        rows = {name: value[start : start + 4] for name, value in examples.items()}
        batch = pad_sequences(rows, view, None, [None, None])
        for group in (view.anchors, view.positives):
            longest = max(int(tf.reduce_max(rows[name].row_lengths())) for name in group)
            assert {batch[name].shape[1] for name in group} == {longest}
        widths.append([batch[group[0]].shape[1] for group in (view.anchors, view.positives)])
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
    output = model({"declutr": unmasked})["declutr"]
    expected = oracle.nt_xent_mean(*_spans(model.encoder, batch, 2, 3), 0.05)
    assert float(output.loss) == pytest.approx(expected, rel=1e-3)
    assert value(output, "contrastive_loss") == pytest.approx(expected, rel=1e-3)
    for name in ("masked_token_loss", "masked_token_accuracy"):
        assert [float(sums) for sums in output.metrics[name]] == [0.0, 0.0]


def test_masked_words_alone(records_dir, batch):
    """contrastive_weight 0: the masked-token loss alone, in one pass over the masked anchors."""
    task = _task(records_dir, num_positives=3, contrastive_weight=0.0, mlm_weight=2.0)
    model = random_model(task)
    predicted, _, _ = _compute_masked(model, batch, 2)
    spy = Spy(model.encoder)
    output = output_of(model.objectives["declutr"], batch, spy)
    assert len(spy.calls) == 1
    assert float(output.loss) == pytest.approx(2.0 * predicted, rel=1e-4)
    assert value(output, "masked_token_loss") == pytest.approx(predicted, rel=1e-4)
    for name in ("contrastive_loss", "recall_at_1"):
        assert [float(sums) for sums in output.metrics[name]] == [0.0, 0.0]
    # Words to predict need no other documents.
    one = _task(records_dir, global_batch_size=1, num_anchors=1, contrastive_weight=0.0)
    one.check_batch_sizes(1)
