"""Attention by one kernel of NVIDIA GPUs, which writes no attention weights to memory.

The kernel is cuDNN's. Wherever XLA compiles for such a GPU it knows the kernel under the names
`KERNELS`; TensorFlow, which lowers the training step on a CPU, only passes the call on. The forward
kernel also returns the logarithm of each row's sum of exponentials; with it the backward kernel
computes the attention weights again (Dao 2023, "FlashAttention-2", §3.1). The kernels have no
dropout that a step could seed, so attention with dropout is computed by products, as everywhere
else.
"""

import contextlib
import contextvars
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras

KERNELS = ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward")
# Type of queries, keys and values -> its name in StableHLO.
_TYPES = {tf.bfloat16: "bf16", tf.float16: "f16"}
_LARGEST_HEAD = 128
# Each kernel's products: name -> (contracted dimension of the left operand, of the right one, batch
# dimensions of the left one, of the right one). Attention weights are
# [batch, heads, queries, keys], all else is [batch, tokens, heads, size].
_WEIGHTS, _HEADS = (0, 1), (0, 2)
_PRODUCTS = (
    {"bmm1": (3, 3, _HEADS, _HEADS), "bmm2": (3, 1, _WEIGHTS, _HEADS)},
    {
        "bmm1_grad_gemm1": (2, 1, _WEIGHTS, _HEADS),
        "bmm1_grad_gemm2": (3, 1, _WEIGHTS, _HEADS),
        "bmm2_grad_gemm1": (2, 1, _WEIGHTS, _HEADS),
        "bmm2_grad_gemm2": (3, 3, _HEADS, _HEADS),
    },
)
# The version of XlaCallModule that these modules are written for.
_VERSION = 9

_CHOSEN = contextvars.ContextVar("fused_attention", default=False)


@contextlib.contextmanager
def choose(fused: bool) -> Iterator[None]:
    """Makes training steps that are traced in a `with` block use the kernels where they can."""
    token = _CHOSEN.set(fused)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def is_chosen() -> bool:
    """Returns whether the step that is being traced uses the kernels."""
    return _CHOSEN.get()


