"""Semantic textual similarity: does the cosine of two sentences follow people's scores?

SemEval's STS tasks in SentEval's files (Conneau and Kiela 2018). A year has several subsets, and
papers differ in how they make one number of them: `all` correlates all pairs of a year together
(Reimers and Gurevych 2019, Gao et al. 2021), `mean` averages the subsets' correlations (DeCLUTR),
`wmean` weighs them by their pairs (the toolkit's own literature).
"""

import csv
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data import DataFolder
from official_cmlm.evaluation.encoding import Encode

HINT = "SentEval's data/downstream/STS folder has it"


@dataclasses.dataclass(frozen=True)
class ScoredPairs:
    """Sentence pairs with people's scores.

    Attributes:
      first, second: n sentences each.
      gold: float64 `[n]`, larger is more alike.
    """

    first: list[str]
    second: list[str]
    gold: np.ndarray


def cosines(encode: Encode, pairs: ScoredPairs) -> np.ndarray:
    """Cosine of the two sentences of each pair: float `[n]`; 0 for a vector of zeros."""
    first, second = encode(pairs.first), encode(pairs.second)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    dots = np.einsum("nd,nd->n", first, second)
    return np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)


def spearman(values: np.ndarray, gold: np.ndarray) -> float:
    """Spearman's correlation times 100; ties share their rank, 0 where one side is constant.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    return _correlation(stats.spearmanr, values, gold)


def pearson(values: np.ndarray, gold: np.ndarray) -> float:
    """Pearson's correlation times 100, 0 where one side is constant.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    return _correlation(stats.pearsonr, values, gold)


def _correlation(function: Callable, values: np.ndarray, gold: np.ndarray) -> float:
    if len(gold) < 2:
        raise ValueError(f"need at least 2 scored pairs, got {len(gold)}")
    if np.ptp(values) == 0 or np.ptp(gold) == 0:
        return 0.0
    return 100.0 * float(function(values, gold).statistic)


def similarity_spearman(encode: Encode, pairs: ScoredPairs) -> float:
    """Spearman's correlation, times 100, of cosines with the scores.

    Args:
      encode: maps n strings to an array `[n, dim]`.
      pairs: what to score.

    Raises:
      ValueError: if there are fewer than two pairs.
    """
    return spearman(cosines(encode, pairs), pairs.gold)


def subset_correlations(encode: Encode, subsets: Mapping[str, ScoredPairs]) -> dict[str, float]:
    """Spearman's and Pearson's correlations of a year's subsets in all three conventions.

    Returns:
      `{spearman,pearson}_{all,mean,wmean}` -> correlation times 100.

    Raises:
      ValueError: if a subset has fewer than two pairs.
    """
    similarity = {name: cosines(encode, pairs) for name, pairs in subsets.items()}
    together = np.concatenate([similarity[name] for name in subsets])
    gold = np.concatenate([pairs.gold for pairs in subsets.values()])
    sizes = np.array([len(pairs.gold) for pairs in subsets.values()])
    found = {}
    for label, function in (("spearman", spearman), ("pearson", pearson)):
        single = np.array([function(similarity[n], pairs.gold) for n, pairs in subsets.items()])
        found[f"{label}_all"] = function(together, gold)
        found[f"{label}_mean"] = float(single.mean())
        found[f"{label}_wmean"] = float((single * sizes).sum() / sizes.sum())
    return found


def together(subsets: Mapping[str, ScoredPairs]) -> ScoredPairs:
    """All pairs of all subsets, for the convention `all`."""
    parts = list(subsets.values())
    return ScoredPairs(
        [sentence for pairs in parts for sentence in pairs.first],
        [sentence for pairs in parts for sentence in pairs.second],
        np.concatenate([pairs.gold for pairs in parts]),
    )


def read_sts_benchmark(path: Path) -> ScoredPairs:
    """Reads `sts-dev.csv` or `sts-test.csv`: tab-separated, score and sentences in columns 5-7.

    Raises:
      UserError: if the file is missing or is none of these.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path}: missing; {HINT}")
    data = DataFolder(path.parent)
    return parse_sts_benchmark(path, data.lines(path, HINT))


def parse_sts_benchmark(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """STS-B's pairs; `path` is for the error."""
    rows = [line.split("\t") for line in lines]
    return scored_pairs(path, [(row[5], row[6], row[4]) for row in rows if len(row) > 6])


def parse_sick(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """The pairs of `SICK_test_annotated.txt`: tab-separated with a header."""
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    columns = ("sentence_A", "sentence_B", "relatedness_score")
    return scored_pairs(path, [tuple(row.get(c) or "" for c in columns) for row in rows])


def parse_csv(path: Path, lines: Sequence[str]) -> ScoredPairs:
    """The pairs of `stsb_multi_mt`'s files: two sentences and a score, separated by commas."""
    rows = [row for row in csv.reader(lines) if len(row) == 3]
    return scored_pairs(path, rows)


def read_subsets(data: DataFolder, folder: Path) -> dict[str, ScoredPairs]:
    """All subsets of a year, e.g. `STS14-en-test`; pairs without a score are left out.

    STS13's SMT subset is not among the toolkit's files: its licence did not allow that.

    Raises:
      UserError: if there is none, or texts and scores do not match.
    """
    inputs = sorted(folder.glob("STS.input.*.txt"))
    if not inputs:
        raise UserError(f"{folder}: no STS.input.*.txt; {HINT}")
    subsets = {}
    for path in inputs:
        texts = data.lines(path, HINT)
        scores = data.lines(path.with_name(path.name.replace("STS.input.", "STS.gs.")), HINT)
        if len(texts) != len(scores):
            raise UserError(f"{path}: {len(texts)} pairs but {len(scores)} scores; fetch both anew")
        rows = [(*f"{text}\t".split("\t")[:2], score) for text, score in zip(texts, scores)]
        name = path.name.removeprefix("STS.input.").removesuffix(".txt")
        subsets[name] = scored_pairs(path, rows)
    return subsets


def scored_pairs(path: Path, rows: Sequence[Sequence[str]]) -> ScoredPairs:
    """(first, second, score) of each row; rows without a score are left out.

    Raises:
      UserError: if fewer than two are left or a score is no number; `path` names the file.
    """
    scored = [row for row in rows if row[2].strip()]
    if len(scored) < 2:
        raise UserError(f"{path}: {len(scored)} scored pairs; need at least 2; {HINT}")
    try:
        gold = np.array([float(row[2]) for row in scored])
    except ValueError as error:
        raise UserError(f"{path}: a score is no number ({error}); {HINT}") from None
    return ScoredPairs([row[0] for row in scored], [row[1] for row in scored], gold)
