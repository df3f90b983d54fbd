"""Entity linking: accuracy of finding a mention's entity by the nearest name in a dictionary.

Mirror-BERT (Liu et al. 2021), section 3 and Table 2, with the protocol of SapBERT (Liu et al.
2021, `evaluation/utils.py`): a mention is a hit at k if one of the k dictionary names with the
largest cosine shares an id with it. The parts of a composite mention are looked up separately, and
all of them must hit.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.entity_linking import (
    DICTIONARY_HINT,
    MENTIONS_HINT,
    Mention,
    parse_dictionary,
    parse_pubtator,
    parse_table,
)
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoding import Encode, prepare
from official_cmlm.evaluation.metrics.nearest import nearest, unit
from official_cmlm.evaluation.scores import SuiteReport

_PARSERS = {"mentions.tsv": parse_table, "test_corpus.txt": parse_pubtator}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the suite.

    Attributes:
      unique: score equal mentions with equal ids once. Default false: every occurrence counts, as
        in Mirror-BERT's Table 2 (SapBERT's `filter_duplicate` is off).
      lower_case: lower-case names and mentions. Default true (SapBERT, `src/data_loader.py`).
    """

    unique: bool = False
    lower_case: bool = True


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every folder with an `entities.txt`, below the data folder or its `entity_linking`.

    Tasks: `<folder>` and, if mentions have types, `<folder>.<type>` (with the same dictionary).
    Metrics: `accuracy@1`, `accuracy@5`, and `accuracy@1_in_dictionary`, over the mentions with an
    id in the dictionary only. The first two count the other mentions as misses, as published
    figures do.

    Raises:
      UserError: if there is no such folder.
    """
    folders = _folders(data.root)
    if not folders:
        raise UserError(
            f"{data.root}: no folder with entities.txt ({DICTIONARY_HINT}) and {MENTIONS_HINT}"
        )
    for folder in folders:
        with report.task(folder.name):
            _evaluate_folder(encode, data, options, report, folder)


def first_hits(
    found: np.ndarray, name_ids: Sequence[frozenset[str]], gold: Sequence[frozenset[str]]
) -> np.ndarray:
    """Rank, from 0, of the first retrieved name that shares an id with the query.

    Args:
      found: int `[n, k]`, indices of names, nearest first.
      name_ids: ids of each name in the dictionary.
      gold: ids of each of the n queries.

    Returns:
      int `[n]`; k if no retrieved name shares an id.
    """
    count, k = found.shape
    ranks = np.full(count, k)
    for i in range(count):
        hits = (rank for rank in range(k) if gold[i] & name_ids[found[i, rank]])
        ranks[i] = next(hits, k)
    return ranks


def mention_ranks(part_ranks: np.ndarray, owners: np.ndarray, count: int) -> np.ndarray:
    """Rank at which all parts of a mention have hit: the maximum over its parts.

    Args:
      part_ranks: int `[parts]`.
      owners: int `[parts]`, the mention of each part; every mention has at least one part.
      count: number of mentions.

    Returns:
      int `[count]`.
    """
    ranks = np.zeros(count, part_ranks.dtype)
    np.maximum.at(ranks, owners, part_ranks)
    return ranks


def _evaluate_folder(
    encode: Encode, data: DataFolder, options: Options, report: SuiteReport, folder: Path
) -> None:
    names, name_ids, skipped = parse_dictionary(
        data.lines(folder / "entities.txt", DICTIONARY_HINT), str(folder / "entities.txt")
    )
    mentions, left_out = _read_mentions(data, folder)
    if options.lower_case:
        names = [name.lower() for name in names]
        lowered = [tuple(part.lower() for part in mention.parts) for mention in mentions]
        mentions = [dataclasses.replace(m, parts=p) for m, p in zip(mentions, lowered)]
    if options.unique:
        mentions = list(dict.fromkeys(mentions))
    known = frozenset().union(*name_ids)
    in_dictionary = np.array([bool(mention.ids & known) for mention in mentions])
    report.notes.append(
        f"{folder.name}: {skipped} malformed names, {left_out['malformed']} malformed and "
        f"{left_out['unlinked']} unlinked mentions skipped; {int((~in_dictionary).sum())} of "
        f"{len(mentions)} mentions are not in the dictionary of {len(names)} names"
    )
    ranks = _ranks(encode, mentions, names, name_ids)
    _report(report, folder.name, ranks, in_dictionary)
    kinds = np.array([mention.kind for mention in mentions])
    for kind in sorted(set(kinds) - {""}):
        _report(report, f"{folder.name}.{kind}", ranks[kinds == kind], in_dictionary[kinds == kind])


def _ranks(
    encode: Encode, mentions: list[Mention], names: list[str], name_ids: list[frozenset[str]]
) -> np.ndarray:
    parts = [part for mention in mentions for part in mention.parts]
    owners = np.repeat(np.arange(len(mentions)), [len(mention.parts) for mention in mentions])
    texts = list(dict.fromkeys(parts))
    row = {text: i for i, text in enumerate(texts)}
    k = min(5, len(names))
    prepare(encode, texts, names)
    found, _ = nearest(unit(encode(texts)), unit(encode(names)), k)
    gold = [mentions[owner].ids for owner in owners]
    ranks = first_hits(found[[row[part] for part in parts]], name_ids, gold)
    # With fewer than 5 names in the dictionary, no hit among all of them is no hit at 5.
    ranks[ranks == k] = 5
    return mention_ranks(ranks, owners, len(mentions))


def _report(report: SuiteReport, task: str, ranks: np.ndarray, in_dictionary: np.ndarray) -> None:
    for k in (1, 5):
        report.add(task, f"accuracy@{k}", 100.0 * float(np.mean(ranks < k)), len(ranks))
    if in_dictionary.any():
        known = ranks[in_dictionary]
        value = 100.0 * float(np.mean(known < 1))
        report.add(task, "accuracy@1_in_dictionary", value, len(known))


def _read_mentions(data: DataFolder, folder: Path) -> tuple[list[Mention], Counter[str]]:
    for name, parse in _PARSERS.items():
        if (folder / name).is_file():
            mentions, left_out = parse(data.lines(folder / name, MENTIONS_HINT))
            if not mentions:
                raise UserError(f"{folder / name}: no linked mention; expected {MENTIONS_HINT}")
            return mentions, left_out
    raise UserError(f"{folder}: no mentions; add {MENTIONS_HINT}")


def _folders(root: Path) -> list[Path]:
    """Folders with a dictionary; of folders with the same name the first by path."""
    files = [*root.glob("*/entities.txt"), *root.glob("entity_linking/*/entities.txt")]
    folders = {path.parent.name: path.parent for path in reversed(sorted(files))}
    return [folders[name] for name in sorted(folders)]
