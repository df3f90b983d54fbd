"""Retrieval of documents by queries: exact search by cosines, without training, scored as BEIR.

It takes any data set in BEIR's form (Thakur et al. 2021) or NanoBEIR's. Documents are title and
text, joined by a space. Gains are the judged scores; the measures are trec_eval's, averaged over
the queries that have judgements. Documents with equal similarities are ranked as trec_eval ranks
them: the larger id, as a string, first. Queries and documents get the encoder's prompts for them,
if it has any.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.validation import OneOf, at_least
from official_cmlm.evaluation.data import beir
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import Encode, for_role, roles_of
from official_cmlm.evaluation.metrics import ranking
from official_cmlm.evaluation.metrics.intervals import MEAN_RESAMPLES, bootstrap_means
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Summary, Task, TextsByRole
from official_cmlm.evaluation.suites import register

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
    """Options of the search and its measures.

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


RESULTS = SuiteResults(
    (
        Metric(f"ndcg_at_{_NDCG_RANKS}", f"nDCG@{_NDCG_RANKS}", "× 100", main=True),
        Metric(f"mrr_at_{_NDCG_RANKS}", f"MRR@{_NDCG_RANKS}", "× 100"),
        Metric("mrr", "MRR", "× 100"),
        Metric(f"map_at_{_PRECISION_RANKS}", f"MAP@{_PRECISION_RANKS}", "× 100"),
        *(Metric(f"recall_at_{k}", f"recall at {k}", "%") for k in _RECALL_RANKS),
    ),
    averages=r"(macro|NanoBEIR)(-dev|-train)?",
    bars="Documents found by queries",
)


