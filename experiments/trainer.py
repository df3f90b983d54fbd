"""Model Garden's trainer in short pieces: it can be stopped, says what it does, stops at a NaN."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from official.core import base_trainer
from official.modeling.optimization import ema_optimizer

from official_cmlm.tasks.batch_counts import EXAMPLES, POSITIONS, TOKENS
from official_cmlm.tasks.finite import Failure

# How long the compiled loop may run before Python looks whether it should stop.
PIECE_SECONDS = 0.5


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

    def rates(self) -> dict[str, float]:
        """Per second, and shares between 0 and 1."""
        seconds = max(self.seconds, 1e-9)
        return {
            "steps_per_second": self.steps / seconds,
            "tokens_per_second": self.tokens / seconds,
            "padding_share": 1.0 - self.tokens / max(self.positions, 1),
            "waiting_share": min(1.0, self.waited / seconds),
        }


class StepFailed(Exception):
    """A step that was not finite, and was not applied."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"step {failure.step}")
        self.failure = failure


class GivenUp(Exception):
    """A training or evaluation that ends early because somebody asked for a stop."""


class Trainer(base_trainer.Trainer):
    """Trains as its base does, step by step the same.

    Attributes:
      totals: of this run so far.
    """

    def __init__(self, *args: Any, stop: Callable[[], bool], **kwargs: Any) -> None:
        """Args: `stop`, whether somebody has asked for it."""
        self._stop = stop
        self.totals = Totals()
        self._piece = 1
        super().__init__(*args, **kwargs)
        self._waited = tf.Variable(
            0.0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )

    def create_train_loop_fn(self) -> Callable:
        return functools.partial(self._in_pieces, super().create_train_loop_fn())

    def _in_pieces(self, loop: Callable, iterator: Any, num_steps: tf.Tensor) -> None:
        """Runs the compiled loop for a moment at a time, up to `num_steps` or a stop.

        Raises:
          StepFailed: as soon as a step was not finite.
        """
        left = int(num_steps)
        # Workers must take the same number of steps: they cannot stop each for itself.
        several = self.strategy.extended._in_multi_worker_mode()
        while left:
            piece = left if several else min(left, self._piece)
            started = time.monotonic()
            loop(iterator, tf.constant(piece, tf.int32))
            failure = self.model.guard.failure()
            if failure is not None:
                raise StepFailed(failure)
            left -= piece
            if self._stop() and not several:
                return
            # Twice as many as before, or as many as the time allows.
            fitting = piece * PIECE_SECONDS / max(time.monotonic() - started, 1e-6)
            self._piece = max(1, min(2 * piece, int(fitting)))

    def train_step(self, iterator: Any) -> None:
        """As its base's, but for XLA, which its base leaves to GPUs."""
        inputs = self.next_train_inputs(iterator)
        self.strategy.run(self._replica_step, args=(inputs,), options=self._runtime_options)

    def _replica_step(self, inputs: Any) -> None:
        step = self.task.train_step
        # A TPU compiles everything by itself.
        if self.config.runtime.enable_xla and self.config.runtime.tpu is None:
            step = tf.function(step, jit_compile=True)
        logs = step(inputs, model=self.model, optimizer=self.optimizer, metrics=self.train_metrics)
        self._train_loss.update_state(logs[self.task.loss])
        self.global_step.assign_add(1)

    def next_train_inputs(self, iterator: Any) -> Any:
        """The next batch; the time until it is there counts as waiting.

        On the host, inside the loop but outside of what XLA compiles.
        """
        before = tf.timestamp()
        with tf.control_dependencies([before]):
            inputs = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(inputs, expand_composites=True)):
            after = tf.timestamp()
        self._waited.assign_add(tf.cast(after - before, tf.float32))
        return inputs

    def train_loop_begin(self) -> None:
        super().train_loop_begin()
        self._waited.assign(0.0)
        self._began = time.monotonic(), int(self.global_step.numpy())

    def train_loop_end(self) -> dict[str, Any]:
        """The metrics of the loop, with rates instead of the counts."""
        logs = super().train_loop_end()
        started, first = self._began
        loop = Totals(
            int(self.global_step.numpy()) - first,
            *(int(logs.pop(name)) for name in (EXAMPLES, TOKENS, POSITIONS)),
            time.monotonic() - started,
            float(self._waited.numpy()),
        )
        self.totals += loop
        logs.update(loop.rates())
        left = self.config.trainer.train_steps - int(self.global_step.numpy())
        logs["seconds_left"] = left / max(logs["steps_per_second"], 1e-9)
        return logs

    def give_up(self, output: dict[str, Any]) -> None:
        """A train action: raises `GivenUp` if somebody has asked for a stop before the last step.

        All workers give up together, whichever was asked.
        """
        asked = bool(self._stop())
        if self.strategy.extended._in_multi_worker_mode():
            asked = self._anywhere(asked)
        if asked and int(self.global_step.numpy()) < self.config.trainer.train_steps:
            raise GivenUp

    def _anywhere(self, asked: bool) -> bool:
        """Whether any worker was asked; all of them call this at the same step."""
        mine = self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant(float(asked))
        )
        return float(self.strategy.reduce(tf.distribute.ReduceOp.SUM, mine, axis=None)) > 0

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:
        # An average of weights is in the weights' place while it is evaluated.
        averaging = isinstance(self.optimizer, ema_optimizer.ExponentialMovingAverage)
        if self._stop() and not averaging and not self.strategy.extended._in_multi_worker_mode():
            raise GivenUp
        return super().eval_reduce(state, step_outputs)
