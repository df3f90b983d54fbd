"""The plain masked language model against the reference."""

import pytest
import tensorflow as tf

from official_cmlm.objectives.mlm import MlmConfig
from tests.modeling.helpers import (
    NUM_HEADS,
    build,
    make_masked,
    oracle_encoder,
    oracle_head,
)
from tests.oracles import cmlm_numpy as oracle

ACTIVATIONS = {"gelu": oracle.gelu_tanh, "gelu_exact": oracle.gelu_erf, "relu": oracle.relu}


def _reference(model, masked, activation):
    """Returns log probabilities and ids of all used predictions."""
    weights, head = oracle_encoder(model.encoder), oracle_head(model.head)
    rows, ids = [], []
    for i, word_ids in enumerate(masked["input_word_ids"].numpy()):
        mask = masked["input_mask"].numpy()[i]
        outputs = oracle.bert_encode(
            weights, word_ids, mask, [0] * len(mask), NUM_HEADS, activation=activation
        )[-1]
        for slot, weight in enumerate(masked["masked_lm_weights"].numpy()[i]):
            if weight:
                hidden = outputs[masked["masked_lm_positions"].numpy()[i, slot]]
                rows.append(
                    oracle.masked_lm_log_probs(hidden, head, weights["word_embeddings"], activation)
                )
                ids.append(masked["masked_lm_ids"].numpy()[i, slot])
    return rows, ids


@pytest.mark.parametrize(
    ("activation", "width"), [*((activation, 0) for activation in ACTIVATIONS), ("gelu", 6)]
)
def test_loss_and_accuracy_equal_the_reference(activation, width):
    """Mean over the masked tokens of the batch, with the tied head; accuracy of the best guess.

    The head leads to the width of the table, as ALBERT's does.
    """
    model = build({"mlm": MlmConfig()}, hidden_activation=activation, embedding_width=width)
    masked = make_masked((6, 2, 9), 11, (3, 1, 4))
    rows, _ = _reference(model, masked, ACTIVATIONS[activation])
    # The first of all predictions is made right.
    ids = masked["masked_lm_ids"].numpy()
    ids[0, 0] = int(rows[0].argmax())
    masked["masked_lm_ids"] = tf.constant(ids)
    rows, ids = _reference(model, masked, ACTIVATIONS[activation])
    output = model({"mlm": {"segment_masked": masked}})["mlm"]
    expected = oracle.masked_lm_loss(rows, ids, [1.0] * 8)
    assert float(output.loss) == pytest.approx(expected, rel=1e-4)
    total, weight = output.metrics["masked_token_loss"]
    assert float(total) / float(weight) == pytest.approx(expected, rel=1e-4)
    correct, weight = output.metrics["masked_token_accuracy"]
    hits = sum(int(row.argmax()) == word for row, word in zip(rows, ids))
    assert (float(correct), float(weight)) == (hits, 8.0)
    assert hits >= 1


def test_head_is_tied_to_the_embedding_table():
    """The head has no output matrix of its own: it uses the encoder's table, the very variable."""
    model = build({"mlm": MlmConfig()})
    assert model.head.embedding_table is model.encoder.bert.get_embedding_table()
    own = {w.ref() for w in model.head.weights} - {w.ref() for w in model.encoder.weights}
    assert len(own) == 5
