"""The parts of a suite: its tasks, and the metrics under which results show their scores."""

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import sha256
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import Encode, LanguageEncoders
from official_cmlm.evaluation.scores import MissingData, SuiteReport

TextsByRole = Mapping[str, Iterable[str]]
"""Role -> texts; the role is "" for texts that every encoder embeds in the same way."""


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of a suite.

    Attributes:
      name: in results.json. A `*` stands for a part that depends on the data, such as a language.
      label: the quantity, for readers; a `*` repeats the part that the name's `*` stands for.
      unit: of the values, e.g. `%`; empty if they have none.
      detail: shown after the unit, e.g. `mean of both directions`.
      better: 1 if higher values are better, -1 if lower ones are, 0 if neither.
      decimals: shown in tables; bars show one less.
      main: whether the metric stands for a task in the summary and in bars. Of several main metrics
        the first that was scored does.
      statistic: function that computes the score from predictions `[n]` and human scores or labels
        `[n]`, for a metric of pairs, whose interval can be computed; None for other metrics.
      names_row: whether the label takes the place of the task's name, as for a paper's average.
    """

    name: str
    label: str
    unit: str = ""
    detail: str = ""
    better: int = 1
    decimals: int = 2
    main: bool = False
    names_row: bool = False
    statistic: Callable[[np.ndarray, np.ndarray], float] | None = None

    @property
    def text(self) -> str:
        """Quantity, unit and detail."""
        unit = f" {self.unit}" if self.unit.startswith("×") else f", {self.unit}"
        detail = f", {self.detail}" if self.detail else ""
        return f"{self.label}{unit if self.unit else ''}{detail}"

    def variant(self, suffix: str, detail: str) -> "Metric":
        """Returns the metric of the same quantity under other conditions, never a main one."""
        return dataclasses.replace(self, name=self.name + suffix, detail=detail, main=False)


@dataclasses.dataclass(frozen=True)
class SuiteResults:
    """The results of a suite as reports show them.

    Attributes:
      metrics: all that the suite adds to its report.
      averages: regular expression that matches the whole names of tasks that average others.
      panel: name of a task -> (title of its chart, "" for the suite's own tasks; label in it). None
        for a part of another task, which is not drawn.
      bars: title of the bar charts, drawn from the main metrics; empty: none.
      axis: quantity and unit of bars. Default: the text of the first main metric.
      references: the papers' rows that are marked at the bars, see `report.papers`: (paper, table,
        model that the paper starts from, its own method).
    """

    metrics: tuple[Metric, ...]
    averages: str = ""
    panel: Callable[[str], tuple[str, str] | None] = lambda task: ("", task)
    bars: str = ""
    axis: str = ""
    references: tuple[tuple[str, str, str, str], ...] = ()

    def metric(self, name: str) -> Metric:
        """Returns the metric of a name; for an unknown one a metric with its name as label."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        for metric in self.metrics:
            start, star, end = metric.name.partition("*")
            if star and name.startswith(start) and name.endswith(end):
                part = name[len(start) : len(name) - len(end)]
                return dataclasses.replace(metric, name=name, label=metric.label.replace("*", part))
        return Metric(name, name)

    @property
    def main(self) -> list[Metric]:
        """The metrics that stand for tasks, the preferred one first."""
        return [metric for metric in self.metrics if metric.main]

    def is_average(self, task: str) -> bool:
        """Returns whether a task is an average of others."""
        return bool(self.averages and re.fullmatch(self.averages, task))


@dataclasses.dataclass(eq=False)
class Task:
    """A task of a suite: the texts that it embeds, and the scores that follow from their vectors.

    Attributes:
      name: failures and missing data are reported under it; "" for the suite as a whole.
      notes: remarks for the reader that come from reading the files.
      error: the exception that `texts` raised; raised again in place of scores.
      unread: name in results -> exception, of parts that cannot be read while others can.
      is_optional: whether a task without data is left out rather than reported as missing.
      text_languages: languages of its texts, in codes of two letters where they have one; empty:
        unknown or irrelevant.
      files: path -> SHA-256, of the files that `texts` read.
      trained_by: for a task whose training takes long, names of the options on which its scores
        depend: later runs take the scores over while these options and its files are the same. Its
        scores must not depend on other tasks. Empty for other tasks.
    """

    name: str
    notes: list[str] = dataclasses.field(default_factory=list, kw_only=True)
    error: Exception | None = dataclasses.field(default=None, kw_only=True)
    unread: dict[str, Exception] = dataclasses.field(default_factory=dict, kw_only=True)
    is_optional: bool = dataclasses.field(default=False, kw_only=True)
    text_languages: frozenset[str] = dataclasses.field(default=frozenset(), kw_only=True)
    files: dict[str, str] = dataclasses.field(default_factory=dict, init=False)
    trained_by: ClassVar[tuple[str, ...]] = ()

    def texts(self) -> TextsByRole:
        """Reads the task's files and returns all texts that `score` embeds.

        A second call reads no file.
        """
        return {}

    def encoder_of(self, encode: Encode) -> Encode:
        """Returns the encoder of its language if each language has its own, otherwise `encode`."""
        if isinstance(encode, LanguageEncoders) and len(self.text_languages) == 1:
            return encode.of(*self.text_languages)
        return encode

    def score(self, encode: Encode, report: SuiteReport) -> None:
        """Adds scores; `encode` embeds the texts, of which it has stored the vectors by then."""