def attach(block: tf_keras.layers.Layer) -> None:
    """Lets a built `TransformerEncoderBlock` without a bias on scores use the kernels.

    The keys that can be attended to must come first: `mask` is `[batch, 1, keys]`, ones, then
    zeros.
    """
    layer = block._attention_layer
    attend_plainly = layer._compute_attention

    def compute(
        query: tf.Tensor,
        key: tf.Tensor,
        value: tf.Tensor,
        attention_mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        size = query.shape[-1]
        fits = query.dtype in _TYPES and size % 8 == 0 and size <= _LARGEST_HEAD
        if not is_chosen() or not fits or (training and layer._dropout_layer.drops):
            return attend_plainly(query, key, value, attention_mask, training)
        # A row without any key, which nothing reads, must not become NaN.
        lengths = tf.maximum(tf.reduce_sum(tf.cast(attention_mask[:, 0], tf.int32), axis=1), 1)
        return attend(query, key, value, lengths), None

    layer._compute_attention = compute


def attend(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Computes softmax(Q Kᵀ / √size) V for each head.

    Args:
      query: bfloat16 or float16, `[batch, queries, heads, size]`, of static shape.
      key, value: the same, `[batch, keys, heads, size]`.
      lengths: int32 `[batch]`; only so many of the first keys count.

    Returns:
      `[batch, queries, heads, size]`.
    """
    # Every query counts, that of padding too.
    counts = [tf.fill([query.shape[0]], query.shape[1]), lengths]
    like_query, like_key = (query.shape, query.dtype), (key.shape, query.dtype)
    rows = tf.TensorShape([query.shape[0], query.shape[2], query.shape[1]]), tf.float32

    @tf.custom_gradient
    def once(query: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        inputs = [query, key, value]
        outputs, sums = call_kernel(0, [*inputs, *counts], [like_query, rows])

        def gradient(upstream: tf.Tensor) -> list[tf.Tensor]:
            operands = [*inputs, sums, upstream, outputs, *counts]
            return call_kernel(1, operands, [like_query, like_key, like_key])

        return outputs, gradient

    return once(query, key, value)


def call_kernel(
    number: int, operands: list[tf.Tensor], results: list[tuple[tf.TensorShape, tf.DType]]
) -> list[tf.Tensor]:
    """Returns what one of `KERNELS` computes from its operands: tensors of these shapes, types."""
    from tensorflow.compiler.tf2xla.python import xla

    types = [tensor_type(tensor.shape, tensor.dtype) for tensor in operands]
    return xla.call_module(
        operands,
        version=_VERSION,
        module=write_module(number, types, [tensor_type(*result) for result in results]),
        Tout=[dtype for _, dtype in results],
        Sout=[shape for shape, _ in results],
        # The kind of device that lowers the step.
        platforms=["CPU"],
        disabled_checks=[f"custom_call:{KERNELS[number]}"],
    )


def tensor_type(shape: tf.TensorShape, dtype: tf.DType) -> tuple[list[int], str]:
    """Returns a tensor's sizes, and the name of its type in StableHLO."""
    return shape.as_list(), {**_TYPES, tf.int32: "i32", tf.float32: "f32"}[dtype]


def write_module(
    number: int, operands: list[tuple[list[int], str]], results: list[tuple[list[int], str]]
) -> str:
    """Writes a StableHLO module that calls a kernel; see `tensor_type` for its arguments.

    The kernel's results are `[batch, heads, tokens, size]`, laid out in memory as
    `[batch, tokens, heads, size]`, so the transposition costs nothing.
    """
    names = [f"%a{i}" for i in range(len(operands))]
    taken = ", ".join(_write_type(*operand) for operand in operands)
    given = [_write_type(*result) for result in results]
    turned = [
        ([shape[i] for i in (0, 2, 1, 3)] if len(shape) == 4 else shape, name)
        for shape, name in results
    ]
    # The last result is the kernel's workspace, whose size XLA decides.
    called = ", ".join([*(_write_type(*result) for result in turned), "tensor<0xui8>"])
    layouts = [[3, 1, 2, 0] if len(shape) == 4 else None for shape, _ in turned]
    config = json.dumps(_configure(number, operands)).replace('"', r"\22")
    lines = [
        f"%r:{len(results) + 1} = stablehlo.custom_call @{KERNELS[number]}({', '.join(names)}) {{"
        f'api_version = 2 : i32, backend_config = "{config}", '
        f"operand_layouts = [{_write_layouts(operands)}], "
        f"result_layouts = [{_write_layouts([*turned, ([0], '')], layouts)}]"
        f"}} : ({taken}) -> ({called})"
    ]
    for i, (shape, _) in enumerate(results):
        if len(shape) == 4:
            before = _write_type(*turned[i])
            lines.append(
                f"%t{i} = stablehlo.transpose %r#{i}, dims = [0, 2, 1, 3] : "
                f"({before}) -> {given[i]}"
            )
    returned = [f"%t{i}" if len(shape) == 4 else f"%r#{i}" for i, (shape, _) in enumerate(results)]
    parameters = ", ".join(f"{n}: {_write_type(*o)}" for n, o in zip(names, operands))
    body = "\n    ".join([*lines, f"return {', '.join(returned)} : {', '.join(given)}"])
    return (
        f"module {{\n  func.func public @main({parameters}) -> ({', '.join(given)}) {{\n"
        f"    {body}\n  }}\n}}\n"
    )


def _write_type(shape: list[int], name: str) -> str:
    return f"tensor<{'x'.join(map(str, [*shape, name]))}>"


def _write_layouts(
    values: list[tuple[list[int], str]], layouts: list[list[int] | None] | None = None
) -> str:
    """Writes layouts, most minor dimension first; None: the last dimension is the most minor."""
    orders = [*(layouts or []), *[None] * len(values)]
    texts = []
    for (shape, _), order in zip(values, orders):
        dimensions = order or [*range(len(shape))][::-1]
        texts.append(f"dense<{dimensions}> : tensor<{len(shape)}xindex>")
    return ", ".join(texts)


def _configure(number: int, operands: list[tuple[list[int], str]]) -> dict[str, Any]:
    """Returns XLA's description of a kernel; numbers of 64 bits are strings, as in any JSON."""
    (batch, queries, heads, size), name = operands[0]
    keys = operands[1][0][1]
    config = {
        "algorithm": {
            "algo_id": "0",
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": "1", "24": "0"},
            "is_cudnn_frontend": True,
            "workspace_size": "0",
        },
        "fmha_scale": 1.0 / math.sqrt(size),
        "intermediate_tensor_shape": {
            "element_type": name.upper(),
            "dimensions": [str(n) for n in (batch, heads, queries, keys)],
            "layout": {"minor_to_major": ["3", "2", "1", "0"]},
            "is_dynamic_dimension": [False] * 4,
        },
        "is_flash_attention": True,
        "mask_type": "PADDING",
        "max_seg_per_batch": 1,
    }
    for product, (left, right, left_batch, right_batch) in _PRODUCTS[number].items():
        config[f"{product}_dot_dimension_numbers"] = {
            "lhs_contracting_dimensions": [str(left)],
            "rhs_contracting_dimensions": [str(right)],
            "lhs_batch_dimensions": [str(i) for i in left_batch],
            "rhs_batch_dimensions": [str(i) for i in right_batch],
        }
    return {"operation_queue_id": "0", "cudnn_fmha_backend_config": config}
