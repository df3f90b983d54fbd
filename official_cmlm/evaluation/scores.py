"""The report of a suite: scores, notes and failures."""

import contextlib
import dataclasses
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.encoder import EncoderError, OpenedEncoder, requests_by_role

# Tasks that a note lists.
_MOST_NAMED = 20
# Texts whose tokens are counted in one call.
_COUNTED_TOGETHER = 2048


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
      by_seed: the score of each seed; empty for a single run.
      interval: ends of the 95 % interval over resampled pairs or queries; None if it was not
        computed.
    """

    task: str
    metric: str
    value: float
    count: int
    deviation: float | None = None
    by_seed: list[float] = dataclasses.field(default_factory=list)
    interval: tuple[float, float] | None = None


class MissingData(UserError):
    """A file or folder of evaluation data is not there.

    It has a class of its own, since a task without data is left out rather than failed.

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


Prediction = tuple[str, str, float, float]


def mean_by_seed(values: Iterable[np.ndarray]) -> np.ndarray:
    """Returns the mean of several scores for each seed, `[seeds]`; see `SuiteReport.by_seed`."""
    return np.mean(np.broadcast_arrays(*values), axis=0)


@dataclasses.dataclass
class SuiteReport:
    """The results of a suite, collected while it runs.

    Attributes:
      scores: in the order in which they were added; each (task, metric) once.
      notes: remarks for the reader, e.g. how many lines were skipped.
      missing: tasks without data.
      failures: tasks that have data and could not be scored, and other faults, one line each.
      seeds: the random seeds used.
      predictions: task -> (text, other text, human score or label, prediction) of each pair.
      encoder: the encoder; None if it is a plain function, or if each language has its own.
      configuration: settings of trainings on which every score depends, shown with the scores
        where they are compared with published ones; empty: none.
      encoder_languages: languages that have an encoder of their own; empty: one embeds all.
      traces: stack traces of unexpected exceptions, for developers.
      progress: called with (title, number of steps) before long work other than encoding; returns
        a function to call with the number of steps just finished. Default: silent.
    """

    scores: list[Score] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    missing: list[Missing] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    seeds: list[int] = dataclasses.field(default_factory=list)
    predictions: dict[str, list[Prediction]] = dataclasses.field(default_factory=dict)
    encoder: OpenedEncoder | None = None
    configuration: str = ""
    encoder_languages: tuple[str, ...] = ()
    traces: list[str] = dataclasses.field(default_factory=list)
    progress: Callable[[str, int], Callable[[int], None]] = lambda what, total: lambda done: None

    def add(
        self,
        task: str,
        metric: str,
        values: float | list[float],
        count: int,
        interval: tuple[float, float] | None = None,
    ) -> None:
        """Adds a score; for several values, one per seed, their mean and standard deviation.

        Raises:
          ValueError: if (task, metric) was added before, or a value is not finite.
        """
        if self._score(task, metric):
            raise ValueError(f"{task}/{metric} was already scored")
        row = np.atleast_1d(np.asarray(values, np.float64))
        if not row.size or not np.isfinite(row).all():
            raise ValueError(f"{task}/{metric}: needs finite numbers, got {row.tolist()}")
        several = row.size > 1
        deviation = float(row.std(ddof=1)) if several else None
        by_seed = row.tolist() if several else []
        mean = float(row.mean())
        self.scores.append(Score(task, metric, mean, int(count), deviation, by_seed, interval))

    def add_all(self, task: str, metrics: Mapping[str, float], count: int) -> None:
        """Adds a task's scores by metric, all of the same examples; see `add`."""
        for metric, value in metrics.items():
            self.add(task, metric, value, count)

    def _score(self, task: str, metric: str) -> Score | None:
        named = (score for score in self.scores if (score.task, score.metric) == (task, metric))
        return next(named, None)

    def get(self, task: str, metric: str) -> float | None:
        """Returns the value of a score, or None if it was not added."""
        score = self._score(task, metric)
        return score and score.value

    def by_seed(self, task: str, metric: str) -> np.ndarray | None:
        """Returns a score of each seed, `[seeds]`, or `[1]` for a single run; see `get`."""
        score = self._score(task, metric)
        return score and np.array(score.by_seed or [score.value])

    def predict(self, task: str, pairs: Any, values: np.ndarray) -> None:
        """Keeps the predictions `[n]` of a task's n pairs, which have scores or labels."""
        gold, predicted = pairs.gold.tolist(), np.asarray(values).tolist()
        self.predictions[task] = list(zip(pairs.first, pairs.second, gold, predicted))

    @property
    def unscored(self) -> list[str]:
        """The tasks without data and those that failed, one line each."""
        lines = [f"{one.task}: {one.what}: missing; {one.hint}" for one in self.missing]
        return lines + self.failures

    @contextlib.contextmanager
    def task(self, name: str) -> Iterator[None]:
        """Reports the exceptions of a block, after which the suite goes on.

        `MissingData` is added to `missing`, other exceptions become a line of `failures`; the stack
        trace of an unexpected one is kept in `traces`. `EncoderError` is raised again, since it
        concerns every task. With an empty name the block is the whole suite, and every exception is
        raised again.
        """
        try:
            yield
        except Exception as error:
            if not name or isinstance(error, EncoderError):
                raise
            if isinstance(error, MissingData):
                self.missing.append(Missing(name, error.what, error.hint))
            elif isinstance(error, UserError | ValueError):
                self.failures.append(f"{name}: {' '.join(str(error).split())}")
            else:
                self.failures.append(f"{name}: stopped by {type(error).__name__}: {error}")
                self.traces.append(traceback.format_exc())


