"""Natural language inference between languages against the reference."""

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.objectives.nli import NliConfig
from official_cmlm.records.pairs import NLI_LABELS
from tests.objectives.helpers import embed, make_batch, make_task, random_model, value
from tests.oracles import contrastive_numpy as oracle


def _task(folders, encoder=None):
    return make_task(folders / "nli", "nli", NliConfig(), encoder)


@pytest.fixture(scope="module")
def batch(folders):
    return make_batch(_task(folders))


@pytest.mark.parametrize(
    "encoder",
    [
        {},
        {"pooling": "max"},
        {"sentence_vector": "projected_mean", "num_projections": 3},
        {"normalize": True},
    ],
)
def test_loss_and_accuracy_equal_the_reference(folders, batch, encoder):
    """Cross-entropy of one linear layer on [u, v, |u − v|, u ∗ v] of the exported vectors."""
    model = random_model(_task(folders, encoder))
    output = model({"nli": batch})["nli"]
    kernel, bias = (weight.numpy() for weight in model.objectives["nli"].classifier.weights)
    assert kernel.shape == (64, 3)
    assert np.abs(bias).min() > 1e-3
    losses, hits = [], []
    labels = batch["label"].numpy()
    for u, v, label in zip(*(embed(model, batch[name]) for name in ("first", "second")), labels):
        logits = oracle.inference_logits(oracle.nli_features(u, v), kernel, bias)
        losses.append(oracle.cross_entropy(logits, label))
        hits.append(logits.argmax() == label)
    assert float(output.loss) == pytest.approx(np.mean(losses), rel=1e-4)
    assert value(output, "nli_loss") == pytest.approx(np.mean(losses), rel=1e-4)
    assert float(output.metrics["nli_loss"][1]) == 8.0
    assert value(output, "nli_accuracy") == pytest.approx(np.mean(hits))


def test_batch_has_labels_of_all_classes(batch):
    assert set(batch) == {"key", "first", "second", "label"}
    assert batch["label"].dtype == tf.int32
    assert set(batch["label"].numpy()) == set(range(len(NLI_LABELS)))
