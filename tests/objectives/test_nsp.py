"""Next-sentence prediction with masked tokens against the reference."""

import numpy as np
import pytest

from official_cmlm.objectives.nsp import NspConfig
from tests.objectives.helpers import (
    compute_masked_tokens,
    encode_by_oracle,
    make_batch,
    make_task,
    random_model,
    value,
)
from tests.oracles import contrastive_numpy


def _task(folder, encoder=None):
    return make_task(folder, "nsp", NspConfig(), encoder)


@pytest.fixture(scope="module")
def batch(records_dir):
    return make_batch(_task(records_dir))


def test_batch_is_berts(batch):
    """Pairs in one sequence with two types, both labels, a masked copy with the same types."""
    assert set(batch) == {"key", "label", "first_length", "pair", "pair_masked"}
    assert set(batch["label"].numpy()) == {0, 1}
    pair, masked = batch["pair"], batch["pair_masked"]
    np.testing.assert_array_equal(pair["input_type_ids"], masked["input_type_ids"])
    real, types = pair["input_mask"].numpy(), pair["input_type_ids"].numpy()
    np.testing.assert_array_equal((real * (1 - types)).sum(axis=1), batch["first_length"].numpy())
    assert (types.sum(axis=1) >= 2).all() and (types <= real).all()
    assert masked["masked_lm_weights"].numpy().sum(axis=1).min() >= 1


@pytest.mark.parametrize("pooling", ["mean", "cls_pooler"])
def test_loss_and_accuracy_equal_the_reference(records_dir, batch, pooling):
    """The sum of both means: per masked token, and per pair from the pooled first token."""
    model = random_model(_task(records_dir, {"pooling": pooling}))
    output, masked = model({"nsp": batch})["nsp"], batch["pair_masked"]
    kernel, bias = (w.numpy() for w in model.encoder.bert.pooler_layer.weights)
    classifier, offset = (w.numpy() for w in model.objectives["nsp"].classifier.weights)
    sequences, losses, hits = encode_by_oracle(model, masked), [], []
    for outputs, label in zip(sequences, batch["label"].numpy()):
        logits = np.tanh(outputs[0] @ kernel + bias) @ classifier + offset
        losses.append(contrastive_numpy.cross_entropy(logits, label))
        hits.append(logits.argmax() == label)
    tokens, _, _ = compute_masked_tokens(model, [masked], [sequences])
    assert float(output.loss) == pytest.approx(np.mean(losses) + tokens, rel=1e-4)
    assert value(output, "nsp_loss") == pytest.approx(np.mean(losses), rel=1e-4)
    assert value(output, "masked_token_loss") == pytest.approx(tokens, rel=1e-4)
    assert value(output, "nsp_accuracy") == pytest.approx(np.mean(hits))
    assert float(output.metrics["nsp_accuracy"][1]) == 8.0
    own = model.objectives["nsp"].own_weights()
    assert [tuple(weight.shape) for weight in own] == [(16, 2), (2,)]


def test_the_pair_is_encoded_once(records_dir, batch, monkeypatch):
    """Both losses read one pass of the masked pair, as BERT's."""
    model = random_model(_task(records_dir))
    calls, bert = [], model.encoder.bert
    original = bert.call
    monkeypatch.setattr(
        bert, "call", lambda inputs, training=None: calls.append(1) or original(inputs, training)
    )
    model({"nsp": batch}, training=True)
    assert len(calls) == 1
