"""The plain masked language model against the reference."""

import pytest
import tensorflow as tf

from official_cmlm.objectives.mlm import MlmConfig
from tests.modeling.helpers import build, make_masked
from tests.objectives.helpers import compute_masked_tokens, encode_by_oracle, value
from tests.oracles import cmlm_numpy as oracle

ACTIVATIONS = {"gelu": oracle.gelu_tanh, "gelu_exact": oracle.gelu_erf, "relu": oracle.relu}


@pytest.mark.parametrize(
    ("activation", "width"), [*((activation, 0) for activation in ACTIVATIONS), ("gelu", 6)]
)
def test_loss_and_accuracy_equal_the_reference(activation, width):
    """Mean over the masked tokens of the batch, with the tied head; accuracy of the best guess.

    The head leads to the width of the table, as ALBERT's does.
    """
    model = build({"mlm": MlmConfig()}, hidden_activation=activation, embedding_width=width)
    masked = make_masked((6, 2, 9), 11, (3, 1, 4))
    outputs = encode_by_oracle(model, masked, ACTIVATIONS[activation])
    # The first prediction of every row is made right.
    first = masked["masked_lm_positions"][:, :1]
    likely = tf.argmax(model.head(tf.constant(outputs, tf.float32), masked_positions=first), -1)
    ids = [tf.cast(likely, tf.int32), masked["masked_lm_ids"][:, 1:]]
    masked["masked_lm_ids"] = tf.concat(ids, axis=1)
    expected = compute_masked_tokens(model, [masked], [outputs], ACTIVATIONS[activation])
    assert expected[1] >= 3 / 8
    output = model({"mlm": {"segment_masked": masked}})["mlm"]
    values = value(output, "masked_token_loss"), value(output, "masked_token_accuracy")
    assert (*values, float(output.metrics["masked_token_loss"][1])) == pytest.approx(
        expected, rel=1e-4
    )
    assert float(output.loss) == pytest.approx(expected[0], rel=1e-4)


def test_head_is_tied_to_the_embedding_table():
    """The head has no output matrix of its own: it uses the encoder's table, the very variable."""
    model = build({"mlm": MlmConfig()})
    assert model.head.embedding_table is model.encoder.bert.get_embedding_table()
    own = {w.ref() for w in model.head.weights} - {w.ref() for w in model.encoder.weights}
    assert len(own) == 5
