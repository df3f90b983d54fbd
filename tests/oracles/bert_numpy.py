"""Loop-by-loop NumPy reference for the BERT encoder and the pooling of its outputs.

Written from the text of "Universal Sentence Representation Learning with Conditional Masked
Language Model" (sections 2, 3, 4.2 and appendix C) and from the definition of the BERT encoder
in "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding".

Everything runs in float64, one example at a time and mostly one vector at a time. Nothing is
batched and nothing is masked additively: padding is deleted before anything is computed. The
code is therefore slow, but each line can be compared with the formula it follows.

Notation used in the shape comments: V vocabulary size, P number of position rows, T number of
type rows, h hidden size, f feed-forward size, L sequence length, N number of projections,
B batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Activation = Callable[[ArrayLike], Array]


# Elementary functions.


def floats(x: ArrayLike) -> Array:
    """Returns `x` in float64."""
    return np.asarray(x, dtype=np.float64)


def _elementwise(function: Callable[[float], float]) -> Activation:
    return lambda x: np.vectorize(function, otypes=[np.float64])(floats(x))


# GELU with the tanh approximation, and the exact one, x · Φ(x), any shape.
gelu_tanh = _elementwise(
    lambda x: 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
)
gelu_erf = _elementwise(lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2.0)))
# The nonlinearity of the projections, appendix C.
relu = _elementwise(lambda x: max(0.0, x))


def layer_norm(x: ArrayLike, gamma: ArrayLike, beta: ArrayLike, epsilon: float) -> Array:
    """Computes layer normalisation over the last axis, [..., h] -> [..., h].

    gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the biased variance (divided by h).
    """
    values = floats(x)
    mean = values.sum(axis=-1, keepdims=True) / values.shape[-1]
    variance = ((values - mean) ** 2).sum(axis=-1, keepdims=True) / values.shape[-1]
    return floats(gamma) * (values - mean) / np.sqrt(variance + epsilon) + floats(beta)


def log_sum_exp(vector: ArrayLike) -> float:
    """Computes log(sum_k exp(vector_k)) of a vector [K]."""
    values = [float(value) for value in floats(vector)]
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def softmax(x: ArrayLike) -> Array:
    """Computes exp(x_k) / sum_l exp(x_l) over the last axis, [..., K] -> [..., K]."""
    return np.apply_along_axis(lambda row: np.exp(row - log_sum_exp(row)), -1, floats(x))


# The BERT encoder.


def _self_attention(
    layer: Mapping[str, ArrayLike], states: Array, num_heads: int, attended: int | None = None
) -> Array:
    """Computes multi-head self attention in which every element attends to the same elements.

    softmax(q . k / sqrt(head_dim)) v for each head, summed over the heads by the output kernel.

    Args:
        layer: The weights of one encoder block (see `bert_encode`).
        states: [S, h], no padding among the attended elements.
        num_heads: Number of attention heads.
        attended: Number of first elements that are attended to. Default: all.

    Returns:
        [S, h], before the residual connection.
    """
    kernels = {n: floats(layer[f"{n}_kernel"]) for n in ("query", "key", "value", "output")}
    biases = {n: floats(layer[f"{n}_bias"]) for n in kernels}
    length, hidden_size = states.shape
    shape = kernels["query"].shape
    if shape[:2] != (hidden_size, num_heads):
        raise ValueError(
            f"query_kernel is {shape}, expected ({hidden_size}, {num_heads}, head_dim)"
        )
    result = np.tile(biases["output"], [length, 1])
    for head in range(num_heads):
        queries, keys, values = (
            [state @ kernels[n][:, head] + biases[n][head] for state in states[:count]]
            for n, count in (("query", length), ("key", attended), ("value", attended))
        )
        for i in range(length):
            scores = [float(queries[i] @ key) / math.sqrt(shape[2]) for key in keys]
            context = sum(p * value for p, value in zip(softmax(scores), values, strict=True))
            result[i] += context @ kernels["output"][head]
    return result


def _encoder_block(
    layer: Mapping[str, ArrayLike],
    states: Array,
    num_heads: int,
    activation: Activation,
    epsilon: float,
    attended: int | None = None,
) -> Array:
    """Computes one post-layer-norm transformer block, [S, h] -> [S, h].

    a = LN(x + SelfAttention(x)); y = LN(a + W_2 activation(W_1 a + b_1) + b_2)
    """
    attention = _self_attention(layer, states, num_heads, attended)
    names = ("intermediate_kernel", "intermediate_bias", "ffn_output_kernel", "ffn_output_bias")
    kernel_1, bias_1, kernel_2, bias_2 = (floats(layer[name]) for name in names)

    def norm(name: str, x: Array) -> Array:
        return layer_norm(x, layer[f"{name}_norm_gamma"], layer[f"{name}_norm_beta"], epsilon)

    result = np.empty_like(states)
    for i in range(len(states)):
        middle = norm("attention", states[i] + attention[i])
        inner = activation(middle @ kernel_1 + bias_1)
        result[i] = norm("output", middle + (inner @ kernel_2 + bias_2))
    return result


def bert_encode(
    weights: Mapping[str, Any],
    word_ids: Sequence[int],
    mask: Sequence[int],
    type_ids: Sequence[int],
    num_heads: int,
    dense_inputs: ArrayLike | None = None,
    dense_positions: Sequence[int] | None = None,
    activation: Activation = gelu_tanh,
    epsilon: float = 1e-12,
) -> list[Array]:
    """Encodes ONE example with a post-layer-norm BERT.

    Tokens with mask 0 are removed before anything is computed; the remaining tokens keep the
    position (index in `word_ids`) they had. Section 2 of the CMLM paper: the projected sentence
    vectors are concatenated with the token embeddings of the second sentence, so `dense_inputs`
    take the place of word embeddings for N further elements, which also receive a position row,
    type row 0 and the embedding layer norm, and are never masked.

    Args:
        weights: `word_embeddings` [V, h], `position_embeddings` [P, h], `type_embeddings` [T, h],
            `embeddings_norm_gamma` / `embeddings_norm_beta` [h] and `layers`, a list of dicts of
            `query_kernel`, `key_kernel`, `value_kernel` [h, heads, head_dim], `query_bias`,
            `key_bias`, `value_bias` [heads, head_dim], `output_kernel` [heads, head_dim, h],
            `output_bias` [h], `attention_norm_gamma` / `attention_norm_beta` [h],
            `intermediate_kernel` [h, f], `intermediate_bias` [f], `ffn_output_kernel` [f, h],
            `ffn_output_bias` [h], `output_norm_gamma` / `output_norm_beta` [h]. Tables of another
            width e (ALBERT, Lan et al. 2020, section 3.1: V x E and E x H instead of V x H) and
            their norm [e] go with `embedding_projection_kernel` [e, h] and
            `embedding_projection_bias` [h], else absent or None.
        word_ids: [L].
        mask: [L], 1 for a token and 0 for padding.
        type_ids: [L].
        num_heads: Number of attention heads.
        dense_inputs: [N, h] or None.
        dense_positions: [N] rows of the position table, required with `dense_inputs`.
        activation: Nonlinearity of the feed-forward layers.
        epsilon: Layer norm epsilon of the blocks; the one of the embeddings is always 1e-12.

    Returns:
        The output of every block in order, each [L + N, h]. The row of an input token is at its
        own index and the dense elements are the last N rows. Rows of removed tokens are NaN.
    """
    word_table = floats(weights["word_embeddings"])
    position_table = floats(weights["position_embeddings"])
    type_table = floats(weights["type_embeddings"])
    length = len(word_ids)
    if len(mask) != length or len(type_ids) != length:
        raise ValueError("word_ids, mask and type_ids differ in length")

    embedded: list[Array] = []
    rows: list[int] = []
    for position in range(length):
        if int(mask[position]) == 0:
            continue
        word = int(word_ids[position])
        kind = int(type_ids[position])
        embedded.append(word_table[word] + position_table[position] + type_table[kind])
        rows.append(position)

    num_dense = 0
    if dense_inputs is not None:
        dense = floats(dense_inputs)
        num_dense = len(dense)
        if dense_positions is None or len(dense_positions) != num_dense:
            raise ValueError("dense_positions must give one position for each dense input")
        for n in range(num_dense):
            embedded.append(dense[n] + position_table[int(dense_positions[n])] + type_table[0])
            rows.append(length + n)
    if not embedded:
        raise ValueError("the example has no elements left to encode")

    states = layer_norm(
        np.stack(embedded),
        weights["embeddings_norm_gamma"],
        weights["embeddings_norm_beta"],
        1e-12,
    )
    if weights.get("embedding_projection_kernel") is not None:
        kernel = floats(weights["embedding_projection_kernel"])
        states = states @ kernel + np.asarray(weights["embedding_projection_bias"])
    outputs: list[Array] = []
    for layer in weights["layers"]:
        states = _encoder_block(layer, states, num_heads, activation, epsilon)
        output = np.full((length + num_dense, states.shape[1]), np.nan)
        for row, state in zip(rows, states, strict=True):
            output[row] = state
        outputs.append(output)
    return outputs


# Sentence vectors and their projections (section 2, appendix A and appendix C).


def _real_rows(sequence_output: ArrayLike, mask: Sequence[int]) -> list[Array]:
    """Returns the rows of [L, h] whose mask is not 0, as a list of vectors [h]."""
    sequence = floats(sequence_output)
    if len(sequence) != len(mask):
        raise ValueError("sequence_output and mask differ in length")
    rows = [sequence[i] for i in range(len(mask)) if int(mask[i]) != 0]
    if not rows:
        raise ValueError("no token to pool")
    return rows


def mean_pool(sequence_output: ArrayLike, mask: Sequence[int]) -> Array:
    """Averages the sequence outputs over the real tokens (section 2), [L, h], [L] -> [h]."""
    rows = _real_rows(sequence_output, mask)
    return sum(rows) / len(rows)


def max_pool(sequence_output: ArrayLike, mask: Sequence[int]) -> Array:
    """Returns the maximum of each feature over the tokens (section 2, footnote 1): [h]."""
    rows = _real_rows(sequence_output, mask)
    return np.array([max(float(row[k]) for row in rows) for k in range(len(rows[0]))])


def cls_pool(sequence_output: ArrayLike, mask: Sequence[int]) -> Array:
    """Returns the output at the first token (section 2, footnote 1), [L, h], [L] -> [h]."""
    if int(mask[0]) == 0:
        raise ValueError("the first token is masked out")
    return np.array(floats(sequence_output)[0])


POOLING: dict[str, Callable[[ArrayLike, Sequence[int]], Array]] = {
    "mean": mean_pool,
    "max": max_pool,
    "cls": cls_pool,
}
