"""XEVAL: SentEval's tasks translated to other languages (CMLM §4.5.1), one folder per language."""

import dataclasses
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data import language_codes
from official_cmlm.evaluation.data import senteval as senteval_data
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoding import Encode
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suites import senteval as senteval_suite

HINT = (
    "SentEval's tasks in a language belong into DATA_DIR/xeval/<language>/<task> (or DATA_DIR/"
    "<language>/<task>), files as SentEval's; XEVAL itself was not published"
)


@dataclasses.dataclass(frozen=True)
class Options(senteval_suite.Options):
    """Options of the suite `senteval`; each language is scored on the tasks found in its folder.

    Attributes:
      languages: language codes. Default: all in the data folder.
    """

    languages: list = dataclasses.field(default_factory=list)


def evaluate(encode: Encode, data: DataFolder, options: Options, report: SuiteReport) -> None:
    """Scores every language's tasks and their averages; see the package for the arguments."""
    report.seeds = list(range(1111, 1111 + options.seeds))
    root = data.root / "xeval" if (data.root / "xeval").is_dir() else data.root
    there = sorted(path.name for path in root.iterdir() if path.is_dir() and _tasks(path, options))
    if not there:
        raise UserError(f"{root}: no language folder that contains a task folder; {HINT}")
    languages = language_codes.chosen("xeval.languages", options.languages, there)
    averages, scored = {}, {}
    for language in languages:
        tasks = _tasks(root / language, options)
        chosen = dataclasses.replace(options, tasks=tasks)
        senteval_suite.score_tasks(
            encode, data, root / language, chosen, report, prefix=f"{language}."
        )
        scores = {name: _score(report, f"{language}.{name}") for name in tasks}
        found = {name: value for name, value in scores.items() if value is not None}
        if found:
            scored[language] = tuple(found)
            averages[language] = float(np.mean(list(found.values())))
            report.add(language, "average", averages[language], len(found))
            report.notes.append(f"{language}: average over {', '.join(found)}")
    if options.languages:
        report.notes.append(f"mean is over a part that was chosen: {' '.join(averages)}")
    if averages:
        report.add("mean", "average", float(np.mean(list(averages.values()))), len(averages))
        if len(set(scored.values())) > 1:
            report.notes.append("mean: the languages' averages are over different tasks")


def _tasks(folder: Path, options: Options) -> list[str]:
    return [name for name in options.tasks if (folder / _folder(name)).is_dir()]


def _folder(name: str) -> str:
    """SentEval's folder of a task."""
    folders = {"SST2": "SST/binary", "SST5": "SST/fine", "STS-B": "STS/STSBenchmark"}
    return folders.get(name, "SICK" if name.startswith("SICK") else name)


def _score(report: SuiteReport, task: str) -> float | None:
    """The score that enters averages: accuracy, or Pearson's correlation as in Table 1."""
    name = task.partition(".")[2]
    relatedness = senteval_data.TASKS[name].protocol == "relatedness"
    return report.get(task, "pearson" if relatedness else "accuracy")
