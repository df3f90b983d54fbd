"""What a suite writes down: scores, figures, notes and what could not be done."""

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import EncoderError


@dataclasses.dataclass(frozen=True)
class Score:
    """One number.

    Attributes:
      task: what was measured, e.g. `MR`, `STS14`, `de`.
      metric: how, e.g. `accuracy`, `spearman_all`; shares, accuracies and correlations are times
        100, other figures as their formula gives them.
      value: the number; the mean where there are several seeds.
      count: examples that were scored.
      deviation: standard deviation over seeds, None where there is one seed or none.
    """

    task: str
    metric: str
    value: float
    count: int
    deviation: float | None = None


@dataclasses.dataclass
class SuiteReport:
    """Collects the results of a suite.

    Attributes:
      scores: in the order in which they were found; a (task, metric) comes once.
      figures: name -> plain data (lists, dicts, numbers) that a drawing needs.
      notes: what a reader should know, e.g. how many lines were skipped.
      failures: what was asked for and could not be done, one line each.
      seeds: of what is random in the suite.
      traces: stack traces of faults of this project, for its developers.
      progress: called with (what is done, how many steps it has) before long work that is not
        encoding; returns what is called with the number of steps that are done. Default: silent.
    """

    scores: list[Score] = dataclasses.field(default_factory=list)
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    seeds: list[int] = dataclasses.field(default_factory=list)
    traces: list[str] = dataclasses.field(default_factory=list)
    progress: Callable[[str, int], Callable[[int], None]] = lambda what, total: lambda done: None

    def add(self, task: str, metric: str, values: float | list[float], count: int) -> None:
        """Writes a score down; of several values, one a seed, their mean and deviation.

        Raises:
          ValueError: for a (task, metric) that is there already, or values that are no numbers.
        """
        if any((score.task, score.metric) == (task, metric) for score in self.scores):
            raise ValueError(f"{task}/{metric} was already scored")
        row = np.atleast_1d(np.asarray(values, np.float64))
        if not row.size or not np.isfinite(row).all():
            raise ValueError(f"{task}/{metric}: needs numbers, got {row.tolist()}")
        deviation = float(row.std(ddof=1)) if row.size > 1 else None
        self.scores.append(Score(task, metric, float(row.mean()), int(count), deviation))

    def get(self, task: str, metric: str) -> float | None:
        """The value of a score, or None where it is missing."""
        found = [s.value for s in self.scores if (s.task, s.metric) == (task, metric)]
        return found[0] if found else None

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        """A block whose errors become a failure line; what follows it still runs.

        A fault of the encoder itself is passed on: it concerns every task. Of a fault of ours the
        trace is kept in `traces`.
        """
        try:
            yield
        except EncoderError:
            raise
        except (UserError, ValueError) as error:
            self.failures.append(f"{name}: {' '.join(str(error).split())}")
        except Exception as error:
            self.failures.append(f"{name}: stopped by {type(error).__name__}: {error}")
            self.traces.append(traceback.format_exc())
