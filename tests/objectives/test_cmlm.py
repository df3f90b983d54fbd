"""The CMLM objective end to end against the reference, and what its loss depends on."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.errors import UserError
from official_cmlm.objectives.cmlm import CmlmConfig
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import (
    NUM_HEADS,
    build,
    make_pairs,
    oracle_encoder,
    oracle_head,
    oracle_pairs,
    oracle_projection,
)
from tests.oracles import cmlm_numpy as oracle

P = 48


def _model(count=3, architecture="concat", **encoder):
    config = CmlmConfig(num_projections=count, architecture=architecture)
    return build({"cmlm": config}, **encoder)


@pytest.fixture(scope="module")
def models():
    return {name: _model(architecture=name) for name in ("concat", "skip")}


def _log_probs(model, example):
    """Returns log probabilities of an example's used predictions; the skip layer is in NumPy."""
    weights, cmlm = oracle_encoder(model.encoder), model.objectives["cmlm"]
    encoded = oracle.bert_encode(
        weights,
        example["first_word_ids"],
        example["first_mask"],
        [0] * len(example["first_mask"]),
        NUM_HEADS,
    )
    vector = oracle.mean_pool(encoded[-1], example["first_mask"])
    projected = oracle.project(vector, oracle_projection(cmlm.projection))
    outputs = oracle.bert_encode(
        weights,
        example["second_word_ids"],
        example["second_mask"],
        [0] * len(example["second_mask"]),
        NUM_HEADS,
        dense_inputs=projected,
        dense_positions=range(P - len(projected), P),
    )[-1]
    rows = []
    for position, weight in zip(example["masked_lm_positions"], example["masked_lm_weights"]):
        if weight == 0:
            continue
        hidden = outputs[position]
        if cmlm.skip is not None:
            kernel, bias = (w.numpy() for w in cmlm.skip.weights)
            hidden = np.concatenate([hidden, *projected]) @ kernel + bias
        rows.append(
            oracle.masked_lm_log_probs(hidden, oracle_head(model.head), weights["word_embeddings"])
        )
    return rows


@pytest.mark.parametrize(
    ("count", "encoder"),
    [
        (1, {}),
        (3, {}),
        (15, {}),
        (3, {"pooling": "max"}),
        (3, {"pooling": "cls"}),
        (3, {"hidden_activation": "relu"}),
        (3, {"sentence_vector": "projected_mean", "num_projections": 3}),
    ],
)
def test_loss_equals_the_reference(count, encoder):
    """Loss per masked token over the whole batch, for each N and pooling."""
    model = _model(count, **encoder)
    features = make_pairs()
    expected = oracle.cmlm_loss(
        oracle_pairs(features),
        oracle_encoder(model.encoder),
        oracle_projection(model.objectives["cmlm"].projection),
        oracle_head(model.head),
        NUM_HEADS,
        count,
        range(P - count, P),
        pooling=encoder.get("pooling", "mean"),
        activation=oracle.relu if encoder.get("hidden_activation") else oracle.gelu_tanh,
    )
    output = model({"cmlm": features})["cmlm"]
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    total, weight = output.metrics["masked_token_loss"]
    assert float(weight) == 8.0
    assert float(total) == pytest.approx(8.0 * expected, rel=1e-4)


def test_skip_equals_the_reference(models):
    """`skip`: each output beside all N vectors in order, through one linear layer to the head."""
    features = make_pairs()
    model = models["skip"]
    weights = features["second_masked"]["masked_lm_weights"].numpy()
    ids = features["second_masked"]["masked_lm_ids"].numpy()[weights > 0]
    rows = [row for example in oracle_pairs(features) for row in _log_probs(model, example)]
    expected = oracle.masked_lm_loss(rows, ids, [1.0] * len(ids))
    assert float(model({"cmlm": features})["cmlm"].loss) == pytest.approx(expected, rel=1e-4)


def test_accuracy(models):
    """Predictions that are the reference's best guess count, others do not, unused never."""
    features = make_pairs()
    masked = features["second_masked"]
    weights = masked["masked_lm_weights"].numpy()
    ids = masked["masked_lm_ids"].numpy()
    best = [
        int(row.argmax())
        for example in oracle_pairs(features)
        for row in _log_probs(models["concat"], example)
    ]
    # All right but the first two.
    ids[weights > 0] = [(b + 1) % 100 if i < 2 else b for i, b in enumerate(best)]
    masked["masked_lm_ids"] = tf.constant(ids)
    correct, weight = models["concat"]({"cmlm": features})["cmlm"].metrics["masked_token_accuracy"]
    assert (float(correct), float(weight)) == (6.0, 8.0)


def test_gradient_reaches_the_words_of_the_first_sentence(models):
    """Through the vector alone: seen at token types, of which only s1 has the second one."""
    model, features = models["concat"], make_pairs()
    first = features["first"]
    features["first"] = {**first, "input_type_ids": tf.ones_like(first["input_type_ids"])}
    types = model.encoder.bert._type_embedding_layer.weights[0]
    with tf.GradientTape() as tape:
        loss = model({"cmlm": features})["cmlm"].loss
    gradient = tf.convert_to_tensor(tape.gradient(loss, types)).numpy()
    assert np.abs(gradient[1]).max() > 1e-5


def test_nothing_to_predict():
    """A batch without predictions has the loss 0 and finite gradients."""
    model, features = _model(), make_pairs()
    masked = features["second_masked"]
    nothing = tf.zeros_like(masked["masked_lm_weights"])
    features["second_masked"] = {**masked, "masked_lm_weights": nothing}
    with tf.GradientTape() as tape:
        loss = model({"cmlm": features})["cmlm"].loss
    assert float(loss) == 0.0
    for gradient in tape.gradient(loss, model.trainable_variables):
        assert not np.abs(tf.convert_to_tensor(gradient)).any()


def test_narrow_embeddings_of_tokens_are_refused():
    """Projected vectors, the identity among them, have no place beside these."""
    config = tiny_encoder_config(embedding_width=6)
    with pytest.raises(UserError, match="^there: encoder.embedding_width is 6, .*hidden_size; ta"):
        CmlmConfig().check(config, "there")