@dataclasses.dataclass(eq=False)
class Summary(Task):
    """The averages of a suite's tasks, and other remarks on them.

    Attributes:
      add: adds the averages and remarks to the report.
    """

    add: Callable[[SuiteReport], None]

    def score(self, encode: Encode, report: SuiteReport) -> None:
        self.add(report)


Tasks = Callable[[DataFolder, Any, SuiteReport], Iterator[Task]]
"""(data, options, report) -> the tasks of a suite."""


@dataclasses.dataclass(frozen=True)
class Suite:
    """A suite, as `suites.register` makes it.

    Attributes:
      name: the name in results.
      options: the dataclass of its options.
      results: its metrics, and how reports show them.
      tasks: yields its tasks.
    """

    name: str
    options: type
    results: SuiteResults
    tasks: Tasks

    @property
    def protocol(self) -> str:
        """The first paragraph of the docstring of its file, in one line."""
        text = self.tasks.__globals__.get("__doc__") or ""
        return " ".join(text.strip().split("\n\n")[0].split())

    @property
    def digest(self) -> str:
        """The SHA-256 of its file, on which scores depend; empty if it was not read from one."""
        path = Path(self.tasks.__code__.co_filename)
        return sha256(path) if path.is_file() else ""


def with_encoders(
    tasks: Iterable[Task], report: SuiteReport, across: bool = False
) -> Iterator[Task]:
    """Yields the tasks that the encoders of `report` can score; a note lists the others.

    Where each language has an encoder, a task in one of these languages can be scored, but a task
    in two of them cannot: vectors of two encoders cannot be compared, unless the suite maps one
    space to another (`across`). Tasks without languages, such as averages, stay.

    Raises:
      UserError: if no task with a language stays.
    """
    covered = set(report.encoder_languages)
    listed, kept, left_out = ", ".join(report.encoder_languages), 0, []
    for task in tasks:
        fits = task.text_languages <= covered and (across or len(task.text_languages) == 1)
        if covered and task.text_languages and not fits:
            left_out.append(task.name)
            continue
        kept += bool(task.text_languages)
        yield task
    if left_out and not kept:
        raise UserError(
            f"no task is in the languages of --encoder, which has {listed}; there are "
            f"{', '.join(left_out)}"
        )
    if left_out:
        report.notes.append(f"left out, --encoder has only {listed}: {', '.join(left_out)}")


def read_tasks(tasks: Iterable[Task], files: dict[str, str]) -> deque[Task]:
    """Reads the files of a suite's tasks; `files` are the `DataFolder`'s, which records all files.

    Each task gets the entries of the files that it read. Exceptions are kept in `Task.error`, so
    that they are reported in the order of the tasks.
    """
    read: deque[Task] = deque()
    try:
        for task in tasks:
            if task.error is None:
                others = dict(files)
                files.clear()
                try:
                    task.texts()
                except Exception as error:
                    task.error = error
                task.files = dict(files)
                files |= others | task.files
            if not (task.is_optional and isinstance(task.error, MissingData)):
                read.append(task)
    except Exception as error:
        read.append(Task("", error=error))
    return read


def score_tasks(tasks: deque[Task], report: SuiteReport, score: Callable[[Task], None]) -> None:
    """Scores the result of `read_tasks`, one task after the other, and releases each task.

    Raises:
      Exception: the error of a task without a name, or of the encoder.
    """
    while tasks:
        task = tasks.popleft()
        report.notes += task.notes
        errors = task.unread if task.error is None else {task.name: task.error}
        for name, error in errors.items():
            with report.task(name):
                raise error
        if task.error is None:
            with report.task(task.name):
                score(task)
