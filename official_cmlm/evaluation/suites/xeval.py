"""XEVAL: SentEval's tasks translated to other languages (CMLM §4.5.1), one folder per language.

The paper does not list the tasks of its averages; they are taken for the nine of its Table 1. Other
tasks are scored, but not averaged. English, the language of the originals, is read from SentEval's
own folder unless there is a translation of it.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.languages import is_language_tag
from official_cmlm.evaluation.data import language_codes
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData, SuiteReport, mean_by_seed
from official_cmlm.evaluation.suite import Metric, SuiteResults, Summary, Task
from official_cmlm.evaluation.suites import register
from official_cmlm.evaluation.suites import senteval as senteval_suite

HINT = (
    "SentEval's tasks in a language belong into DATA_DIR/xeval/<language>/<task> (or DATA_DIR/"
    "<language>/<task>), files as SentEval's; XEVAL itself was not published"
)

# The columns of the paper's Tables 3 and 4.
LANGUAGES = tuple("ar bg de el en es fr hi ru sw th tr ur vi zh".split())


@dataclasses.dataclass(frozen=True)
class Options(senteval_suite.Options):
    """Options of the suite `senteval`; each language is scored on the tasks found in its folder.

    Attributes:
      languages: language codes. Default: all in the data folder.
    """

    languages: list[str] = dataclasses.field(default_factory=list)


RESULTS = SuiteResults(
    (
        Metric("average", "mean over tasks", "%", main=True),
        Metric("average_of_part", "mean over a part of the tasks or languages", "%"),
        *(dataclasses.replace(metric, main=False) for metric in senteval_suite.METRICS),
    ),
    averages=r"mean",
    bars="SentEval's tasks, by language",
    references=(("CMLM", "Table 3", "mBERT", "CMLM"),),
)


@register("xeval", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields every language's tasks and their averages."""
    report.seeds = options.numbers
    report.configuration = options.described
    root = data.root / "xeval" if (data.root / "xeval").is_dir() else data.root
    there = {path.name: path for path in sorted(root.iterdir()) if _tasks(path, options)}
    if root == data.root:
        there = {name: path for name, path in there.items() if _is_language(name)}
    if not there:
        raise MissingData(root / "<language>/<task>", HINT)
    original = data.root / "senteval/downstream"
    if "en" not in map(language_codes.two_letters, there) and _tasks(original, options):
        there["en"] = original
        report.notes.append(f"en: SentEval's own files, {original.relative_to(data.root)}")
    names = sorted(there)
    languages = language_codes.choose_languages("xeval.languages", options.languages, names, report)
    for language in languages:
        of_language = dataclasses.replace(options, tasks=_tasks(there[language], options))
        yield from senteval_suite.tasks_in(data, there[language], of_language, f"{language}.")
        yield Summary("", functools.partial(_average, language))
    yield Summary("", functools.partial(_mean, languages))


def _average(language: str, report: SuiteReport) -> None:
    """Adds a language's average over the tasks of the paper that were scored."""
    scores = _scores(language, report)
    if not scores:
        return
    metric = "average" if scores.keys() == set(senteval_suite.CMLM_TASKS) else "average_of_part"
    report.add(language, metric, mean_by_seed(scores.values()), len(scores))
    if metric != "average":
        report.notes.append(f"{language}: average_of_part over {', '.join(scores)}")


def _mean(languages: Sequence[str], report: SuiteReport) -> None:
    """Adds the mean over the paper's languages, or over those of them that were averaged.

    Languages that lack some of the paper's tasks count only if no language has all of these tasks,
    and all languages have the same ones.
    """
    scores = {name: own for name in languages if (own := _scores(name, report))}
    whole = {name for name in scores if scores[name].keys() == set(senteval_suite.CMLM_TASKS)}
    same = whole or (set(scores) if len(set(map(tuple, scores.values()))) == 1 else set())
    inside = {n: mean_by_seed(scores[n].values()) for n in LANGUAGES if n in same}
    if inside:
        metric = "average" if len(inside) == len(LANGUAGES) and whole else "average_of_part"
        report.add("mean", metric, mean_by_seed(inside.values()), len(inside))
        if metric != "average":
            report.notes.append(f"mean: average_of_part over {', '.join(inside)}")


def _scores(language: str, report: SuiteReport) -> dict[str, np.ndarray]:
    """Returns the scores that enter a language's average, by task, each `[seeds]`."""
    values = {
        name: report.by_seed(f"{language}.{name}", senteval_suite.main_metric(name))
        for name in senteval_suite.CMLM_TASKS
    }
    return {name: value for name, value in values.items() if value is not None}


def _is_language(name: str) -> bool:
    """Returns whether a name is a code of two or three letters, perhaps with script or region.

    The data folder has other folders with SentEval's tasks in them, such as `downstream`. Tags may
    begin with up to eight letters, as `senteval` does, but no language's code has more than three.
    """
    return is_language_tag(name) and len(re.split("[-_]", name)[0]) <= 3


def _tasks(folder: Path, options: Options) -> list[str]:
    return [name for name in options.tasks if (folder / _folder(name)).is_dir()]


def _folder(name: str) -> str:
    """Returns SentEval's folder of a task."""
    folders = {"SST2": "SST/binary", "SST5": "SST/fine", "STS-B": "STS/STSBenchmark"}
    return folders.get(name, "SICK" if name.startswith("SICK") else name)
