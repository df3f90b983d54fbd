"""Cosines of sentence pairs, and their correlation with human scores.

An STS year has several subsets, and papers combine them in three ways: `all` correlates all pairs
of the year together (Reimers and Gurevych 2019, Gao et al. 2021), `mean` averages the subsets'
correlations (DeCLUTR), `wmean` weights that average by the number of pairs (SentEval).
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy import stats

from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.nearest import unit

# Equal texts in unequal batches have vectors that differ by rounding, so their cosines do, too.
_DECIMALS = 6


def cosines(encode: Encode, pairs: ScoredPairs) -> np.ndarray:
    """Returns the cosine of each pair: float64 `[n]`; 0 where one of the vectors is zero.

    They are rounded, so that cosines that differ only by the rounding of float32 vectors are ties:
    an encoder that knows neither of two words may give both the same vector.
    """
    first, second = (unit(encode(texts), np.float64) for texts in (pairs.first, pairs.second))
    return np.round(np.einsum("nd,nd->n", first, second), _DECIMALS)


def spearman(values: np.ndarray, gold: np.ndarray) -> float:
    """Returns Spearman's correlation times 100; ties share a rank; 0 if one side is constant."""
    return _correlation(stats.spearmanr, values, gold)


def pearson(values: np.ndarray, gold: np.ndarray) -> float:
    """Returns Pearson's correlation times 100; 0 if one side is constant."""
    return _correlation(stats.pearsonr, values, gold)


def _correlation(function: Callable, values: np.ndarray, gold: np.ndarray) -> float:
    if np.ptp(values) == 0 or np.ptp(gold) == 0:
        return 0.0
    return 100.0 * float(function(values, gold).statistic)


CORRELATIONS = {"spearman": spearman, "pearson": pearson}


def similarity_spearman(encode: Encode, pairs: ScoredPairs) -> float:
    """Returns Spearman's correlation, times 100, between cosines and human scores."""
    return spearman(cosines(encode, pairs), pairs.gold)


def subset_correlations(encode: Encode, subsets: Mapping[str, ScoredPairs]) -> dict[str, float]:
    """Returns correlations of a year in all three ways: `{spearman,pearson}_{all,mean,wmean}`."""
    similarity = {name: cosines(encode, pairs) for name, pairs in subsets.items()}
    together = np.concatenate([similarity[name] for name in subsets])
    gold = np.concatenate([pairs.gold for pairs in subsets.values()])
    sizes = np.array([len(pairs.gold) for pairs in subsets.values()])
    correlations = {}
    for label, function in CORRELATIONS.items():
        single = np.array([function(similarity[n], pairs.gold) for n, pairs in subsets.items()])
        correlations[f"{label}_all"] = function(together, gold)
        correlations[f"{label}_mean"] = float(single.mean())
        correlations[f"{label}_wmean"] = float((single * sizes).sum() / sizes.sum())
    return correlations
