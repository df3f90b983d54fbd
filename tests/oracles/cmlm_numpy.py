"""Loop-by-loop NumPy reference for the Conditional Masked Language Model (CMLM).

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
DenseLayer = tuple[ArrayLike, ArrayLike]


# Elementary functions.


def _elementwise(function: Callable[[float], float], x: ArrayLike) -> Array:
    """Applies a scalar function to each element of `x`, keeping its shape."""
    values = np.asarray(x, dtype=np.float64)
    result = np.empty_like(values)
    for index in np.ndindex(values.shape):
        result[index] = function(float(values[index]))
    return result


def gelu_tanh(x: ArrayLike) -> Array:
    """GELU with the tanh approximation, any shape.

    0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
    """

    def scalar(value: float) -> float:
        inner = math.sqrt(2.0 / math.pi) * (value + 0.044715 * value * value * value)
        return 0.5 * value * (1.0 + math.tanh(inner))

    return _elementwise(scalar, x)


def gelu_erf(x: ArrayLike) -> Array:
    """Exact GELU, any shape.

    x * Phi(x), where Phi(x) = erfc(-x / sqrt(2)) / 2 is the standard normal distribution function.
    """
    return _elementwise(lambda value: value * 0.5 * math.erfc(-value / math.sqrt(2.0)), x)


def relu(x: ArrayLike) -> Array:
    """max(x, 0), any shape (the nonlinearity of the projections, appendix C)."""
    return _elementwise(lambda value: max(0.0, value), x)


def layer_norm(x: ArrayLike, gamma: ArrayLike, beta: ArrayLike, epsilon: float) -> Array:
    """Layer normalisation over the last axis.

    gamma * (x - mean) / sqrt(variance + epsilon) + beta, with the biased variance (divided by h).

    Args:
        x: [..., h].
        gamma: [h].
        beta: [h].
        epsilon: Added to the variance, inside the square root.

    Returns:
        [..., h].
    """
    values = np.asarray(x, dtype=np.float64)
    scale = np.asarray(gamma, dtype=np.float64)
    shift = np.asarray(beta, dtype=np.float64)
    size = values.shape[-1]
    result = np.empty_like(values)
    for index in np.ndindex(values.shape[:-1]):
        vector = values[index]
        mean = math.fsum(vector) / size
        variance = math.fsum((element - mean) ** 2 for element in vector) / size
        deviation = math.sqrt(variance + epsilon)
        for k in range(size):
            result[index + (k,)] = scale[k] * (vector[k] - mean) / deviation + shift[k]
    return result


def _log_sum_exp(vector: ArrayLike) -> float:
    """log(sum_k exp(vector_k)) of a vector [K]."""
    values = [float(value) for value in np.asarray(vector, dtype=np.float64)]
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def softmax(x: ArrayLike) -> Array:
    """exp(x_k) / sum_l exp(x_l) over the last axis, [..., K] -> [..., K]."""
    values = np.asarray(x, dtype=np.float64)
    result = np.empty_like(values)
    for index in np.ndindex(values.shape[:-1]):
        vector = values[index]
        normaliser = _log_sum_exp(vector)
        for k in range(len(vector)):
            result[index + (k,)] = math.exp(float(vector[k]) - normaliser)
    return result


# The BERT encoder.


def _self_attention(layer: Mapping[str, ArrayLike], states: Array, num_heads: int) -> Array:
    """Multi-head self attention in which every element attends to every element.

    softmax(q . k / sqrt(head_dim)) v for each head, summed over the heads by the output kernel.

    Args:
        layer: The weights of one encoder block (see `bert_encode`).
        states: [S, h], no padding among the S elements.
        num_heads: Number of attention heads.

    Returns:
        [S, h], before the residual connection.
    """
    query_kernel = np.asarray(layer["query_kernel"], dtype=np.float64)
    query_bias = np.asarray(layer["query_bias"], dtype=np.float64)
    key_kernel = np.asarray(layer["key_kernel"], dtype=np.float64)
    key_bias = np.asarray(layer["key_bias"], dtype=np.float64)
    value_kernel = np.asarray(layer["value_kernel"], dtype=np.float64)
    value_bias = np.asarray(layer["value_bias"], dtype=np.float64)
    output_kernel = np.asarray(layer["output_kernel"], dtype=np.float64)
    output_bias = np.asarray(layer["output_bias"], dtype=np.float64)

    length, hidden_size = states.shape
    if query_kernel.shape[:2] != (hidden_size, num_heads):
        raise ValueError(
            f"query_kernel is {query_kernel.shape}, expected ({hidden_size}, {num_heads}, head_dim)"
        )
    head_dim = query_kernel.shape[2]

    result = np.zeros_like(states)
    for i in range(length):
        result[i] = output_bias
    for head in range(num_heads):
        queries = [states[i] @ query_kernel[:, head] + query_bias[head] for i in range(length)]
        keys = [states[j] @ key_kernel[:, head] + key_bias[head] for j in range(length)]
        values = [states[j] @ value_kernel[:, head] + value_bias[head] for j in range(length)]
        for i in range(length):
            scores = [float(queries[i] @ keys[j]) / math.sqrt(head_dim) for j in range(length)]
            probabilities = softmax(scores)
            context = np.zeros(head_dim)
            for j in range(length):
                context = context + probabilities[j] * values[j]
            result[i] += context @ output_kernel[head]
    return result


def _encoder_block(
    layer: Mapping[str, ArrayLike],
    states: Array,
    num_heads: int,
    activation: Activation,
    epsilon: float,
) -> Array:
    """One post-layer-norm transformer block, [S, h] -> [S, h].

    a = LN(x + SelfAttention(x)); y = LN(a + W_2 activation(W_1 a + b_1) + b_2)
    """
    attention = _self_attention(layer, states, num_heads)
    intermediate_kernel = np.asarray(layer["intermediate_kernel"], dtype=np.float64)
    intermediate_bias = np.asarray(layer["intermediate_bias"], dtype=np.float64)
    ffn_output_kernel = np.asarray(layer["ffn_output_kernel"], dtype=np.float64)
    ffn_output_bias = np.asarray(layer["ffn_output_bias"], dtype=np.float64)

    result = np.empty_like(states)
    for i in range(len(states)):
        attended = layer_norm(
            states[i] + attention[i],
            layer["attention_norm_gamma"],
            layer["attention_norm_beta"],
            epsilon,
        )
        intermediate = activation(attended @ intermediate_kernel + intermediate_bias)
        transformed = intermediate @ ffn_output_kernel + ffn_output_bias
        result[i] = layer_norm(
            attended + transformed,
            layer["output_norm_gamma"],
            layer["output_norm_beta"],
            epsilon,
        )
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
            `ffn_output_bias` [h], `output_norm_gamma` / `output_norm_beta` [h].
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
    word_table = np.asarray(weights["word_embeddings"], dtype=np.float64)
    position_table = np.asarray(weights["position_embeddings"], dtype=np.float64)
    type_table = np.asarray(weights["type_embeddings"], dtype=np.float64)
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
        dense = np.asarray(dense_inputs, dtype=np.float64)
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
    outputs: list[Array] = []
    for layer in weights["layers"]:
        states = _encoder_block(layer, states, num_heads, activation, epsilon)
        output = np.full((length + num_dense, states.shape[1]), np.nan)
        for row, state in zip(rows, states, strict=True):
            output[row] = state
        outputs.append(output)
    return outputs


# Sentence vectors and their projections (section 2, appendix A and appendix C).


def _kept_rows(sequence_output: ArrayLike, mask: Sequence[int]) -> list[Array]:
    """The rows of [L, h] whose mask is not 0, as a list of vectors [h]."""
    sequence = np.asarray(sequence_output, dtype=np.float64)
    if len(sequence) != len(mask):
        raise ValueError("sequence_output and mask differ in length")
    rows = [sequence[i] for i in range(len(mask)) if int(mask[i]) != 0]
    if not rows:
        raise ValueError("no token to pool")
    return rows


def mean_pool(sequence_output: ArrayLike, mask: Sequence[int]) -> Array:
    """Section 2: average of the sequence outputs over the real tokens, [L, h], [L] -> [h]."""
    rows = _kept_rows(sequence_output, mask)
    total = np.zeros_like(rows[0])
    for row in rows:
        total = total + row
    return total / len(rows)


def max_pool(sequence_output: ArrayLike, mask: Sequence[int]) -> Array:
    """Footnote 1 of section 2: maximum of each feature over the tokens, [L, h], [L] -> [h]."""
    rows = _kept_rows(sequence_output, mask)
    return np.array([max(float(row[k]) for row in rows) for k in range(len(rows[0]))])


def cls_pool(sequence_output: ArrayLike, mask: Sequence[int]) -> Array:
    """Footnote 1 of section 2: the output at the first token, [L, h], [L] -> [h]."""
    if int(mask[0]) == 0:
        raise ValueError("the first token is masked out")
    return np.array(np.asarray(sequence_output, dtype=np.float64)[0])


POOLING: dict[str, Callable[[ArrayLike, Sequence[int]], Array]] = {
    "mean": mean_pool,
    "max": max_pool,
    "cls": cls_pool,
}


def project(v: ArrayLike, projection_weights: Sequence[Sequence[DenseLayer]]) -> Array:
    """Section 2 and appendix C: v_p = P(v), one projection being the identity.

    Every other projection is FC(h, 2h, ReLU), FC(2h, 2h, ReLU), FC(2h, h, None).

    Args:
        v: Sentence vector, [h].
        projection_weights: N - 1 networks, each a sequence of three (kernel, bias) pairs of shapes
            ([h, 2h], [2h]), ([2h, 2h], [2h]) and ([2h, h], [h]).

    Returns:
        [N, h]; row 0 is `v` and row n is the output of network n - 1.
    """
    vector = np.asarray(v, dtype=np.float64)
    size = len(vector)
    rows = [np.array(vector)]
    for network in projection_weights:
        if len(network) != 3:
            raise ValueError("a projection has three layers")
        expected = [(size, 2 * size), (2 * size, 2 * size), (2 * size, size)]
        activations: list[Activation | None] = [relu, relu, None]
        state = vector
        for (kernel, bias), shape, activation in zip(network, expected, activations, strict=True):
            matrix = np.asarray(kernel, dtype=np.float64)
            if matrix.shape != shape:
                raise ValueError(f"projection kernel is {matrix.shape}, expected {shape}")
            state = state @ matrix + np.asarray(bias, dtype=np.float64)
            if activation is not None:
                state = activation(state)
        rows.append(state)
    return np.stack(rows)


# Masked language modelling.


def masked_lm_log_probs(
    hidden_at_position: ArrayLike,
    head: Mapping[str, ArrayLike],
    embedding_table: ArrayLike,
    activation: Activation = gelu_tanh,
) -> Array:
    """Log probabilities of the vocabulary at one masked position (the BERT prediction head).

    u = LN(activation(W x + b)); log_softmax(E u + c), E being the tied word embedding table.

    Args:
        hidden_at_position: Encoder output at the position, [h].
        head: `dense_kernel` [h, h], `dense_bias` [h], `norm_gamma` / `norm_beta` [h] and
            `output_bias` [V].
        embedding_table: [V, h].
        activation: Nonlinearity after the dense layer.

    Returns:
        [V].
    """
    hidden = np.asarray(hidden_at_position, dtype=np.float64)
    kernel = np.asarray(head["dense_kernel"], dtype=np.float64)
    dense = hidden @ kernel + np.asarray(head["dense_bias"], dtype=np.float64)
    transformed = layer_norm(activation(dense), head["norm_gamma"], head["norm_beta"], 1e-12)
    table = np.asarray(embedding_table, dtype=np.float64)
    output_bias = np.asarray(head["output_bias"], dtype=np.float64)
    logits = [
        float(table[word] @ transformed) + float(output_bias[word]) for word in range(len(table))
    ]
    normaliser = _log_sum_exp(logits)
    return np.array([logit - normaliser for logit in logits])


def masked_lm_loss(
    log_probs: Sequence[ArrayLike], ids: Sequence[int], weights: Sequence[float]
) -> float:
    """Weighted mean negative log likelihood over all K predictions of the batch.

    sum_k w_k * (-log p_k(id_k)) / sum_k w_k. Predictions of weight 0 (padding) are skipped, and
    the loss is 0 if there are no others.

    Args:
        log_probs: K vectors [V].
        ids: [K] true word ids.
        weights: [K].
    """
    if not len(log_probs) == len(ids) == len(weights):
        raise ValueError("log_probs, ids and weights differ in length")
    numerator = 0.0
    denominator = 0.0
    for vector, word, weight in zip(log_probs, ids, weights, strict=True):
        if float(weight) == 0.0:
            continue
        numerator += float(weight) * -float(np.asarray(vector, dtype=np.float64)[int(word)])
        denominator += float(weight)
    return numerator / denominator if denominator != 0.0 else 0.0


def cmlm_loss(
    batch: Sequence[Mapping[str, Any]],
    weights: Mapping[str, Any],
    projection_weights: Sequence[Sequence[DenseLayer]],
    head: Mapping[str, ArrayLike],
    num_heads: int,
    num_projections: int,
    dense_positions: ArrayLike,
    pooling: str = "mean",
    activation: Activation = gelu_tanh,
    epsilon: float = 1e-12,
) -> float:
    """Section 2: masked language modelling of s_2 given the projected sentence vector of s_1.

    The same encoder weights serve both sentences. For each example: pool the encoded first
    sentence, project it, append the projections to the embeddings of the masked second sentence,
    encode and predict the masked words. The mean is over all predictions of the batch together.

    Args:
        batch: Examples, each a dict of `first_word_ids` [L_1], `first_mask` [L_1],
            `second_word_ids` [L_2] (already masked), `second_mask` [L_2], `masked_lm_positions`
            [K] (indices into the second sentence), `masked_lm_ids` [K], `masked_lm_weights` [K],
            and optionally `first_type_ids` [L_1] and `second_type_ids` [L_2] (0 by default).
        weights: Encoder weights, see `bert_encode`.
        projection_weights: N - 1 projection networks, see `project`.
        head: Prediction head, see `masked_lm_log_probs`.
        num_heads: Number of attention heads.
        num_projections: N, the identity included.
        dense_positions: Position rows of the projections: [N] for all, or [B, N] for each example.
        pooling: "mean", "max" or "cls".
        activation: Nonlinearity of the encoder and of the prediction head.
        epsilon: Layer norm epsilon of the encoder blocks.
    """
    if len(projection_weights) != num_projections - 1:
        raise ValueError("there must be one projection network fewer than projections")
    all_positions = np.asarray(dense_positions, dtype=np.int64)

    log_probs: list[Array] = []
    ids: list[int] = []
    prediction_weights: list[float] = []
    for index, example in enumerate(batch):
        first_ids = example["first_word_ids"]
        first_types = example.get("first_type_ids", [0] * len(first_ids))
        first_outputs = bert_encode(
            weights,
            first_ids,
            example["first_mask"],
            first_types,
            num_heads,
            activation=activation,
            epsilon=epsilon,
        )
        sentence_vector = POOLING[pooling](first_outputs[-1], example["first_mask"])
        projections = project(sentence_vector, projection_weights)

        second_ids = example["second_word_ids"]
        second_types = example.get("second_type_ids", [0] * len(second_ids))
        positions = all_positions[index] if all_positions.ndim == 2 else all_positions
        second_outputs = bert_encode(
            weights,
            second_ids,
            example["second_mask"],
            second_types,
            num_heads,
            dense_inputs=projections,
            dense_positions=positions.tolist(),
            activation=activation,
            epsilon=epsilon,
        )
        for position, word, weight in zip(
            example["masked_lm_positions"],
            example["masked_lm_ids"],
            example["masked_lm_weights"],
            strict=True,
        ):
            if float(weight) == 0.0:
                continue
            if (
                not 0 <= int(position) < len(second_ids)
                or not example["second_mask"][int(position)]
            ):
                raise ValueError(f"position {position} is not a token of the second sentence")
            hidden = second_outputs[-1][int(position)]
            log_probs.append(
                masked_lm_log_probs(hidden, head, weights["word_embeddings"], activation)
            )
            ids.append(int(word))
            prediction_weights.append(float(weight))
    return masked_lm_loss(log_probs, ids, prediction_weights)


# Bitext retrieval (section 4.2).


def _unit_rows(vectors: ArrayLike) -> Array:
    """Divides every row of [B, h] by its Euclidean length; rows of zeros stay zeros."""
    rows = np.array(vectors, dtype=np.float64)
    for i in range(len(rows)):
        length = math.sqrt(math.fsum(element * element for element in rows[i]))
        if length > 0.0:
            rows[i] = rows[i] / length
    return rows


def additive_margin_softmax(
    first: ArrayLike,
    second: ArrayLike,
    margin: float,
    scale: float,
    normalize: bool,
    bidirectional: bool,
) -> float:
    """Section 4.2: bitext retrieval loss with an additive margin.

    The formula of the paper lacks the logarithm; with it, for the source sentences,
    L_s = -1/B sum_i log(e^{l_ii} / (e^{l_ii} + sum_{j != i} e^{l_ij})), where
    l_ij = scale * (phi(s_i, t_j) - margin * [i = j]) and phi is the inner product. L_t swaps the
    roles: the sum in the denominator is over l_ji. The bidirectional loss is L_s + L_t.

    Args:
        first: Source sentence vectors, [B, h].
        second: Target sentence vectors, [B, h]; row i translates row i of `first`.
        margin: m, subtracted from the similarity of the matching pairs before scaling.
        scale: Factor of the logits; 1 in the paper.
        normalize: Whether to scale all vectors to length 1 first.
        bidirectional: Whether to add L_t.
    """
    sources = _unit_rows(first) if normalize else np.asarray(first, dtype=np.float64)
    targets = _unit_rows(second) if normalize else np.asarray(second, dtype=np.float64)
    batch_size = len(sources)
    if len(targets) != batch_size:
        raise ValueError("first and second differ in length")

    def logit(i: int, j: int) -> float:
        similarity = math.fsum(a * b for a, b in zip(sources[i], targets[j], strict=True))
        return scale * (similarity - (margin if i == j else 0.0))

    source_loss = 0.0
    target_loss = 0.0
    for i in range(batch_size):
        source_row = []
        target_row = []
        for j in range(batch_size):
            source_row.append(logit(i, j))
            target_row.append(logit(j, i))
        source_loss -= (logit(i, i) - _log_sum_exp(source_row)) / batch_size
        target_loss -= (logit(i, i) - _log_sum_exp(target_row)) / batch_size
    return source_loss + target_loss if bidirectional else source_loss


def recall_at_1(first: ArrayLike, second: ArrayLike, normalize: bool = False) -> float:
    """Fraction of rows i of `first` for which row i of `second` has the largest inner product.

    The retrieval task of section 4.2 without the margin. The lowest index wins a tie.

    Args:
        first: [B, h] queries.
        second: [B, h] candidates.
        normalize: Whether to scale all vectors to length 1 first.
    """
    queries = _unit_rows(first) if normalize else np.asarray(first, dtype=np.float64)
    candidates = _unit_rows(second) if normalize else np.asarray(second, dtype=np.float64)
    hits = 0
    for i in range(len(queries)):
        best = -1
        best_similarity = -math.inf
        for j in range(len(candidates)):
            similarity = math.fsum(a * b for a, b in zip(queries[i], candidates[j], strict=True))
            if similarity > best_similarity:
                best = j
                best_similarity = similarity
        if best == i:
            hits += 1
    return hits / len(queries)


# Training data (sections 2 and 3).


def bert_mask_counts(num_candidates: int, rate: float, maximum: int) -> int:
    """Number of tokens to mask in a sequence (BERT procedure, named in section 2).

    max(1, min(maximum, round(num_candidates * rate))), rounding halves to even, and 0 when there
    is no candidate. Section 3 has rate 0.313 and maximum 80 for sequences of 256.
    """
    if num_candidates == 0:
        return 0
    product = num_candidates * rate
    rounded = math.floor(product)
    remainder = product - rounded
    if remainder > 0.5 or (remainder == 0.5 and rounded % 2 == 1):
        rounded += 1
    return max(1, min(maximum, rounded))


def greedy_pack(sentence_lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Packs consecutive sentences into segments of at most `limit` tokens (section 3).

    A sentence joins the open segment if it fits in whole, otherwise it opens the next one. A
    sentence longer than `limit` is a segment of its own, of which the first `limit` tokens count.

    Args:
        sentence_lengths: Number of tokens of each sentence, at least 1.
        limit: Largest number of tokens in a segment, at least 1.

    Returns:
        The sentence indices of each segment; concatenated they are 0, 1, 2, ...
    """
    if limit < 1 or any(length < 1 for length in sentence_lengths):
        raise ValueError("lengths and limit must be at least 1")
    segments: list[list[int]] = []
    room = 0
    for index, length in enumerate(sentence_lengths):
        if length <= room:
            segments[-1].append(index)
            room -= length
        else:
            segments.append([index])
            room = max(0, limit - length)
    return segments


def adjacent_pairs(num_items: int) -> list[tuple[int, int]]:
    """Section 3: all pairs of consecutive sequences, (0, 1), (1, 2), ..., in document order."""
    pairs = []
    index = 0
    while index + 1 < num_items:
        pairs.append((index, index + 1))
        index += 1
    return pairs
