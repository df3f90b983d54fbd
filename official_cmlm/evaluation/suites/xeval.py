"""XEVAL: SentEval's tasks translated to other languages (CMLM §4.5.1), one folder per language.

The paper does not list the tasks of its averages; they are taken for the nine of its Table 1. Other
tasks are scored, but not averaged.
"""

import dataclasses
import re
from pathlib import Path

import numpy as np

from official_cmlm.evaluation.data import language_codes
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.scores import MissingData, SuiteReport
from official_cmlm.evaluation.suites import senteval as senteval_suite
from official_cmlm.languages import is_language_tag

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


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every language's tasks and their averages; see the package for the arguments."""
    report.seeds = options.numbers
    report.configuration = options.described
    root = data.root / "xeval" if (data.root / "xeval").is_dir() else data.root
    there = sorted(path.name for path in root.iterdir() if path.is_dir() and _tasks(path, options))
    if root == data.root:
        there = [name for name in there if _is_language(name)]
    if not there:
        raise MissingData(root / "<language>/<task>", HINT)
    languages = language_codes.chosen("xeval.languages", options.languages, there, report)
    averages: dict[str, float] = {}
    parts: dict[str, tuple[str, ...]] = {}
    for language in languages:
        tasks = _tasks(root / language, options)
        chosen = dataclasses.replace(options, tasks=tasks)
        senteval_suite.score_tasks(
            encode, data, root / language, chosen, report, prefix=f"{language}."
        )
        found = {
            name: value
            for name in senteval_suite.CMLM_TASKS
            if (value := _score(report, f"{language}.{name}")) is not None
        }
        if not found:
            continue
        averages[language] = float(np.mean(list(found.values())))
        parts[language] = tuple(found)
        metric = "average" if found.keys() == set(senteval_suite.CMLM_TASKS) else "average_of_part"
        report.add(language, metric, averages[language], len(found))
        if metric != "average":
            report.notes.append(f"{language}: average_of_part over {', '.join(found)}")
    _mean(averages, parts, report)


def _mean(
    averages: dict[str, float], parts: dict[str, tuple[str, ...]], report: SuiteReport
) -> None:
    """Adds the mean over the paper's languages, or over those of them that were averaged.

    Languages that lack some of the paper's tasks enter only where all have the same ones.
    """
    whole = {name for name in parts if set(parts[name]) == set(senteval_suite.CMLM_TASKS)}
    same = whole or (set(parts) if len(set(parts.values())) == 1 else set())
    inside = {name: averages[name] for name in LANGUAGES if name in same}
    if inside:
        metric = "average" if len(inside) == len(LANGUAGES) and whole else "average_of_part"
        report.add("mean", metric, float(np.mean(list(inside.values()))), len(inside))
        if metric != "average":
            report.notes.append(f"mean: average_of_part over {', '.join(inside)}")


def _is_language(name: str) -> bool:
    """Whether a folder is called by a code of two or three letters, perhaps with script or region.

    The data folder has others with SentEval's tasks in them, such as `downstream`. Tags may begin
    with up to eight letters, as `senteval` does, but no language has one of more than three.
    """
    return is_language_tag(name) and len(re.split("[-_]", name)[0]) <= 3


def _tasks(folder: Path, options: Options) -> list[str]:
    return [name for name in options.tasks if (folder / _folder(name)).is_dir()]


def _folder(name: str) -> str:
    """SentEval's folder of a task."""
    folders = {"SST2": "SST/binary", "SST5": "SST/fine", "STS-B": "STS/STSBenchmark"}
    return folders.get(name, "SICK" if name.startswith("SICK") else name)


def _score(report: SuiteReport, task: str) -> float | None:
    """The score that enters averages: accuracy, or Pearson's correlation as in Table 1."""
    return report.get(task, senteval_suite.main_metric(task.partition(".")[2]))
