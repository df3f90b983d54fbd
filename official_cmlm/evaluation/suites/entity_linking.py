"""Entity linking: accuracy of finding a mention's entity by the nearest name in a dictionary.

Mirror-BERT (Liu et al. 2021), section 3 and Table 2, with the protocol of SapBERT (Liu et al.
2021, `evaluation/utils.py`): a mention is a hit at k if one of the k dictionary names with the
largest inner product shares an id with it. The parts of a composite mention are looked up
separately, and all of them must hit. AskAPatient's figures are means over its ten folds.

Published figures are on BioSyn's processed files (abbreviations expanded, parts of composite
mentions written out, no punctuation) with its dictionaries, one a type, which hold the names of the
training mentions as well. Mentions of raw PubTator files have none of this and are harder: they are
tasks of their own. SapBERT's code differs in two details: it splits mentions at `+` and `|` even
if they have a single id, and finds no name whose ids the dictionary joins by `+`.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.evaluation.data.entity_linking import (
    DICTIONARY_HINT,
    MENTIONS_HINT,
    PUBTATOR,
    SPLITS,
    Mention,
    find_dictionary,
    find_folders,
    find_queries,
    parse_dictionary,
)
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole
from official_cmlm.evaluation.suites import register

# Names that are retrieved for a mention.
_MOST = 5


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the linking.

    Attributes:
      split: part of the data: `test` (default), `dev` or `train`. Tasks of the others have it in
        their names.
      score: similarity of mentions and names: `dot`, the inner product (default; SapBERT,
        `src/model_wrapper.py`), or `cosine`. They differ unless the encoder scales its vectors.
      unique: score equal mentions with equal ids once. Default false: every occurrence counts, as
        in Mirror-BERT's Table 2 (SapBERT's `filter_duplicate` is off).
      lower_case: lower-case names, and the mentions that SapBERT's code lower-cases, which are not
        those of XL-BEL, COMETA and AskAPatient. Default true (SapBERT, `src/data_loader.py`).
    """

    split: Annotated[str, OneOf(SPLITS)] = "test"
    score: Annotated[str, OneOf(("dot", "cosine"))] = "dot"
    unique: bool = False
    lower_case: bool = True


RESULTS = SuiteResults(
    (
        Metric("accuracy@1", "accuracy at 1", "%", main=True),
        Metric("accuracy@5", "accuracy at 5", "%"),
        Metric("accuracy@1_in_dictionary", "accuracy at 1", "%", "of those in the dictionary"),
    ),
    bars="Mentions linked to the right entity",
    references=(("Mirror-BERT", "Table 2", "PubMedBERT", "PubMedBERT + Mirror"),),
)


