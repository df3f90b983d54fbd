"""Self-language bias: the language of a sentence's nearest neighbour (CMLM §5.2, Fig. 2, 3).

The pool consists of the first sentences of PAWS-X in all languages. Each is a query; its nearest
neighbour by cosine in the rest of the pool is a translation in a language-agnostic space, and a
sentence of the query's own language in a biased one.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.pawsx import aligned_distinct, first_sentences
from official_cmlm.evaluation.encoding import Encode, prepare
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.metrics.principal_components import RemovalOptions, fit_removal
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.limits import at_least

HINT = (
    "PAWS-X (github.com/google-research-datasets/paws) belongs into DATA_DIR/pawsx as "
    "<split>-<lang>.tsv, row-aligned over the languages: sentence1, sentence2, label"
)

_FILE = re.compile(r"(.+)-([a-z]{2,3}(?:[-_][A-Z][A-Za-z]{1,3})?)\.tsv")
_MAP_SENTENCES = 100

Pool = Mapping[str, np.ndarray]
"""Language -> float `[n, dim]`, row i of each translates row i of the others."""


@dataclasses.dataclass(frozen=True)
class Options(RemovalOptions):
    """The options of `RemovalOptions`, and:

    Attributes:
      split: of the files, e.g. `dev`. Default "": `test` if found, else `dev`, else the first by
        name; the paper does not name one.
      max_rows: number of rows to use, from the first. Default 0: all.
    """

    split: str = ""
    max_rows: Annotated[int, at_least(0, "0: all")] = 0


def hits(queries: Pool, candidates: Pool) -> tuple[np.ndarray, np.ndarray]:
    """The nearest neighbour of every sentence among all other sentences of the pool.

    Args:
      queries, candidates: embeddings of the pool as queries and as candidates; they differ if
        components are removed from the queries only. The same languages and rows.

    Returns:
      (language int64 `[languages, n]`, an index into `queries`; row int64 `[languages, n]`) of
      each query's neighbour; ties go to the first language, then to the first row.

    Raises:
      ValueError: if languages or rows differ, or the pool has a single sentence.
    """
    languages = list(queries)
    rows = {len(vectors) for vectors in (*queries.values(), *candidates.values())}
    if len(rows) != 1 or languages != list(candidates):
        raise ValueError("need the same languages and numbers of rows on both sides")
    asked, pool = (
        np.concatenate([unit(side[language]) for language in languages])
        for side in (queries, candidates)
    )
    indices, _ = nearest(asked, pool, exclude=np.arange(len(pool)))
    language, row = np.divmod(indices[:, 0], rows.pop())
    return language.reshape(len(languages), -1), row.reshape(len(languages), -1)


def bias(queries: Pool, candidates: Pool) -> dict[str, dict[str, float]]:
    """Shares of the neighbours' languages, times 100, for each language of the queries.

    Args:
      queries, candidates: as in `hits`.

    Returns:
      language -> `share_<lang>` for every language, `share_own`, and `accuracy`: the share of
      queries whose neighbour is one of their translations.
    """
    languages = list(queries)
    found, row = hits(queries, candidates)
    scores = {}
    for i, own in enumerate(languages):
        shares = 100.0 * np.bincount(found[i], minlength=len(languages)) / len(found[i])
        scores[own] = {f"share_{name}": float(share) for name, share in zip(languages, shares)}
        scores[own]["share_own"] = float(shares[i])
        scores[own]["accuracy"] = 100.0 * float((row[i] == np.arange(len(row[i]))).mean())
    return scores


def plane(pool: Pool, rows: int = _MAP_SENTENCES) -> dict[str, list[list[float]]]:
    """Unit embeddings projected on the first two principal axes of all languages together.

    Args:
      pool: the embeddings.
      rows: number of sentences per language, from the first.

    Returns:
      language -> [x, y] of each sentence; the sign of each axis makes its entry of largest absolute
      value positive.
    """
    parts = {language: unit(vectors[:rows]) for language, vectors in pool.items()}
    matrix = np.concatenate(list(parts.values())).astype(np.float64)
    matrix -= matrix.mean(axis=0)
    axes = np.linalg.svd(matrix, full_matrices=False)[2][:2]
    # Singular vectors are unique up to their sign; fix it.
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    points = np.zeros([len(matrix), 2])
    points[:, : len(axes)] = matrix @ (axes * np.sign(largest)[:, np.newaxis]).T
    split = np.split(points, np.cumsum([len(part) for part in parts.values()])[:-1])
    return {language: part.tolist() for language, part in zip(parts, split)}


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every language of one split and their unweighted mean, the task `all`.

    Metrics: `share_<lang>`, `share_own`, `accuracy`; after principal component removal the same
    with `_pcr`. `count` is the number of queries. Figures: `language_bias` has the shares,
    `embedding_map` the points of up to 100 sentences per language.

    Raises:
      UserError: if there are files of fewer than two languages, or their rows do not align.
    """
    folder = data.folder("pawsx", "paws-x", "paws_x", hint=HINT)
    paths = _split_files(folder, options.split)
    texts, notes = aligned_distinct(
        {language: first_sentences(data, path, HINT) for language, path in paths.items()},
        {language: str(path) for language, path in paths.items()},
        options.max_rows,
    )
    report.notes += notes
    prepare(encode, *texts.values())
    pool = {language: encode(sentences) for language, sentences in texts.items()}
    rows = len(next(iter(texts.values())))
    names = " ".join(path.name for path in paths.values())
    report.notes.append(f"{rows} rows in {len(pool)} languages of {names}")
    before = bias(pool, pool)
    _add(report, before, "", rows)
    report.figures["language_bias"] = {"before": _shares(before)}
    report.figures["embedding_map"] = {
        "languages": list(pool),
        "sentences": list(range(min(rows, _MAP_SENTENCES))),
        "before": plane(pool),
    }
    if not options.pcr:
        return
    with report.task("pcr"):
        removal = fit_removal(pool, options.num_components, options.center)
        removed = {language: removal(vectors, language) for language, vectors in pool.items()}
        after = bias(removed, removed if options.sides == "both" else pool)
        _add(report, after, "_pcr", rows)
        report.figures["language_bias"]["after"] = _shares(after)
        report.figures["embedding_map"]["after"] = plane(removed)


def _split_files(folder: Path, wanted: str) -> dict[str, Path]:
    """Language -> file of the split."""
    splits: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.glob("*.tsv")):
        if match := _FILE.fullmatch(path.name):
            splits.setdefault(match[1], {})[match[2]] = path
    if not splits:
        raise UserError(f"{folder}: no <split>-<lang>.tsv; {HINT}")
    if wanted and wanted not in splits:
        raise UserError(f"{folder}: no {wanted}-<lang>.tsv; its splits are {', '.join(splits)}")
    split = wanted or next((name for name in ("test", "dev") if name in splits), min(splits))
    if len(splits[split]) < 2:
        raise UserError(f"{folder}: {split} has files of one language only; {HINT}")
    return splits[split]


def _add(report: SuiteReport, scores: dict[str, dict[str, float]], suffix: str, rows: int) -> None:
    for language, metrics in scores.items():
        for name, value in metrics.items():
            report.add(language, name + suffix, value, rows)
    for name in ("share_own", "accuracy"):
        mean = float(np.mean([metrics[name] for metrics in scores.values()]))
        report.add("all", name + suffix, mean, rows * len(scores))


def _shares(scores: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Language of the query -> language of its neighbour -> share, times 100."""
    return {own: {name: scores[own][f"share_{name}"] for name in scores} for own in scores}
