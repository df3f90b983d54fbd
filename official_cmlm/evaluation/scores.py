"""What a suite reports: scores, data of figures, notes and failures."""

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import EncoderError, Gathered


@dataclasses.dataclass(frozen=True)
class Score:
    """One score.

    Attributes:
      task: e.g. `MR`, `STS14`, `de`.
      metric: e.g. `accuracy`, `spearman_all`. Shares, accuracies and correlations are times 100,
        other measures as their formula gives them.
      value: the score; with several seeds their mean.
      count: number of examples scored.
      deviation: standard deviation over seeds; None for a single run.
    """

    task: str
    metric: str
    value: float
    count: int
    deviation: float | None = None


class MissingData(UserError):
    """A file or folder of evaluation data is not there.

    Apart from other errors, since who gave no data for a task asked for no score of it.

    Attributes:
      what: the path that was looked for.
      hint: where the data comes from and where it belongs.
    """

    def __init__(self, what: object, hint: str) -> None:
        super().__init__(f"{what}: missing; {hint}")
        self.what, self.hint = str(what), hint


@dataclasses.dataclass(frozen=True)
class Missing:
    """A task that was not scored because its data is not there.

    Attributes:
      task: its name; empty for the whole suite.
      what: the path that was looked for.
      hint: where the data comes from and where it belongs.
    """

    task: str
    what: str
    hint: str


@dataclasses.dataclass
class SuiteReport:
    """Collects the results of a suite.

    Attributes:
      scores: in the order in which they were added; each (task, metric) once.
      figures: name -> plain data (lists, dicts, numbers) of a figure.
      notes: remarks for the reader, e.g. how many lines were skipped.
      missing: tasks without data.
      failures: what has data and could not be scored, one line each.
      seeds: the random seeds used.
      finished: names of tasks that `remaining` need not yield again.
      keep: called after each task that `remaining` has yielded. Default: does nothing.
      configuration: settings of trainings on which every score depends, to stand beside the scores
        where they are compared with published ones; empty: none.
      traces: stack traces of unexpected exceptions, for developers.
      progress: called with (title, number of steps) before long work other than encoding; returns
        a function to call with the number of steps just finished. Default: silent.
    """

    scores: list[Score] = dataclasses.field(default_factory=list)
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    missing: list[Missing] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    seeds: list[int] = dataclasses.field(default_factory=list)
    finished: list[str] = dataclasses.field(default_factory=list)
    keep: Callable[[], None] = lambda: None
    configuration: str = ""
    traces: list[str] = dataclasses.field(default_factory=list)
    progress: Callable[[str, int], Callable[[int], None]] = lambda what, total: lambda done: None

    def add(self, task: str, metric: str, values: float | list[float], count: int) -> None:
        """Adds a score; for several values, one per seed, their mean and standard deviation.

        Raises:
          ValueError: if (task, metric) was added before, or a value is not finite.
        """
        if any((score.task, score.metric) == (task, metric) for score in self.scores):
            raise ValueError(f"{task}/{metric} was already scored")
        row = np.atleast_1d(np.asarray(values, np.float64))
        if not row.size or not np.isfinite(row).all():
            raise ValueError(f"{task}/{metric}: needs finite numbers, got {row.tolist()}")
        deviation = float(row.std(ddof=1)) if row.size > 1 else None
        self.scores.append(Score(task, metric, float(row.mean()), int(count), deviation))

    def get(self, task: str, metric: str) -> float | None:
        """The value of a score, or None if it was not added."""
        found = [s.value for s in self.scores if (s.task, s.metric) == (task, metric)]
        return found[0] if found else None

    @property
    def unscored(self) -> list[str]:
        """What has no data and what failed, one line each."""
        lines = [f"{one.task}: {one.what}: missing; {one.hint}" for one in self.missing]
        return lines + self.failures

    def remaining(self, names: Iterable[str]) -> Iterator[str]:
        """The tasks that an earlier, interrupted run has not finished; for those that take long.

        A task whose body reports nothing `unscored` is finished at the next step of the iteration.
        """
        for name in names:
            if name in self.finished:
                continue
            before = len(self.unscored)
            yield name
            if len(self.unscored) == before:
                self.finished.append(name)
                self.keep()

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        """A block whose exceptions are reported; the code after it still runs.

        `MissingData` is added to `missing`, others become a line of `failures`. `EncoderError` is
        re-raised, since it concerns every task; `Gathered` ends the block. The stack trace of an
        unexpected exception is kept in `traces`.
        """
        try:
            yield
        except EncoderError:
            raise
        except Gathered:
            pass
        except MissingData as error:
            self.missing.append(Missing(name, error.what, error.hint))
        except (UserError, ValueError) as error:
            self.failures.append(f"{name}: {' '.join(str(error).split())}")
        except Exception as error:
            self.failures.append(f"{name}: stopped by {type(error).__name__}: {error}")
            self.traces.append(traceback.format_exc())