@register("entity_linking", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every folder with names of entities, below the data folder or its `entity_linking`.

    Tasks in results: `<folder>`; `<folder>.<set>` where a folder has several sets (a language of
    XL-BEL, a split of COMETA); `<folder>.pubtator` for raw PubTator files; with `-dev` or `-train`
    after the folder for other parts than the test set. If mentions have types, also `<task>.<type>`
    (with the same dictionary). Metrics: `accuracy@1`, `accuracy@5`, and `accuracy@1_in_dictionary`,
    over the mentions with an id in the dictionary only. The first two count the other mentions as
    misses.
    """
    folders = find_folders(data.root)
    if not folders:
        raise MissingData(
            data.root / "*/entities.txt", f"a folder has both: {DICTIONARY_HINT}; {MENTIONS_HINT}"
        )
    for folder in folders:
        part = "" if options.split == "test" else f"-{options.split}"
        yield _Linking(f"{folder.name}{part}", data, folder, options)


@dataclasses.dataclass(eq=False)
class _Linking(Task):
    """The sets of mentions that share a folder's dictionary."""

    data: DataFolder
    folder: Path
    options: Options

    @functools.cached_property
    def _read(self) -> tuple[list[str], list[frozenset[str]], dict[str, list[list[Mention]]]]:
        """Names, the ids of each, and the mentions of each task by fold."""
        data, options = self.data, self.options
        path = find_dictionary(self.folder, options.split)
        names, name_ids, skipped = parse_dictionary(data.lines(path, DICTIONARY_HINT), str(path))
        if options.lower_case:
            names = [name.lower() for name in names]
        known = frozenset().union(*name_ids)
        sets: dict[str, list[list[Mention]]] = {}
        for queries in find_queries(self.folder, options.split):
            task = self.name + (f".{queries.name}" if queries.name else "")
            try:
                folds, left_out = queries.read(data)
            except UserError as error:
                self.unread[task] = error
                continue
            lower = options.lower_case and not queries.cased
            sets[task] = [_prepare(mentions, lower, options.unique) for mentions in folds]
            mentions = [mention for fold in sets[task] for mention in fold]
            self.notes.append(
                f"{task}: {skipped} malformed names, {left_out['malformed']} malformed and "
                f"{left_out['unlinked']} unlinked mentions skipped; "
                f"{sum(not mention.ids & known for mention in mentions)} of {len(mentions)} "
                f"mentions are not in the dictionary of {len(names)} names, {path.name}"
            )
            if queries.name == PUBTATOR:
                self.notes.append(
                    f"{task}: mentions as they are in the texts; the papers link BioSyn's "
                    "processed mentions, whose abbreviations are expanded: no figure is comparable"
                )
        return names, name_ids, sets

    @functools.cached_property
    def _parts(self) -> list[str]:
        """Distinct mention parts to embed."""
        mentions = [m for folds in self._read[2].values() for fold in folds for m in fold]
        return list(dict.fromkeys(part for mention in mentions for part in mention.parts))

    def texts(self) -> TextsByRole:
        return {"": [*self._parts, *self._read[0]] if self._parts else []}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        names, name_ids, sets = self._read
        texts = self._parts
        if not texts:
            return
        vectors = encode([*texts, *names])
        if self.options.score == "cosine":
            vectors = unit(vectors)
        places, _ = nearest(vectors[: len(texts)], vectors[len(texts) :], min(_MOST, len(names)))
        hits, entity_ids = dict(zip(texts, places.tolist())), frozenset().union(*name_ids)
        for task, folds in sets.items():
            with report.task(task):
                _score(report, task, folds, hits, name_ids, entity_ids)


def rank(
    mention: Mention, hits: Mapping[str, Sequence[int]], name_ids: Sequence[frozenset[str]]
) -> int:
    """Returns the rank, from 0, at which all parts of a mention have hit; 5 if one has not.

    `hits` has the indices of the names nearest to each part; a part has hit at the first of these
    names that shares an id with the mention.
    """
    return max(
        next((i for i, name in enumerate(hits[part]) if mention.ids & name_ids[name]), _MOST)
        for part in mention.parts
    )


def _prepare(mentions: list[Mention], lower: bool, unique: bool) -> list[Mention]:
    if lower:
        lowered = [tuple(part.lower() for part in mention.parts) for mention in mentions]
        mentions = [dataclasses.replace(m, parts=p) for m, p in zip(mentions, lowered)]
    return list(dict.fromkeys(mentions)) if unique else mentions


def _score(
    report: SuiteReport,
    task: str,
    folds: list[list[Mention]],
    hits: Mapping[str, Sequence[int]],
    name_ids: Sequence[frozenset[str]],
    entity_ids: frozenset[str],
) -> None:
    """Adds a task's scores: means over folds, with the number of all their mentions."""
    scored: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for mentions in folds:
        ranks = np.array([rank(mention, hits, name_ids) for mention in mentions])
        in_dictionary = np.array([bool(mention.ids & entity_ids) for mention in mentions])
        kinds = np.array([mention.kind for mention in mentions])
        for kind in ["", *sorted(set(kinds) - {""})]:
            chosen = kinds == kind if kind else np.full(len(mentions), True)
            name = f"{task}.{kind}" if kind else task
            for metric, score in _accuracies(ranks[chosen], in_dictionary[chosen]).items():
                scored.setdefault((name, metric), []).append(score)
    for (name, metric), values in scored.items():
        mean = float(np.mean([value for value, _ in values]))
        report.add(name, metric, mean, sum(count for _, count in values))


def _accuracies(ranks: np.ndarray, in_dictionary: np.ndarray) -> dict[str, tuple[float, int]]:
    """Returns metric -> (value, number of mentions)."""
    values = {f"accuracy@{k}": (100.0 * float(np.mean(ranks < k)), len(ranks)) for k in (1, _MOST)}
    if in_dictionary.any():
        inside = ranks[in_dictionary]
        values["accuracy@1_in_dictionary"] = (100.0 * float(np.mean(inside < 1)), len(inside))
    return values