@dataclasses.dataclass
class TaskLengths:
    """Lengths of a task's texts; a text counts once.

    Attributes:
      texts: number of texts.
      cut: number of texts that are longer than the encoder reads.
      tokens: number of tokens of all texts.
      tokens_cut: number of tokens that are cut off.
    """

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    tokens_cut: int = 0


class TextLengths:
    """Counts, by task, the texts that an encoder embeds and those that it cuts.

    Without an encoder, or if it cannot count tokens, nothing is counted.

    Attributes:
      tasks: task -> lengths of its texts; the name is empty for a suite of a single task.
    """

    def __init__(self, encoder: OpenedEncoder | None) -> None:
        self._encoder = encoder
        self.tasks: dict[str, TaskLengths] = {}

    def add(self, task: str, texts: Mapping[str, Iterable[str]]) -> None:
        """Counts a task's texts, by role, each once."""
        encoder = self._encoder
        if encoder is None or encoder.count_tokens is None or encoder.max_seq_length is None:
            return
        for role, role_texts in requests_by_role(texts, encoder.roles).items():
            prompt = encoder.roles[role].prompt if role else encoder.prompt
            prompted = [prompt + text for text in role_texts]
            for start in range(0, len(prompted), _COUNTED_TOGETHER):
                some = prompted[start : start + _COUNTED_TOGETHER]
                tokens = np.asarray(encoder.count_tokens(some))
                excess = np.maximum(tokens.astype(np.int64) - encoder.max_seq_length, 0)
                counts = self.tasks.setdefault(task, TaskLengths())
                counts.texts += len(tokens)
                counts.cut += int((excess > 0).sum())
                counts.tokens += int(tokens.sum())
                counts.tokens_cut += int(excess.sum())

    def notes(self) -> list[str]:
        """Returns a line on the texts that were cut, the most affected task first, or no line."""
        cut = {task: lengths for task, lengths in self.tasks.items() if lengths.cut}
        if not cut:
            return []
        ordered = sorted(cut, key=lambda task: -cut[task].tokens_cut / cut[task].tokens)
        shares = [
            f"{task or 'other texts'} {cut[task].cut:,} of {cut[task].texts:,} texts "
            f"({100.0 * cut[task].tokens_cut / cut[task].tokens:.2g} % of the tokens)"
            for task in ordered
        ]
        more = len(shares) - _MOST_NAMED
        named = "; ".join(shares[:_MOST_NAMED]) + (f"; and {more} more tasks" if more > 0 else "")
        return [
            f"texts of more than {self._encoder.max_seq_length} tokens were cut "
            f"(--max_seq_length changes the length): {named}"
        ]
