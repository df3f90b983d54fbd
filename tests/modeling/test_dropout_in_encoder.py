"""Dropout of the whole encoder: where it acts, what it leaves alone, views of one batch."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from official.nlp.modeling import networks

from official_cmlm.modeling.auxiliary_network import AuxiliaryNetwork
from official_cmlm.modeling.bert import get_activation
from official_cmlm.modeling.dropout import AttentionDropout, RepeatableDropout
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


def _layers_of(model, kind):
    return [layer for layer in model.bert._flatten_layers() if isinstance(layer, kind)]


def test_every_dropout_layer_is_replaced():
    """One on the embeddings, three in each block, each with numbers of its own; no other drops."""
    model = _encoder(**ON)
    layers = _layers_of(model, tf_keras.layers.Dropout)
    ours = _layers_of(model, RepeatableDropout)
    assert len(ours) == 1 + 3 * 2
    assert [layer.rate for layer in layers if layer not in ours] == [0.0] * 2
    assert len({layer._number for layer in ours}) == len(ours)
    attention = _layers_of(model, AttentionDropout)
    assert [block._attention_layer._dropout_layer for block in model.bert.transformer_layers] == (
        attention
    )
    assert {layer._drophead_rate for layer in attention} == {0.4}


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


def _recorded(monkeypatch, layer, seen):
    """Lets a layer append (inputs, output) of each of its calls to `seen`."""
    original = layer.call

    def recording(inputs, *args, **kwargs):
        seen.append((inputs, original(inputs, *args, **kwargs)))
        return seen[-1][1]

    monkeypatch.setattr(layer, "call", recording)


def _dropped(before, after):
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
            _recorded(monkeypatch, layer, seen[-1][name])
        _recorded(monkeypatch, block, seen[-1]["block"])
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
            share, factor = _dropped(before, after)
            assert abs(share - rate) < 0.02
            assert abs(factor - 1 / (1 - rate)) < 0.01


def _model_garden(config):
    """Returns the encoder that Model Garden builds from the same settings, dropout included."""
    bert = networks.BertEncoderV2(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_attention_heads=config.num_attention_heads,
        inner_dim=config.intermediate_size,
        inner_activation=get_activation(config.hidden_activation),
        output_dropout=config.dropout_rate,
        attention_dropout=config.attention_dropout_rate,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        name="bert",
    )
    bert(make_tokens([2], 2))
    return bert


def _keys(folder, bert):
    path = tf.train.Checkpoint(bert=bert).write(str(folder))
    return {name: shape for name, shape in tf.train.list_variables(path) if "OBJECT" not in name}


@pytest.mark.parametrize("rates", [OFF, ON], ids=_name)
def test_weights_and_checkpoints_are_those_of_model_garden(tmp_path, rates):
    """Names, shapes, order and checkpoint keys are the plain encoder's, and so are outputs."""
    model = _encoder(**rates)
    theirs = randomize(_model_garden(model.config), seed=5)
    shapes = [[(w.name, w.shape) for w in bert.weights] for bert in (model.bert, theirs)]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 5 + 2 * 16 + 2
    keys = _keys(tmp_path / "theirs", theirs)
    assert len(keys) >= len(shapes[0]) and _keys(tmp_path / "ours", model.bert) == keys
    tf.train.Checkpoint(bert=model.bert).read(str(tmp_path / "theirs")).assert_consumed()
    tokens = make_tokens([6, 2, 9], 9, types=True)
    training = rates == OFF
    got, expected = model.bert(tokens, training=training), theirs(tokens, training=training)
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(got[name], expected[name])


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


def test_views_may_be_different():
    """A row has its view's bits where both are the same text, and its own where they are not."""
    model, first = _encoder(**ON), make_tokens([6, 2, 9, 4], 9)
    other = make_tokens([3, 8, 3, 8], 9, seed=8)
    second = {name: tf.concat([x[:2], other[name][2:]], axis=0) for name, x in first.items()}
    batch = {name: tf.concat([x, second[name]], axis=0) for name, x in first.items()}
    one, two = _halves(model(batch, training=True, views=2, shared_masks=True)["default"])
    np.testing.assert_array_equal(one[:2], two[:2])
    assert (one[2:] != two[2:]).all()


def _pooler_output(model, tokens):
    """Calls the network inside, which knows no views."""
    return model.bert(tokens, training=True)["pooled_output"]


def test_the_mode_ends_with_the_call():
    """After two views the next call, even one that knows no views, has masks of its own rows."""
    model, tokens = _encoder(**ON), _same_rows(8)
    model(tokens, training=True, views=2, shared_masks=True)
    first, second = _halves(_pooler_output(model, tokens))
    assert (first != second).any(axis=1).all()
    model(tokens, training=True, views=2, shared_masks=True)
    first, second = _halves(model(tokens, training=True)["default"])
    assert (first != second).any(axis=1).all()
    # An odd batch cannot be two views.
    model(_same_rows(3), training=True)


def test_the_mode_ends_with_a_call_that_fails():
    """A batch that cannot be halved is an error; the mode is then the default again."""
    model, tokens = _encoder(**ON), _same_rows(8)
    with pytest.raises(Exception):  # noqa: B017 - TensorFlow's own
        model(_same_rows(3), training=True, views=2, shared_masks=True)
    first, second = _halves(_pooler_output(model, tokens))
    assert (first != second).any(axis=1).all()


@pytest.mark.long
def test_in_one_graph_both_modes():
    """In a traced step every call has its own mode, and every step its own masks."""
    model, tokens = _encoder(**ON), _same_rows(8)
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in tokens}

    @tf.function(input_signature=[spec])
    def step(x):
        return [
            model(x, training=True, views=views, shared_masks=True)["default"]
            for views in (2, 1, 2)
        ]

    (shared, own, again), (later, _, _) = step(tokens), step(tokens)
    for vectors in (shared, again, later):
        np.testing.assert_array_equal(*_halves(vectors))
    assert _distinct(own) == 8
    for vectors in (again, later):
        assert (vectors.numpy() != shared.numpy()).any()
