"""Loop-by-loop NumPy reference for the Conditional Masked Language Model (CMLM).

Written from the paper's text alone; see `bert_numpy` for the encoder and the notation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tests.oracles.bert_numpy import (
    POOLING,
    Activation,
    Array,
    bert_encode,
    cls_pool,
    floats,
    gelu_erf,
    gelu_tanh,
    layer_norm,
    log_sum_exp,
    max_pool,
    mean_pool,
    relu,
    softmax,
)

# Tests reach the encoder's functions through this module too.
__all__ = ["bert_encode", "cls_pool", "gelu_erf", "max_pool", "mean_pool", "softmax"]

DenseLayer = tuple[ArrayLike, ArrayLike]


def project(
    v: ArrayLike,
    projection_weights: Sequence[Sequence[DenseLayer]],
    depth: int = 3,
    width: int | None = None,
) -> Array:
    """Projects (section 2 and appendix C): v_p = P(v), one projection being the identity.

    Every other projection is FC(h, 2h, ReLU), FC(2h, 2h, ReLU), FC(2h, h, None), or has another
    depth and width, which the appendix tried too.

    Args:
        v: Sentence vector, [h].
        projection_weights: N - 1 networks, each a sequence of `depth` (kernel, bias) pairs, of
            shapes ([h, w], [w]), ([w, w], [w]) … and ([w, h], [h]).
        depth: Layers of a network.
        width: w of the shapes above; 2h by default.

    Returns:
        [N, h]; row 0 is `v` and row n is the output of network n - 1.
    """
    vector = floats(v)
    size = len(vector)
    widths = [size, *[width or 2 * size] * (depth - 1), size]
    rows = [vector]
    for network in projection_weights:
        shapes = [np.shape(kernel) for kernel, _ in network]
        if shapes != list(zip(widths, widths[1:])):
            raise ValueError(f"projection kernels are {shapes}, their widths must be {widths}")
        state = vector
        for number, (kernel, bias) in enumerate(network, 1):
            state = state @ floats(kernel) + floats(bias)
            state = state if number == depth else relu(state)
        rows.append(state)
    return np.stack(rows)


# Masked language modelling.


def masked_lm_log_probs(
    hidden_at_position: ArrayLike,
    head: Mapping[str, ArrayLike],
    embedding_table: ArrayLike,
    activation: Activation = gelu_tanh,
) -> Array:
    """Returns the vocabulary's log probabilities at a masked position (BERT's prediction head).

    u = LN(activation(W x + b)); log_softmax(E u + c), E being the tied word embedding table.

    Args:
        hidden_at_position: Encoder output at the position, [h].
        head: `dense_kernel` [h, e], `dense_bias` [e], `norm_gamma` / `norm_beta` [e] and
            `output_bias` [V]; e is h but in ALBERT.
        embedding_table: [V, e].
        activation: Nonlinearity after the dense layer.

    Returns:
        [V].
    """
    hidden = floats(hidden_at_position)
    kernel = floats(head["dense_kernel"])
    dense = hidden @ kernel + floats(head["dense_bias"])
    transformed = layer_norm(activation(dense), head["norm_gamma"], head["norm_beta"], 1e-12)
    table = floats(embedding_table)
    output_bias = floats(head["output_bias"])
    logits = [float(row @ transformed) + float(b) for row, b in zip(table, output_bias)]
    return np.array(logits) - log_sum_exp(logits)


def masked_lm_loss(
    log_probs: Sequence[ArrayLike], ids: Sequence[int], weights: Sequence[float]
) -> float:
    """Returns the weighted mean negative log likelihood of all K predictions of the batch.

    sum_k w_k * (-log p_k(id_k)) / sum_k w_k. Predictions of weight 0 (padding) are skipped, and
    the loss is 0 without others.

    Args:
        log_probs: K vectors [V].
        ids: [K] true word ids.
        weights: [K].
    """
    kept = [k for k in zip(log_probs, ids, weights, strict=True) if float(k[2]) != 0.0]
    total = sum(float(weight) * -float(vector[int(word)]) for vector, word, weight in kept)
    return total / sum(float(weight) for _, _, weight in kept) if kept else 0.0


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
    """Computes the loss of section 2: masked tokens of s_2 given the projected vector of s_1.

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

    predictions: list[tuple[Array, int, float]] = []

    def encode(example: Mapping[str, Any], name: str, **dense: Any) -> Array:
        ids, mask = example[f"{name}_word_ids"], example[f"{name}_mask"]
        types = example.get(f"{name}_type_ids", [0] * len(ids))
        settings = {"activation": activation, "epsilon": epsilon, **dense}
        return bert_encode(weights, ids, mask, types, num_heads, **settings)[-1]

    for index, example in enumerate(batch):
        sentence_vector = POOLING[pooling](encode(example, "first"), example["first_mask"])
        positions = all_positions[index] if all_positions.ndim == 2 else all_positions
        outputs = encode(
            example,
            "second",
            dense_inputs=project(sentence_vector, projection_weights),
            dense_positions=positions.tolist(),
        )
        names = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
        for position, word, weight in zip(*(example[name] for name in names), strict=True):
            if float(weight) == 0.0:
                continue
            if (
                not 0 <= position < len(example["second_mask"])
                or not example["second_mask"][position]
            ):
                raise ValueError(f"position {position} is not a token of the second sentence")
            table = weights["word_embeddings"]
            log_probs = masked_lm_log_probs(outputs[position], head, table, activation)
            predictions.append((log_probs, int(word), float(weight)))
    return masked_lm_loss(*zip(*predictions)) if predictions else 0.0


