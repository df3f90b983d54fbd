"""CMLM-CSE over some optimizer steps: what stays, what moves, and that λ = 0 is SimCSE."""

import numpy as np
import pytest

from official_cmlm.objectives.cmlm_cse import CmlmCseConfig
from official_cmlm.objectives.contrastive import ContrastiveConfig
from tests.objectives.helpers import make_batch, make_task, train

# One layer: what is compared does not depend on more.
ENCODER = {"num_layers": 1, "dropout_rate": 0.1, "attention_dropout_rate": 0.1}
SHAPE = {"lexical_layers": 1, "fusion_layers": 1}


def _trained(folder, name, config, **options):
    task = make_task(folder, name, config, ENCODER)
    return train(task, 3, {name: make_batch(task)}, **options)


@pytest.fixture(scope="module")
def simcse(records_dir):
    """Returns the model and the losses of three steps of plain contrastive learning."""
    return _trained(records_dir, "contrastive", ContrastiveConfig())


@pytest.fixture(scope="module")
def with_words(records_dir):
    """Returns the same with λ = 1, and the weights that the encoder had before."""
    kept = {}

    def start(model):
        kept.update({weight.name: weight.numpy() for weight in model.encoder.weights})

    config = CmlmCseConfig(mlm_weight=1.0, **SHAPE)
    return *_trained(records_dir, "cmlm_cse", config, start=start), kept


def _weights(model):
    return [weight.numpy() for weight in model.weights]


def test_without_masked_words_it_is_simcse(records_dir, simcse):
    """λ = 0: the losses and the weights of three steps with dropout are exactly SimCSE's."""
    config = CmlmCseConfig(mlm_weight=0.0, **SHAPE)
    model, losses = _trained(records_dir, "cmlm_cse", config)
    expected_model, expected = simcse
    assert losses == expected
    assert len(set(losses)) == 3
    for got, weight in zip(_weights(model), _weights(expected_model), strict=True):
        np.testing.assert_array_equal(got, weight)
    assert model.head is None
    assert model.objectives["cmlm_cse"].auxiliary is None


def test_extractor_does_not_move(with_words):
    """After steps of AdamW with weight decay it still has the weights the encoder began with."""
    model, losses, before = with_words
    extractor = model.objectives["cmlm_cse"].auxiliary.extractor
    assert np.isfinite(losses).all()
    moved = [w.name for w in model.encoder.weights if not np.array_equal(w, before[w.name])]
    assert any("layer_0" in name for name in moved)
    assert any("word_embeddings" in name for name in moved)
    assert len(extractor.weights) > 16
    for weight in extractor.weights:
        tail = weight.name[weight.name.rindex("bert/") :]
        (name,) = (n for n in before if n.endswith(tail))
        np.testing.assert_array_equal(weight, before[name], err_msg=tail)
