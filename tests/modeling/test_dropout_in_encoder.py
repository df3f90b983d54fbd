"""Dropout of the whole encoder: where it acts, what it leaves alone, views of one batch."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling.auxiliary_network import AuxiliaryNetwork
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_tokens, randomize

pytestmark = pytest.mark.usefixtures("fixed_seed")

OFF = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0, "drophead_rate": 0.0}
ON = {"dropout_rate": 0.2, "attention_dropout_rate": 0.3, "drophead_rate": 0.4}
# Each kind of dropout alone, and all of them.
KINDS = [*({**OFF, name: 0.5} for name in OFF), ON]


def _name(rates):
    return "+".join(name for name, rate in rates.items() if rate) or "off"


def _encoder(**overrides):
    return randomize(SentenceEncoderModel(tiny_encoder_config(num_attention_heads=4, **overrides)))


def _same_rows(count, length=6):
    """Returns one sentence, `count` times."""
    return {name: tf.repeat(x, count, axis=0) for name, x in make_tokens([length], 9).items()}


def _all_outputs(outputs):
    return [outputs["default"], *outputs["encoder_outputs"]]


def _halves(rows):
    return [half.numpy() for half in tf.split(rows, 2)]


def _distinct(rows):
    return len(np.unique(np.reshape(rows, [len(rows), -1]), axis=0))


@pytest.mark.parametrize("rates", KINDS, ids=_name)
def test_each_rate_acts_and_only_in_training(rates):
    """Each kind of dropout changes the outputs of training; without training none does."""
    model, plain, tokens = _encoder(**rates), _encoder(), make_tokens([6, 2, 9], 9)
    expected = _all_outputs(plain(tokens))
    for training in (False, None):
        for got, want in zip(_all_outputs(model(tokens, training=training)), expected):
            np.testing.assert_array_equal(got, want)
    moved = model(tokens, training=True)["default"].numpy()
    assert np.abs(moved - expected[0]).max() > 1e-2
    assert np.abs(moved - model(tokens, training=True)["default"]).max() > 1e-2


def _record(monkeypatch, layer, seen):
    """Lets a layer append (inputs, output) of each of its calls to `seen`."""
    original = layer.call

    def recording(inputs, *args, **kwargs):
        seen.append((inputs, original(inputs, *args, **kwargs)))
        return seen[-1][1]

    monkeypatch.setattr(layer, "call", recording)


def _measure_drop(before, after):
    """Returns the share of zeros, and the factor of all others, between two arrays."""
    ratio = np.asarray(after, np.float64) / np.asarray(before, np.float64)
    kept = np.abs(ratio) > 1e-3
    factors = ratio[kept]
    assert factors.std() < 1e-2 * factors.mean()
    return 1 - kept.mean(), factors.mean()


def _blocks_of(kind):
    """Returns a model and its blocks, with unequal rates of dropout in training."""
    rates = {"dropout_rate": 0.25, "attention_dropout_rate": 0.6}
    tokens = make_tokens([20] * 64, 20)
    model = randomize(SentenceEncoderModel(tiny_encoder_config(**rates)))
    if kind == "encoder":
        return model.bert.transformer_layers, lambda: model(tokens, training=True)
    auxiliary = randomize(AuxiliaryNetwork(model.config, 1, 2), seed=7)
    vectors = tf.random.normal([64, 16])
    return auxiliary.fusion, lambda: auxiliary(tokens, vectors, training=True)


@pytest.mark.parametrize("kind", ["encoder", "fusion"])
def test_each_rate_acts_where_bert_has_it(monkeypatch, kind):
    """BERT's hidden rate acts after both sub-layers, its attention rate on the weights alone.

    What is added to the residual is compared with what the sub-layer returned.
    """
    blocks, forward = _blocks_of(kind)
    seen = []
    for block in blocks:
        parts = {
            "weights": block._attention_layer._dropout_layer,
            "attention": block._attention_layer,
            "attention_norm": block._attention_layer_norm,
            "output": block._output_dense,
            "output_norm": block._output_layer_norm,
        }
        seen.append({name: [] for name in ("block", *parts)})
        for name, layer in parts.items():
            _record(monkeypatch, layer, seen[-1][name])
        _record(monkeypatch, block, seen[-1]["block"])
    forward()
    for calls in seen:
        ((inputs, _),) = calls["block"]
        ((weights, dropped_weights),) = calls["weights"]
        ((_, attended),) = calls["attention"]
        ((first_sum, first_norm),) = calls["attention_norm"]
        ((_, outer),) = calls["output"]
        ((second_sum, _),) = calls["output_norm"]
        for before, after, rate in (
            (weights, dropped_weights, 0.6),
            (attended, first_sum - inputs[0], 0.25),
            (outer, second_sum - first_norm, 0.25),
        ):
            share, factor = _measure_drop(before, after)
            assert abs(share - rate) < 0.02
            assert abs(factor - 1 / (1 - rate)) < 0.01


@pytest.mark.parametrize("rates", KINDS, ids=_name)
def test_two_views_of_equal_examples_are_equal(rates):
    """With shared masks both halves have the same bits; the examples of a half differ."""
    model, tokens = _encoder(**rates), _same_rows(16)
    outputs = _all_outputs(model(tokens, training=True, views=2, shared_masks=True))
    for output in outputs:
        np.testing.assert_array_equal(*_halves(output))
        # Four heads in two layers can be dropped alike by chance.
        assert _distinct(output[:8]) >= (8 if rates["drophead_rate"] == 0 else 3)
    # There is one view, so each row is drawn separately.
    outputs = _all_outputs(model(tokens, training=True, views=1))
    for first, second in map(_halves, outputs):
        assert (first != second).any()
    assert _distinct(outputs[0]) > 8


@pytest.mark.parametrize("rows", [8, 3])
def test_the_mode_ends_with_the_call(rows):
    """After two views even a call that knows no views has masks of its own rows.

    Three rows cannot be two views; that error ends the mode too.
    """
    model, tokens = _encoder(**ON), _same_rows(8)
    with contextlib.nullcontext() if rows == 8 else pytest.raises(tf.errors.OpError):
        model(_same_rows(rows), training=True, views=2, shared_masks=True)
    # The network inside knows no views.
    for vectors in (
        model.bert(tokens, training=True)["pooled_output"],
        model(tokens, training=True)["default"],
    ):
        first, second = _halves(vectors)
        assert (first != second).any(axis=1).all()