# Bitext retrieval (section 4.2).


def _unit_rows(vectors: ArrayLike) -> Array:
    """Divides every row of [B, h] by its Euclidean length; rows of zeros stay zeros."""
    rows = floats(vectors)
    lengths = np.sqrt([math.fsum(element * element for element in row) for row in rows])
    return rows / np.where(lengths > 0.0, lengths, 1.0)[:, np.newaxis]


def additive_margin_softmax(
    first: ArrayLike,
    second: ArrayLike,
    margin: float,
    scale: float,
    normalize: bool,
    bidirectional: bool,
) -> float:
    """Computes the bitext retrieval loss with an additive margin (section 4.2).

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
    sources = _unit_rows(first) if normalize else floats(first)
    targets = _unit_rows(second) if normalize else floats(second)
    batch_size = len(sources)
    if len(targets) != batch_size:
        raise ValueError("first and second differ in length")

    def logit(i: int, j: int) -> float:
        similarity = math.fsum(a * b for a, b in zip(sources[i], targets[j], strict=True))
        return scale * (similarity - (margin if i == j else 0.0))

    source_loss = target_loss = 0.0
    for i in range(batch_size):
        source_row = [logit(i, j) for j in range(batch_size)]
        target_row = [logit(j, i) for j in range(batch_size)]
        source_loss -= (logit(i, i) - log_sum_exp(source_row)) / batch_size
        target_loss -= (logit(i, i) - log_sum_exp(target_row)) / batch_size
    return source_loss + target_loss if bidirectional else source_loss


def recall_at_1(first: ArrayLike, second: ArrayLike, normalize: bool = False) -> float:
    """Returns the share of rows i of `first` whose largest inner product is with row i of `second`.

    The retrieval task of section 4.2 without the margin. The lowest index wins a tie.

    Args:
        first: [B, h] queries.
        second: [B, h] candidates.
        normalize: Whether to scale all vectors to length 1 first.
    """
    queries = _unit_rows(first) if normalize else floats(first)
    candidates = _unit_rows(second) if normalize else floats(second)
    hits = 0
    for i, query in enumerate(queries):
        products = [math.fsum(a * b for a, b in zip(query, c, strict=True)) for c in candidates]
        hits += products.index(max(products)) == i
    return hits / len(queries)


# Training data (sections 2 and 3).


def bert_mask_counts(num_candidates: int, length: int, rate: float, maximum: int) -> int:
    """Returns the number of tokens to mask in a sequence (BERT's procedure, section 2).

    max(1, min(maximum, round(length * rate))), rounding halves to even, never more than there are
    candidates. The length counts the special tokens, the candidates do not. Section 3 masks 80 of
    256, Table 10 tries 40, 60, 80 and 100.
    """
    if num_candidates == 0:
        return 0
    # Python's `round` rounds halves to even.
    return min(max(1, min(maximum, round(length * rate))), num_candidates)


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


def pair_segments(sentence_lengths: Sequence[int], limit: int) -> list[list[int]]:
    """`greedy_pack` for pairs: several sentences that all fit one segment become two of them.

    The two are cut where they differ least in tokens, of equal cuts at the first.
    """
    packed = greedy_pack(sentence_lengths, limit)
    count = len(sentence_lengths)
    if len(packed) > 1 or count < 2:
        return packed
    cuts = [
        (abs(sum(sentence_lengths[:cut]) - sum(sentence_lengths[cut:])), cut)
        for cut in range(1, count)
    ]
    _, cut = min(cuts)
    return [list(range(cut)), list(range(cut, count))]


def adjacent_pairs(num_items: int) -> list[tuple[int, int]]:
    """Returns all pairs of consecutive sequences (section 3), (0, 1), (1, 2), ..., in order."""
    return [(index, index + 1) for index in range(num_items - 1)]
