"""Attention by kernels of GPUs; here TensorFlow computes the same formulas in their place."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.modeling import fused_attention
from official_cmlm.objectives.cmlm import CmlmConfig
from tests.modeling.helpers import build, make_pairs


@pytest.fixture
def calls(monkeypatch):
    """Numbers of the kernels that were called; float32 is taken too, to compare closely."""
    numbers = []

    def call_kernel(number, operands, results):
        numbers.append(number)
        query, key, value = operands[:3]
        queries, lengths = operands[-2:]
        assert set(queries.numpy()) == {query.shape[1]}
        scores = tf.einsum("btnh,bsnh->bnts", query, key) * query.shape[-1] ** -0.5
        real = tf.sequence_mask(lengths, key.shape[1])[:, tf.newaxis, tf.newaxis]
        scores = tf.where(real, scores, -np.inf)
        if number == 0:
            sums = tf.reduce_logsumexp(scores, axis=-1)
            weights = tf.exp(scores - sums[..., tf.newaxis])
            return [tf.einsum("bnts,bsnh->btnh", weights, value), sums]
        # FlashAttention, algorithm 4: weights from the sums, their gradient from the outputs.
        sums, upstream, outputs = operands[3:6]
        weights = tf.exp(scores - sums[..., tf.newaxis])
        of_weights = tf.einsum("btnh,bsnh->bnts", upstream, value)
        inner = tf.einsum("btnh,btnh->bnt", upstream, outputs)[..., tf.newaxis]
        of_scores = weights * (of_weights - inner) * query.shape[-1] ** -0.5
        return [
            tf.einsum("bnts,bsnh->btnh", of_scores, key),
            tf.einsum("bnts,btnh->bsnh", of_scores, query),
            tf.einsum("bnts,btnh->bsnh", weights, upstream),
        ]

    monkeypatch.setattr(fused_attention, "call_kernel", call_kernel)
    monkeypatch.setitem(fused_attention._TYPES, tf.float32, "f32")
    return numbers


def _loss_and_gradients(model, fused):
    with tf.GradientTape() as tape, fused_attention.choose(fused):
        loss = model({"cmlm": make_pairs()}, training=True)["cmlm"].loss
    gradients = tape.gradient(loss, model.trainable_variables)
    return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]


@pytest.mark.parametrize("remat", ["none", "attention"])
def test_kernels_give_the_loss_and_gradients_of_products(remat, calls):
    """CMLM: padding, projected vectors behind it, a last block with few queries."""
    model = build({"cmlm": CmlmConfig(num_projections=3)}, remat=remat)
    expected, gradients = _loss_and_gradients(model, fused=False)
    assert not calls
    loss, own = _loss_and_gradients(model, fused=True)
    blocks = 2 * len(model.encoder.bert.transformer_layers)
    assert calls == [0] * blocks + [1] * blocks
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for variable, one, other in zip(model.trainable_variables, own, gradients):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=variable.name)


@pytest.mark.parametrize(
    "encoder",
    [
        {"attention_dropout_rate": 0.1},
        {"drophead_rate": 0.1},
        {"relative_position_buckets": 8},
        {"hidden_size": 8},
    ],
    ids=str,
)
def test_products_compute_what_the_kernels_cannot(encoder, calls):
    """Dropout of weights or heads, a bias on scores, heads of 4 units."""
    model = build({"cmlm": CmlmConfig(num_projections=3)}, **encoder)
    _loss_and_gradients(model, fused=True)
    assert not calls


def test_precision_of_the_kernels(calls, monkeypatch):
    monkeypatch.delitem(fused_attention._TYPES, tf.float32)
    model = build({"cmlm": CmlmConfig(num_projections=3)})
    _loss_and_gradients(model, fused=True)
    assert not calls


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_call_of_a_kernel_is_that_of_jax(dtype, monkeypatch):
    """JAX's own attention gives names, settings, layouts and shapes: forward and backward."""
    jax = pytest.importorskip("jax", reason="needs JAX: pip install jax")
    from jax._src.cudnn import fused_attention_stablehlo

    # JAX asks for the library even where nothing is compiled.
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91000)
    query = jax.ShapeDtypeStruct((4, 6, 2, 8), dtype)
    key, lengths = jax.ShapeDtypeStruct((4, 8, 2, 8), dtype), jax.ShapeDtypeStruct((4,), np.int32)

    def both(query, key, value, counts, lengths, upstream):
        def attend(*inputs):
            return jax.nn.dot_product_attention(
                *(*inputs, None, None),
                query_seq_lengths=counts,
                key_value_seq_lengths=lengths,
                implementation="cudnn",
            )

        outputs, pull_back = jax.vjp(attend, query, key, value)
        return outputs, pull_back(upstream)

    arguments = (query, key, key, lengths, lengths, query)
    text = jax.jit(both).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    expected = _describe(text)
    name = {"bfloat16": "bf16", "float16": "f16"}[dtype]
    of_query, of_key = ([4, 6, 2, 8], name), ([4, 8, 2, 8], name)
    counts, sums = ([4], "i32"), ([4, 2, 6], "f32")
    inputs = [of_query, of_key, of_key]
    operands = [[*inputs, counts, counts], [*inputs, sums, of_query, of_query, counts, counts]]
    results = [[of_query, sums], inputs]
    for number in (0, 1):
        own = fused_attention.write_module(number, operands[number], results[number])
        assert _describe(own) == [expected[number]]


def _describe(text):
    """Returns what the calls of kernels in a StableHLO module say."""
    calls = re.findall(
        r'custom_call @(\S+?)\(.*?backend_config = "(.*?)".*?operand_layouts = \[(.*?)\], '
        r"result_layouts = \[(.*?)\]\} : (.*)",
        text.replace("<[0]>", "<0>"),
    )
    described = []
    for name, config, *others in calls:
        config = json.loads(config.replace(r"\22", '"'))
        kernel = config["cudnn_fmha_backend_config"]
        # JAX writes values out that are XLA's defaults, and a seed that dropout alone reads.
        config["cudnn_fmha_backend_config"] = {
            field: value
            for field, value in kernel.items()
            if value not in (0, False) and field not in ("intermediate_tensor_shape", "seed")
        }
        shape = kernel["intermediate_tensor_shape"]
        described.append([name, config, shape["element_type"], shape["dimensions"], *others])
    return described
