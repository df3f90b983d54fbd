"""Self-language bias: the language of a sentence's nearest neighbour (CMLM §5.2, Fig. 2).

The pool consists of the first sentences of PAWS-X in all languages. Each is a query; its nearest
neighbour by cosine in the rest of the pool is a translation in a language-agnostic space, and a
sentence of the query's own language in a biased one.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import at_least
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import choose_languages
from official_cmlm.evaluation.data.pawsx import (
    HINT,
    Files,
    Unsuitable,
    first_sentences,
    read_prepared,
    select_distinct_rows,
    split_name,
    splits,
)
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.metrics.principal_components import RemovalOptions
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole
from official_cmlm.evaluation.suites import register

Pool = Mapping[str, np.ndarray]
"""Language -> float `[n, dim]`, row i of each translates row i of the others."""


@dataclasses.dataclass(frozen=True)
class Options(RemovalOptions):
    """The options of `RemovalOptions`, and:

    Attributes:
      split: `test`, `dev`, `train` or another of XTREME's copy; Google's `test_2k` is `test`.
        Default "": the first of `test`, `dev` and the others by name whose files are in a known
        form, for two languages at least; the paper does not name one.
      languages: codes of the languages that make the pool, at least two. Default: all found.
      max_rows: number of rows to use, from the first. Default 0: all.
    """

    split: str = ""
    languages: list[str] = dataclasses.field(default_factory=list)
    max_rows: Annotated[int, at_least(0, "0: all")] = 0


def bias(queries: Pool, candidates: Pool) -> dict[str, dict[str, float]]:
    """Computes shares of the neighbours' languages, times 100, for each query language.

    A sentence's neighbour is the nearest of all other sentences of the pool; ties go to the first
    language, then to the first row. Queries and candidates differ if components are removed from
    the queries only.

    Returns:
      language -> `share_<lang>` for every language, `share_own`, and `accuracy`: the share of
      queries whose neighbour is one of their translations.
    """
    languages = list(queries)
    asked, pool = (
        np.concatenate([unit(side[language]) for language in languages])
        for side in (queries, candidates)
    )
    places, _ = nearest(asked, pool, exclude=np.arange(len(pool)))
    rows = len(pool) // len(languages)
    scores = {}
    for i, (own, neighbours) in enumerate(zip(languages, places.reshape(-1, rows))):
        shares = 100.0 * np.bincount(neighbours // rows, minlength=len(languages)) / rows
        scores[own] = {f"share_{name}": float(share) for name, share in zip(languages, shares)}
        scores[own]["share_own"] = float(shares[i])
        scores[own]["accuracy"] = 100.0 * float((neighbours % rows == np.arange(rows)).mean())
    return scores


_REMOVED = "component removed"
_METRICS = (
    Metric("share_own", "neighbours in the query's language", "%", better=-1, main=True),
    Metric("accuracy", "accuracy", "%"),
)
_SHARE = Metric("share_*", "neighbours in *", "%", better=0)
RESULTS = SuiteResults(
    (
        *_METRICS,
        *(metric.variant("_pcr", _REMOVED) for metric in (*_METRICS, _SHARE)),
        _SHARE,
    ),
    averages=r"all",
    bars="Nearest neighbours in the query's own language, by language of the query",
)


@register("language_bias", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields one task: every language of one split, and their unweighted mean, `all`.

    `count` is the number of queries. A note says which split was taken and of which languages the
    pool is.
    """
    try:
        folder = data.folder("pawsx", "paws-x", "paws_x", "x-final", hint=HINT)
        paths, columns = _split(data, folder, options, report)
        sources = {language: str(path) for language, path in paths.items()}
        names = " ".join(path.relative_to(folder).as_posix() for path in paths.values())
    except MissingData as missing:
        columns, names = _read_prepared(data, options, missing)
        sources = dict.fromkeys(columns, names)
    texts, notes = select_distinct_rows(columns, sources, options.max_rows)
    report.notes += notes
    part = " (a part that was chosen)" if options.languages else ""
    rows = len(next(iter(texts.values())))
    report.notes.append(f"{rows} rows in {len(texts)} languages{part} of {names}")
    yield _Bias("", texts, options)


@dataclasses.dataclass(eq=False)
class _Bias(Task):
    """The pool of all languages' sentences."""

    sentences: dict[str, list[str]]
    options: Options

    def texts(self) -> TextsByRole:
        return {"": [text for sentences in self.sentences.values() for text in sentences]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        options = self.options
        pool = {language: encode(sentences) for language, sentences in self.sentences.items()}
        rows = len(next(iter(self.sentences.values())))
        before = bias(pool, pool)
        _add(report, before, "", rows)
        if not options.pcr:
            return
        with report.task("pcr"):
            removal = options.fit(pool)
            removed = {language: removal(vectors, language) for language, vectors in pool.items()}
            after = bias(removed, removed if options.sides == "both" else pool)
            _add(report, after, "_pcr", rows)


def _read_prepared(
    data: DataFolder, options: Options, missing: MissingData
) -> tuple[dict[str, list[str]], str]:
    """Reads first sentences of tfds's copy, by default of its test set; returns its name too."""
    there = data.dataset_names("paws_x_wiki")
    if not there:
        raise missing
    languages = choose_languages("language_bias.languages", options.languages, there)
    if len(languages) < 2:
        raise UserError(f"paws_x_wiki has {languages[0]} only; {HINT}")
    split = split_name(options.split) or "test"
    split = "validation" if split == "dev" else split
    return read_prepared(data, split, languages, missing), f"paws_x_wiki, {split}"


def _split(
    data: DataFolder, folder: Path, options: Options, report: SuiteReport
) -> tuple[Files, dict[str, list[str]]]:
    """Reads first sentences of the chosen split, by default of the first that has them."""
    by_split = splits(folder)
    if not by_split:
        raise MissingData(folder / "<split>-<lang>.tsv", HINT)
    split = split_name(options.split)
    names = sorted({name for name, _ in by_split})
    if split and split not in names:
        raise UserError(f"{folder}: no split {split!r}; its splits are {', '.join(names)}")
    there = sorted({language for _, files in by_split for language in files})
    languages = choose_languages("language_bias.languages", options.languages, there)
    reasons: list[UserError] = []
    for name, files in by_split:
        if split and name != split:
            continue
        chosen = languages if options.languages else list(files)
        try:
            if lacking := [language for language in chosen if language not in files]:
                raise Unsuitable(f"{folder}: {name} has no file of {', '.join(lacking)}")
            if len(chosen) < 2:
                raise Unsuitable(f"{folder}: {name} has files of one language only; {HINT}")
            columns = {language: first_sentences(data, files[language]) for language in chosen}
        except Unsuitable as error:
            reasons.append(error)
            continue
        # A note says which splits were left out, since the split changes the scores.
        report.notes += [f"left out: {reason}" for reason in reasons]
        return {language: files[language] for language in chosen}, columns
    raise reasons[0]


def _add(report: SuiteReport, scores: dict[str, dict[str, float]], suffix: str, rows: int) -> None:
    for language, metrics in scores.items():
        report.add_all(language, {f"{name}{suffix}": metrics[name] for name in metrics}, rows)
    for name in ("share_own", "accuracy"):
        mean = float(np.mean([metrics[name] for metrics in scores.values()]))
        report.add("all", name + suffix, mean, rows * len(scores))
