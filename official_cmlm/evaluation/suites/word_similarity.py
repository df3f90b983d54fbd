"""Word similarity: correlation between the cosine of two words and human scores.

Mirror-BERT (Liu et al. 2021), section 3: Spearman's correlation on Multi-SimLex (Vulić et al.
2020), with SimLex-999 (Hill et al. 2015) as its development set. The cross-lingual pairs of its
Table 5 are read if their files are present, otherwise built from the row-aligned languages as
Multi-SimLex builds them; see `data.word_similarity.crossed`.

Each language can have an encoder of its own, as Mirror-BERT's monolingual BERTs have in its Table
1: `--encoder=en:path,fr:path`. Pairs of words of two languages are then left out.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import choose_languages, two_letters
from official_cmlm.evaluation.data.sts import ScoredPairs
from official_cmlm.evaluation.data.word_similarity import (
    CROSS_LINGUAL,
    DATA_SETS,
    HINT,
    MULTILINGUAL,
    PairFile,
    Rows,
    cross_all,
    discover,
    read,
)
from official_cmlm.evaluation.metrics.similarity import spearman
from official_cmlm.evaluation.scores import Missing, SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Summary, Task, with_encoders
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites.sts import PairTask


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the suite; pairs, cosine and Spearman's correlation are fixed by the protocol.

    Attributes:
      tasks: data sets: `multi_simlex`, `simlex`, `cross_lingual_simlex`. Default: all found.
      languages: codes of languages, e.g. `en` or `ENG`; of a pair both must be named. Default: all
        found.
    """

    tasks: Annotated[list[str], OneOf(DATA_SETS)] = dataclasses.field(default_factory=list)
    languages: list[str] = dataclasses.field(default_factory=list)


_PANELS = {
    "cross_lingual_simlex": "pairs of words of two languages",
    "multi_simlex": "Multi-SimLex",
    "simlex": "SimLex-999",
}


def _panel(task: str) -> tuple[str, str]:
    data_set, _, label = task.partition(".")
    return (_PANELS.get(data_set, data_set), label) if label else ("", task)


RESULTS = SuiteResults(
    (Metric("spearman", "Spearman's ρ", "× 100", main=True, statistic=spearman),),
    averages=r"\w+\.average",
    panel=_panel,
    bars="Correlation of cosines with human scores of word pairs",
    references=(
        ("Mirror-BERT", "Table 16", "mBERT-mp", "mBERT + Mirror"),
        ("Mirror-BERT", "Table 18", "mBERT-mp", "mBERT + Mirror"),
    ),
)


@register("word_similarity", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every language of `multi_simlex` and `simlex`, every `cross_lingual_simlex` pair.

    Tasks: `<data set>.<language>`, `cross_lingual_simlex.<language>-<language>` with the codes in
    alphabetical order, and `<data set>.average`, the unweighted mean over what was scored of it.
    """
    yield from with_encoders(_select_tasks(data, options, report), report)


def _select_tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    files = discover(data, report)
    names = options.tasks or DATA_SETS
    there = {name: _languages(name, files) for name in names}
    for name in options.tasks:
        if not there[name]:
            report.missing.append(Missing(name, str(data.root / name), HINT))
    every = sorted({language for languages in there.values() for language in languages})
    choose_languages("word_similarity.languages", options.languages, every, report)
    codes = {two_letters(code) for code in options.languages or every}
    # SimLex-999 has the language's name where Multi-SimLex has its code.
    kept = {language for language in every if two_letters(language) in codes}
    rows: dict[str, Rows] = {}
    for name in DATA_SETS:
        scored: list[Task] = []
        for key, file in files[name].items():
            # Cross-lingual pairs are built from languages that need no score of their own.
            built_from = name == MULTILINGUAL and CROSS_LINGUAL in names
            parts = key.split("-") if name == CROSS_LINGUAL else [key]
            if not set(parts) <= kept or not (name in names or built_from):
                continue
            title = f"{name}.{key}" if name in names else f"{CROSS_LINGUAL} of {key}"
            try:
                pairs = read(data, file)
            except UserError as error:
                yield Task(title, error=error)
                continue
            if name == MULTILINGUAL:
                rows[key] = pairs.numbered
            if name in names:
                scored.append(_task(title, pairs.scored, key))
        if name == CROSS_LINGUAL and name in names:
            crossings = cross_all(rows).items()
            scored += [
                _task(f"{name}.{k}", pairs, k) for k, pairs in crossings if k not in files[name]
            ]
        yield from scored
        is_part = bool(options.languages)
        yield Summary("", functools.partial(_average, name, scored, is_part))


def _task(name: str, pairs: ScoredPairs, key: str) -> PairTask:
    """Returns the task of the word pairs in one language, or across two."""
    languages = frozenset(map(two_letters, key.split("-")))
    note = "{skipped} malformed lines skipped"
    return PairTask(name, lambda: pairs, {"spearman": spearman}, note, text_languages=languages)


def _average(data_set: str, words: list[Task], is_part: bool, report: SuiteReport) -> None:
    """Adds the mean over what was scored of a data set; `is_part`: languages were chosen."""
    names = {word.name for word in words}
    scored = [score for score in report.scores if score.task in names]
    if not scored or (len(scored) == 1 and is_part):
        return
    name = f"{data_set}.average" + (f" of {len(scored)}" if is_part else "")
    mean = float(np.mean([score.value for score in scored]))
    report.add(name, "spearman", mean, sum(score.count for score in scored))
    over = " ".join(score.task.removeprefix(f"{data_set}.") for score in scored)
    part = ", a part that was chosen" if is_part else ""
    report.notes.append(f"{name}: mean over {over}{part}")


def _languages(data_set: str, files: dict[str, dict[str, PairFile]]) -> list[str]:
    """Returns the languages of a data set's files; pairs are also built from Multi-SimLex."""
    if data_set != CROSS_LINGUAL:
        return list(files[data_set])
    return [part for key in files[data_set] for part in key.split("-")] + list(files[MULTILINGUAL])
