"""Retrieval of documents by queries: exact search by cosines, without training, scored as BEIR.

Any data set in BEIR's form (Thakur et al. 2021) or NanoBEIR's. Documents are title and text, joined
by a space. Gains are the judged scores; the measures are trec_eval's, averaged over the queries
that have judgements. Documents with equal similarities are ranked as trec_eval ranks them: the
larger id, as a string, first. Queries and documents get the encoder's prompts for them, if it has
any.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoding import Encode, for_role, prepare, roles_of
from official_cmlm.evaluation.metrics import ranking
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.validation import OneOf, at_least, check_fields

# Documents that are embedded and searched at a time, as in BEIR.
_PART = 50_000
_NDCG_RANKS, _RECALL_RANKS, _PRECISION_RANKS = 10, (1, 5, 10, 100), 100
NANO_BEIR = (
    *("NanoArguAna", "NanoClimateFEVER", "NanoDBPedia", "NanoFEVER", "NanoFiQA2018"),
    *("NanoHotpotQA", "NanoMSMARCO", "NanoNFCorpus", "NanoNQ", "NanoQuoraRetrieval"),
    *("NanoSCIDOCS", "NanoSciFact", "NanoTouche2020"),
)


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the suite.

    Attributes:
      tasks: names of data sets, i.e. of their folders. Default: all that are there.
      split: judgements: `test` (default), `dev` or `train`; the last two have task names of their
        own, `<name>-dev`. BEIR's own score of MS MARCO is of `dev`.
      score: `cosine` (default) or `dot`, the inner product.
      k: documents that are retrieved for each query; 1,000 by default, as BEIR retrieves.
      ignore_identical_ids: leave out the document with the query's own id, as BEIR does (ArguAna,
        Quora: the queries are documents). Default true.
    """

    tasks: list[str] = dataclasses.field(default_factory=list)
    split: Annotated[str, OneOf(beir.SPLITS)] = "test"
    score: Annotated[str, OneOf(("cosine", "dot"))] = "cosine"
    k: Annotated[int, at_least(_PRECISION_RANKS, "recall and average precision need so many")] = (
        1000
    )
    ignore_identical_ids: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "")


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every data set, and unweighted means over data sets.

    Tasks: the folder's name; its parts and their mean where a data set has parts (CQADupStack),
    which is called e.g. `cqadupstack (1 of 12 parts)` unless all that are there were scored;
    `macro`, the mean over all scored data sets if there are several; `NanoBEIR`, over its 13 if all
    are there. All with the suffix `-dev` or `-train` for other judgements than `test`. Metrics,
    times 100: `ndcg_at_10`, `mrr_at_10`, `mrr` (over all `k`), `map_at_100`, `recall_at_1`, 5, 10
    and 100. `count` is the number of queries, for means the number of data sets.

    Raises:
      MissingData: if there is no data set.
    """
    found = beir.collections_in(data.root)
    if not found and not options.tasks:
        raise MissingData(data.root / "beir", beir.HINT)
    suffix = "" if options.split == "test" else f"-{options.split}"
    scored: dict[str, dict[str, float]] = {}
    parts = [part for name in options.tasks or found for part in _parts(name, found)]
    for part in dict.fromkeys(parts):
        with report.task(f"{part}{suffix}"):
            if part not in found:
                there = f"there are {', '.join(found)}; " if found else ""
                raise MissingData(data.root / "beir" / part, f"{there}{beir.HINT}")
            collection = beir.read(data, found[part], options.split)
            report.notes += [f"{part}{suffix}: {note}" for note in collection.notes]
            scored[part] = score(encode, collection, options)
            _add(report, f"{part}{suffix}", scored[part], len(collection.queries))
    with report.task(f"macro{suffix}"):
        _add_means(scored, found, suffix, report)
    for name, role in roles_of(encode).items():
        if name in ("query", "document"):
            report.notes.append(f"{name} texts: {role}")


def score(encode: Encode, collection: beir.Collection, options: Options) -> dict[str, float]:
    """Metric -> mean over the queries, times 100."""
    # Searched in this order, since trec_eval ranks equal similarities by falling id.
    ids = sorted(collection.documents, reverse=True)
    place = {name: i for i, name in enumerate(ids)}
    judged = [
        {place[document]: gain for document, gain in found.items() if document in place}
        for found in collection.judgements.values()
    ]
    own = [place.get(query, -1) for query in collection.queries]
    if not options.ignore_identical_ids:
        own = [-1] * len(own)
    texts = [collection.documents[name] for name in ids]
    prepare(encode, query=collection.queries.values(), document=texts)
    vectors = for_role(encode, "query")(list(collection.queries.values()))
    parts = _embedded(for_role(encode, "document"), texts, options)
    # One more, since a query's own document may be left out.
    found = ranking.search(_scaled(vectors, options), parts, options.k + 1)
    gains = ranking.ranked_gains(found, judged, options.k, own)
    scores = [list(found.values()) for found in collection.judgements.values()]
    relevant = np.array([sum(gain > 0 for gain in row) for row in scores])
    ideal = ranking.ideal_gains(scores, _NDCG_RANKS)
    values = {
        f"ndcg_at_{_NDCG_RANKS}": ranking.ndcg(gains, ideal, _NDCG_RANKS),
        f"mrr_at_{_NDCG_RANKS}": ranking.reciprocal_rank(gains, _NDCG_RANKS),
        "mrr": ranking.reciprocal_rank(gains),
        f"map_at_{_PRECISION_RANKS}": ranking.average_precision(gains, relevant, _PRECISION_RANKS),
    } | {f"recall_at_{k}": ranking.recall(gains, relevant, k) for k in _RECALL_RANKS}
    return {name: 100.0 * float(value.mean()) for name, value in values.items()}


def _embedded(encode: Encode, texts: Sequence[str], options: Options) -> Iterator[np.ndarray]:
    for start in range(0, len(texts), _PART):
        yield _scaled(encode(list(texts[start : start + _PART])), options)


def _scaled(vectors: np.ndarray, options: Options) -> np.ndarray:
    return unit(vectors) if options.score == "cosine" else vectors


def _parts(name: str, found: Sequence[str]) -> list[str]:
    """The data set, or the parts of one that has parts."""
    return [part for part in found if part == name or part.startswith(f"{name}/")] or [name]


def _add(report: SuiteReport, task: str, metrics: dict[str, float], count: int) -> None:
    for name, value in metrics.items():
        report.add(task, name, value, count)


def _add_means(
    scored: dict[str, dict[str, float]], found: Sequence[str], suffix: str, report: SuiteReport
) -> None:
    """Adds means over the parts of a data set, over NanoBEIR and over all.

    Args:
      scored: data set -> its metrics.
      found: the data sets that are there.
      suffix: of the tasks' names.
      report: takes the means.
    """
    whole = dict(scored)
    for group in dict.fromkeys(name.partition("/")[0] for name in scored if "/" in name):
        parts = {name: whole.pop(name) for name in scored if name.startswith(f"{group}/")}
        there = sum(name.startswith(f"{group}/") for name in found)
        share = ""
        if len(parts) < there:
            # Some were not chosen, or failed: this mean is not the data set's score.
            share = f" ({len(parts)} of {there} parts)"
            report.notes.append(f"{group}{suffix}{share}: mean over {', '.join(parts)}")
        whole[f"{group}{share}"] = mean = _mean(parts.values())
        _add(report, f"{group}{suffix}{share}", mean, len(parts))
    if scored.keys() >= set(NANO_BEIR):
        nano = _mean([scored[name] for name in NANO_BEIR])
        _add(report, f"NanoBEIR{suffix}", nano, len(NANO_BEIR))
    if len(whole) > 1:
        _add(report, f"macro{suffix}", _mean(whole.values()), len(whole))
        report.notes.append(f"macro{suffix}: mean over {', '.join(whole)}")


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    rows = list(rows)
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
