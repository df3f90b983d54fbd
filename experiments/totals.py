"""What the loops of a training have done, in what time, and how much of that they only waited."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf


@dataclasses.dataclass
class Totals:
    """Sums over the steps of a run.

    Attributes:
      steps, examples, tokens, positions: how many; see `tasks.batch_counts`.
      seconds: in the training loop, without evaluation and checkpoints.
      waited: seconds of those in which the next batch was not there.
    """

    steps: int = 0
    examples: int = 0
    tokens: int = 0
    positions: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def __add__(self, other: "Totals") -> "Totals":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Totals(*(a + b for a, b in pairs))

    def __sub__(self, other: "Totals") -> "Totals":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Totals(*(a - b for a, b in pairs))

    def rates(self) -> dict[str, float]:
        """Per second, and shares between 0 and 1."""
        seconds = max(self.seconds, 1e-9)
        return {
            "steps_per_second": self.steps / seconds,
            "tokens_per_second": self.tokens / seconds,
            "padding_share": 1.0 - self.tokens / max(self.positions, 1),
            "waiting_share": min(1.0, self.waited / seconds),
        }


class Stopwatch:
    """Seconds of a loop, and those in which it waited for a batch.

    Make it in the scope of the strategy that the loop runs in.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        timestamp: Callable[[], tf.Tensor] = tf.timestamp,
    ) -> None:
        """Args: the clocks of the host and of the graph, in seconds; float64 scalar."""
        self._now, self._timestamp = now, timestamp
        self._waited = tf.Variable(
            0.0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        self.start()

    def start(self) -> None:
        """Begins a loop."""
        self._waited.assign(0.0)
        self._started = self._now()

    def next(self, iterator: Any) -> Any:
        """The next batch; the time until it is there counts as waiting.

        On the host, inside the compiled loop but outside of what XLA compiles.
        """
        before = self._timestamp()
        with tf.control_dependencies([before]):
            inputs = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(inputs, expand_composites=True)):
            after = self._timestamp()
        self._waited.assign_add(tf.cast(after - before, tf.float32))
        return inputs

    def correct(self, waited: float, left_out: float) -> None:
        """Adds seconds of waiting, and leaves out seconds, that the graph cannot measure."""
        self._waited.assign_add(waited)
        self._started += left_out

    def read(self) -> tuple[float, float]:
        """(seconds, waited) since `start`."""
        return self._now() - self._started, float(self._waited.numpy())
