"""What a suite reports: scores, data of figures, notes and failures."""

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import EncoderError, Gathered

# Tasks that a note lists.
_MOST_NAMED = 20


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
      finished: the scores and notes of each task that `remaining` need not yield again.
      keep: called after each task that `remaining` has yielded. Default: does nothing.
      configuration: settings of trainings on which every score depends, to stand beside the scores
        where they are compared with published ones; empty: none.
      traces: stack traces of unexpected exceptions, for developers.
      current: the task whose block runs; empty outside of all.
      progress: called with (title, number of steps) before long work other than encoding; returns
        a function to call with the number of steps just finished. Default: silent.
    """

    scores: list[Score] = dataclasses.field(default_factory=list)
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    missing: list[Missing] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    seeds: list[int] = dataclasses.field(default_factory=list)
    finished: dict[str, tuple[list[Score], list[str]]] = dataclasses.field(default_factory=dict)
    keep: Callable[[], None] = lambda: None
    configuration: str = ""
    traces: list[str] = dataclasses.field(default_factory=list)
    current: str = ""
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
        What is added between two loops over tasks, such as an average, belongs to no task.
        """
        for name in names:
            if name in self.finished:
                continue
            unscored, scores, notes = len(self.unscored), len(self.scores), len(self.notes)
            yield name
            if len(self.unscored) == unscored:
                self.finished[name] = self.scores[scores:], self.notes[notes:]
                self.keep()

    def restore(self, name: str, scores: list[Score], notes: list[str]) -> None:
        """Adds a task that an earlier run has finished."""
        self.scores += scores
        self.notes += notes
        self.finished[name] = scores, notes

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        """A block whose exceptions are reported; the code after it still runs.

        `MissingData` is added to `missing`, others become a line of `failures`. `EncoderError` is
        re-raised, since it concerns every task; `Gathered` ends the block. The stack trace of an
        unexpected exception is kept in `traces`.
        """
        around, self.current = self.current, name
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
        finally:
            self.current = around


@dataclasses.dataclass
class TaskLengths:
    """Lengths of a task's texts; a text counts once.

    Attributes:
      texts: number of texts.
      cut: of them, longer than the encoder reads.
      tokens: of all texts.
      tokens_cut: of them, cut off.
    """

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    tokens_cut: int = 0


class TextLengths:
    """Counts, by task, the texts that an encoder is asked for and those that it cuts.

    Attributes:
      tasks: task -> lengths of its texts; the task is empty outside of all.
    """

    def __init__(self, report: SuiteReport, longest: int | None) -> None:
        """Counts for the current task of `report`; `longest`: tokens that the encoder reads."""
        self._report, self._longest = report, longest
        self._seen: dict[str, np.ndarray] = {}
        self.tasks: dict[str, TaskLengths] = {}

    def __call__(self, texts: np.ndarray, tokens: np.ndarray) -> None:
        """Adds texts.

        Args:
          texts: int `[n]`, a number for each different text.
          tokens: int `[n]`, their lengths.
        """
        if self._longest is None:
            return
        task = self._report.current
        seen = self._seen.get(task, np.zeros([0], bool))
        if (lacking := int(texts.max(initial=-1)) + 1 - len(seen)) > 0:
            # Room to grow, since the numbers grow with every request.
            seen = np.append(seen, np.zeros(lacking + len(seen), bool))
            self._seen[task] = seen
        texts, first = np.unique(texts, return_index=True)
        tokens = tokens[first][~seen[texts]].astype(np.int64)
        seen[texts] = True
        excess = np.maximum(tokens - self._longest, 0)
        found = self.tasks.setdefault(task, TaskLengths())
        found.texts += len(tokens)
        found.cut += int((excess > 0).sum())
        found.tokens += int(tokens.sum())
        found.tokens_cut += int(excess.sum())

    def notes(self) -> list[str]:
        """One line on what was cut, the task with the most first; nothing if nothing was."""
        cut = {task: found for task, found in self.tasks.items() if found.cut}
        if not cut:
            return []
        ordered = sorted(cut, key=lambda task: -cut[task].tokens_cut / cut[task].tokens)
        shares = [f"{task or 'other texts'} {_cut_share(cut[task])}" for task in ordered]
        more = len(shares) - _MOST_NAMED
        named = "; ".join(shares[:_MOST_NAMED]) + (f"; and {more} more tasks" if more > 0 else "")
        return [
            f"texts of more than {self._longest} tokens were cut (--max_seq_length changes the "
            f"length): {named}"
        ]


def _cut_share(found: TaskLengths) -> str:
    share = 100.0 * found.tokens_cut / found.tokens
    return f"{found.cut:,} of {found.texts:,} texts ({share:.2g} % of the tokens)"