@register("retrieval", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every data set, and unweighted means over data sets.

    Tasks: the folder's name; its parts and their mean where a data set has parts (CQADupStack),
    which is called e.g. `cqadupstack (1 of 12 parts)` unless all that are there were scored;
    `macro`, the mean over all scored data sets if there are several; `NanoBEIR`, over its 13 if all
    are there. All have the suffix `-dev` or `-train` for other judgements than `test`. `mrr` is
    over all `k`; `count` is the number of queries, for means the number of data sets.
    """
    folders = beir.collections_in(data.root)
    if not folders and not options.tasks:
        raise MissingData(data.root / "beir", beir.HINT)
    parts = [part for name in options.tasks or folders for part in _parts(name, folders)]
    data_sets = [
        _DataSet(f"{part}{_suffix(options)}", part, data, folders, options)
        for part in dict.fromkeys(parts)
    ]
    yield from data_sets
    yield Summary("", functools.partial(_add_means, data_sets, list(folders), options))
    yield Roles("")


@dataclasses.dataclass(eq=False)
class _DataSet(Task):
    """Queries and documents of one data set."""

    part: str
    data: DataFolder
    folders: Mapping[str, Path]
    options: Options
    metrics: dict[str, float] = dataclasses.field(default_factory=dict, init=False)

    @functools.cached_property
    def _collection(self) -> beir.Collection:
        if self.part not in self.folders:
            there = f"there are {', '.join(self.folders)}; " if self.folders else ""
            raise MissingData(self.data.root / "beir" / self.part, f"{there}{beir.HINT}")
        collection = beir.read(self.data, self.folders[self.part], self.options.split)
        self.notes += [f"{self.name}: {note}" for note in collection.notes]
        return collection

    def texts(self) -> TextsByRole:
        collection = self._collection
        return {"query": collection.queries.values(), "document": collection.documents.values()}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        places = rank(encode, self._collection, self.options)
        by_query = measure(places, self._collection, self.options)
        intervals = bootstrap_means(np.stack([*by_query.values()], axis=1)).tolist()
        self.metrics = {name: float(values.mean()) for name, values in by_query.items()}
        for (name, value), (low, high) in zip(self.metrics.items(), intervals):
            report.add(self.name, name, value, len(self._collection.queries), (low, high))


def list_documents(collection: beir.Collection) -> dict[str, str]:
    """Returns id -> text of the documents, in the order in which equal similarities are ranked.

    It is that of trec_eval: by falling id.
    """
    return dict(sorted(collection.documents.items(), reverse=True))


def rank(encode: Encode, collection: beir.Collection, options: Options) -> np.ndarray:
    """Returns places in `list_documents` of each query's documents, best first, int64 `[n, k + 1]`.

    One more than `k` is retrieved, since a query's own document may be left out.
    """
    texts = list(list_documents(collection).values())
    vectors = for_role(encode, "query")(list(collection.queries.values()))
    parts = _embed(for_role(encode, "document"), texts, options)
    return ranking.search(_scale(vectors, options), parts, options.k + 1)


def measure(
    places: np.ndarray, collection: beir.Collection, options: Options
) -> dict[str, np.ndarray]:
    """Returns metric -> its value for each query, times 100, float64 `[n]`.

    Args:
      places: as `rank` returns them; -1 where fewer documents were found.
      collection, options: those of the ranking.
    """
    place = {name: i for i, name in enumerate(list_documents(collection))}
    judged = [
        {place[document]: gain for document, gain in gains.items() if document in place}
        for gains in collection.judgements.values()
    ]
    own = [place.get(query, -1) for query in collection.queries]
    if not options.ignore_identical_ids:
        own = [-1] * len(own)
    gains = ranking.rank_gains(places, judged, options.k, own)
    scores = [list(gains.values()) for gains in collection.judgements.values()]
    relevant = np.array([sum(gain > 0 for gain in row) for row in scores])
    ideal = ranking.ideal_gains(scores, _NDCG_RANKS)
    values = {
        f"ndcg_at_{_NDCG_RANKS}": ranking.ndcg(gains, ideal, _NDCG_RANKS),
        f"mrr_at_{_NDCG_RANKS}": ranking.reciprocal_rank(gains, _NDCG_RANKS),
        "mrr": ranking.reciprocal_rank(gains),
        f"map_at_{_PRECISION_RANKS}": ranking.average_precision(gains, relevant, _PRECISION_RANKS),
    } | {f"recall_at_{k}": ranking.recall(gains, relevant, k) for k in _RECALL_RANKS}
    return {name: 100.0 * value for name, value in values.items()}


def _embed(encode: Encode, texts: Sequence[str], options: Options) -> Iterator[np.ndarray]:
    for start in range(0, len(texts), _PART):
        yield _scale(encode(list(texts[start : start + _PART])), options)


def _scale(vectors: np.ndarray, options: Options) -> np.ndarray:
    return unit(vectors) if options.score == "cosine" else vectors


def _parts(name: str, names: Sequence[str]) -> list[str]:
    """Returns the data set, or the parts of one that has parts."""
    return [part for part in names if part == name or part.startswith(f"{name}/")] or [name]


def _suffix(options: Options) -> str:
    return "" if options.split == "test" else f"-{options.split}"


def _add_means(
    data_sets: list[_DataSet], names: list[str], options: Options, report: SuiteReport
) -> None:
    """Adds means over the parts of each data set, over NanoBEIR and over all data sets."""
    suffix = _suffix(options)
    scored = {one.part: one.metrics for one in data_sets if one.metrics}
    whole = dict(scored)
    for name in dict.fromkeys(name.partition("/")[0] for name in scored if "/" in name):
        parts = {part: whole.pop(part) for part in scored if part.startswith(f"{name}/")}
        there = sum(part.startswith(f"{name}/") for part in names)
        share = ""
        if len(parts) < there:
            # Some parts were not chosen, or failed: this mean is not the data set's score.
            share = f" ({len(parts)} of {there} parts)"
            report.notes.append(f"{name}{suffix}{share}: mean over {', '.join(parts)}")
        whole[f"{name}{share}"] = mean = _mean(parts.values())
        report.add_all(f"{name}{suffix}{share}", mean, len(parts))
    if scored.keys() >= set(NANO_BEIR):
        nano = _mean([scored[name] for name in NANO_BEIR])
        report.add_all(f"NanoBEIR{suffix}", nano, len(NANO_BEIR))
    if len(whole) > 1:
        report.add_all(f"macro{suffix}", _mean(whole.values()), len(whole))
        report.notes.append(f"macro{suffix}: mean over {', '.join(whole)}")
    if scored:
        report.notes.append(
            f"in brackets: 95 % interval over {MEAN_RESAMPLES:,} bootstrap samples of the queries"
        )


class Roles(Task):
    """Notes on how the encoder embeds queries and documents."""

    def score(self, encode: Encode, report: SuiteReport) -> None:
        for name, role in roles_of(encode).items():
            if name in ("query", "document"):
                report.notes.append(f"{name} texts: {role}")


def _mean(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    rows = list(rows)
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
