"""Loop-by-loop NumPy reference for contrastive learning, inference and bitext retrieval.

Written from the papers' text alone: "DeCLUTR: Deep Contrastive Learning for Unsupervised Textual
Representations" (section 3.1), "Fast, Effective, and Self-Supervised: Transforming Masked
Language Models into Universal Lexical and Sentence Encoders" (Mirror-BERT, section 2.3),
"CMLM-CSE: Based on Conditional MLM Contrastive Learning for Sentence Embeddings" (section 3) and
the paper of CMLM (sections 4.2 and 4.3).

Everything runs in float64 and one pair of vectors at a time. Notation of the shape comments:
h vector size, B examples of a batch (A N anchors of N documents in DeCLUTR), P positives of an
anchor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tests.oracles.bert_numpy import Array, _encoder_block, floats, gelu_tanh, log_sum_exp
from tests.oracles.cmlm_numpy import additive_margin_softmax

# Bitext retrieval, CMLM section 4.2, which is the retrieval of QuickThought too.
__all__ = ["additive_margin_softmax"]


def cosine(u: ArrayLike, v: ArrayLike) -> float:
    """Computes sim(u, v) = u^T v / (||u|| ||v||); 0 if one of them has no direction."""
    first, second = floats(u), floats(v)
    product = math.fsum(a * b for a, b in zip(first, second, strict=True))
    length = math.sqrt(math.fsum(a * a for a in first)) * math.sqrt(
        math.fsum(b * b for b in second)
    )
    return product / length if length > 0.0 else 0.0


# DeCLUTR, section 3.1.


def mean_positives(positives: ArrayLike, num_anchors: int) -> Array:
    """Computes e_{i+AN} = 1/P sum_p g(f(s_{i+pAN})), each anchor's mean positive embedding.

    Args:
        positives: [P * AN, h]; the p-th positive of anchor i (both from 0) is row i + p * AN.
        num_anchors: AN.

    Returns:
        [AN, h].
    """
    rows = floats(positives)
    count = len(rows) // num_anchors
    if count * num_anchors != len(rows):
        raise ValueError("not all anchors have as many positives")
    return np.stack([sum(rows[i::num_anchors]) / count for i in range(num_anchors)])


def nt_xent_term(embeddings: ArrayLike, i: int, j: int, temperature: float) -> float:
    """Computes l(i, j) = -log(exp(sim(e_i, e_j)/t) / sum_{k != i} exp(sim(e_i, e_k)/t)).

    Args:
        embeddings: All 2AN anchors and positives, [2AN, h].
        i: The row that looks for its counterpart, from 0.
        j: The counterpart's row.
        temperature: t.
    """
    rows = floats(embeddings)
    denominator = [cosine(rows[i], row) / temperature for k, row in enumerate(rows) if k != i]
    return log_sum_exp(denominator) - cosine(rows[i], rows[j]) / temperature


def nt_xent_sum(anchors: ArrayLike, positives: ArrayLike, temperature: float) -> float:
    """Computes L_contrastive = sum_{i=1}^{AN} l(i, i + AN) + l(i + AN, i).

    Args:
        anchors: [AN, h].
        positives: [AN, h], the mean positive of each anchor.
        temperature: t.
    """
    embeddings = [*np.asarray(anchors), *np.asarray(positives)]
    count = len(anchors)
    if len(embeddings) != 2 * count:
        raise ValueError("anchors and positives differ in number")
    total = 0.0
    for i in range(count):
        total += nt_xent_term(embeddings, i, i + count, temperature)
        total += nt_xent_term(embeddings, i + count, i, temperature)
    return total


def nt_xent_mean(anchors: ArrayLike, positives: ArrayLike, temperature: float) -> float:
    """Divides the sum of the paper by its 2AN terms."""
    return nt_xent_sum(anchors, positives, temperature) / (2 * len(anchors))


# Mirror-BERT, section 2.3.


def info_nce(
    first: ArrayLike, second: ArrayLike, temperature: float, positive_in_denominator: bool = False
) -> list[float]:
    """Returns the terms of equation 1, one for each of the 2B strings of the batch.

    -log(exp(cos(f(x_i), f(x'_i)) / t) / sum_{x_j in N_i} exp(cos(f(x_i), f(x_j)) / t)), where
    x'_i is the duplicate of x_i and N_i is the whole batch but these two, 2B - 2 strings. The
    paper's loss is the sum of the terms.

    Args:
        first: One string of each pair, [B, h].
        second: Its duplicate, [B, h].
        temperature: t.
        positive_in_denominator: Whether the sum has the duplicate too, as other papers have it.

    Returns:
        2B terms: those of `first`, then those of `second`.
    """
    strings = [*floats(first), *floats(second)]
    pair_of = [*range(len(first)), *range(len(second))]
    terms = []
    for i in range(len(strings)):
        numerator = None
        denominator = []
        for j in range(len(strings)):
            if j == i:
                continue
            logit = cosine(strings[i], strings[j]) / temperature
            if pair_of[j] == pair_of[i]:
                numerator = logit
                if positive_in_denominator:
                    denominator.append(logit)
            else:
                denominator.append(logit)
        if numerator is None:
            raise ValueError("first and second differ in length")
        terms.append(log_sum_exp(denominator) - numerator)
    return terms


# QuickThought (Logeswaran and Lee 2018, section 3), as their code trains it.


def quick_thought_run(
    first: ArrayLike, second: ArrayLike, places: Sequence[tuple], distance: int = 1
) -> list[float | None]:
    """Returns each sentence's cross-entropy with the even distribution over its neighbours.

    Scores are f(s_i) . g(s_j) over all sentences j of the batch, and 0 where j is i.

    Args:
        first: f of the sentences, [B, h].
        second: g of the sentences, [B, h].
        places: (document, number in it) of each sentence.
        distance: How far away a neighbour may be.

    Returns:
        B terms; None for a sentence without a neighbour in the batch.
    """
    terms: list[float | None] = []
    for i, (document, place) in enumerate(places):
        scores, own = [], []
        for j, (other, there) in enumerate(places):
            products = (float(a) * float(b) for a, b in zip(first[i], second[j], strict=True))
            scores.append(0.0 if j == i else math.fsum(products))
            if j != i and other == document and abs(there - place) <= distance:
                own.append(scores[-1])
        log_sum = log_sum_exp(scores)
        terms.append(math.fsum(log_sum - score for score in own) / len(own) if own else None)
    return terms


# CMLM-CSE, section 3.1 (SimCSE).


def simcse(
    first: ArrayLike, second: ArrayLike, temperature: float, positive_in_denominator: bool = True
) -> list[float]:
    """Returns l_i = -log(exp(sim(h_i, h'_i)/t) / sum_{j=1}^N exp(sim(h_i, h'_j)/t)) for each i.

    Args:
        first: h, the sentences under one dropout mask, [B, h].
        second: h', the same sentences under another one, [B, h].
        temperature: t.
        positive_in_denominator: Whether j = i is in the sum, as in the paper.
    """
    if len(first) != len(second):
        raise ValueError("first and second differ in length")
    terms = []
    for i in range(len(first)):
        logits = [cosine(first[i], second[j]) / temperature for j in range(len(second))]
        denominator = [logits[j] for j in range(len(second)) if j != i or positive_in_denominator]
        terms.append(log_sum_exp(denominator) - logits[i])
    return terms


def with_hard_negatives(
    first: ArrayLike,
    second: ArrayLike,
    negatives: Sequence[ArrayLike | None],
    scale: float,
    margin: float = 0.0,
    weight: float = 0.0,
    normalize: bool = True,
) -> list[float]:
    """Computes supervised SimCSE (Gao et al. 2021, §4 and appendix B), with CMLM §4.2's margin.

    l_i = -log(e^{s (sim(h_i, h_i+) - m)} / (e^{s (sim(h_i, h_i+) - m)}
        + sum_{j != i} e^{s sim(h_i, h_j+)} + sum_j e^{w [i = j]} e^{s sim(h_i, h_j-)}))

    Args:
        first: h, [B, h].
        second: h+, [B, h].
        negatives: h-, B vectors [h]; None where there is none.
        scale: s, one over the temperature.
        margin: m.
        weight: w, log of the paper's alpha.
        normalize: Whether sim is the cosine; else the inner product.
    """

    def similarity(u: ArrayLike, v: ArrayLike) -> float:
        if normalize:
            return cosine(u, v)
        return math.fsum(float(a) * float(b) for a, b in zip(u, v, strict=True))

    terms = []
    for i in range(len(first)):
        own = scale * (similarity(first[i], second[i]) - margin)
        logits = [own]
        for j in range(len(second)):
            if j != i:
                logits.append(scale * similarity(first[i], second[j]))
        for j, negative in enumerate(negatives):
            if negative is not None:
                logits.append(scale * similarity(first[i], negative) + (weight if i == j else 0.0))
        terms.append(log_sum_exp(logits) - own)
    return terms


def fuse(
    vector: ArrayLike,
    lexical: ArrayLike,
    mask: Sequence[int],
    layers: Sequence[Mapping[str, ArrayLike]],
    num_heads: int,
    padding: bool = False,
) -> Array:
    """Fuses (section 3.2): h'' = [h, h'_{>0}] through the blocks of the semantic fusioner.

    Args:
        vector: h, the sentence vector, [h].
        lexical: h', the lexical features of the masked sentence, [L, h].
        mask: [L], 1 for a token and 0 for padding, which follows all tokens.
        layers: The fusioner's blocks as in `bert_encode`.
        num_heads: Number of attention heads.
        padding: Whether the outputs of padding are computed too, which nothing attends to.

    Returns:
        [tokens, h], or [L, h] with padding; row i belongs to token i.
    """
    rows = [floats(vector)]
    for i in range(1, len(mask)):
        if int(mask[i]) != 0 or padding:
            rows.append(floats(lexical)[i])
    states = np.stack(rows)
    for layer in layers:
        states = _encoder_block(layer, states, num_heads, gelu_tanh, 1e-12, sum(mask))
    return states


def finds_own(anchor: ArrayLike, candidates: Sequence[ArrayLike], own: int) -> bool:
    """Returns whether candidate `own` is the one most similar to the anchor."""
    similarities = [cosine(anchor, candidate) for candidate in candidates]
    return similarities.index(max(similarities)) == own


# Natural language inference, CMLM section 4.3.


def nli_features(premise: ArrayLike, hypothesis: ArrayLike) -> Array:
    """Returns the concatenation [u, v, |u - v|, u * v] of two sentence vectors [h]: [4h]."""
    u, v = floats(premise), floats(hypothesis)
    return np.concatenate([u, v, abs(u - v), u * v])


def inference_logits(features: ArrayLike, kernel: ArrayLike, bias: ArrayLike) -> Array:
    """Computes the 3-way classifier, one linear layer: [4h] -> [3]."""
    return floats(features) @ floats(kernel) + floats(bias)


def cross_entropy(logits: ArrayLike, label: int) -> float:
    """Computes -log softmax(logits)[label]."""
    return log_sum_exp(logits) - float(floats(logits)[label])
