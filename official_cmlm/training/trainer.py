"""Model Garden's trainer and Orbit's controller, extended so that a run can stop at any step.

The trainer runs the compiled loop in short pieces, reports rates and stops at a non-finite loss.
The controller evaluates and saves at the same steps whether a training was interrupted or not.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import orbit
import tensorflow as tf
import tf_keras
from official.core import base_trainer, train_utils
from official.modeling.optimization import ema_optimizer

from official_cmlm.checkpoints.weights import non_finite, save_weights
from official_cmlm.common.errors import list_names
from official_cmlm.training.config import PJRT
from official_cmlm.training.jax_loop import JaxLoop
from official_cmlm.training.runtime import is_compiled
from official_cmlm.training.step import NAMES, optimizer_variables


@dataclasses.dataclass
class Totals:
    """Sums over the steps of a run.

    Attributes:
      steps, examples, tokens, positions: counts, see `training.step.batch_counts`.
      seconds: time in the training loop, without evaluation and checkpoints.
      waited: the part of `seconds` spent waiting for the next batch.
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
        """Returns numbers per second, and shares between 0 and 1."""
        seconds = max(self.seconds, 1e-9)
        return {
            "steps_per_second": self.steps / seconds,
            "tokens_per_second": self.tokens / seconds,
            "padding_share": 1.0 - self.tokens / max(self.positions, 1),
            "waiting_share": min(1.0, self.waited / seconds),
        }


class Stopwatch:
    """A stopwatch for the seconds of a loop, and for the part of them spent waiting for batches.

    Create it in the scope of the distribution strategy that runs the loop.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        timestamp: Callable[[], tf.Tensor] = tf.timestamp,
    ) -> None:
        """Takes `now` and `timestamp`, clocks of the host and of the graph: float64, in seconds."""
        self._now, self._timestamp = now, timestamp
        self._waited = tf.Variable(
            0.0, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
        )
        self.start()

    def start(self) -> None:
        """Starts measuring a loop."""
        self._waited.assign(0.0)
        self._started = self._now()

    def next(self, iterator: Any) -> Any:
        """Returns the next batch; the time until it is available counts as waiting.

        It runs on the host, inside the loop's graph but not in the part that XLA compiles.
        """
        before = self._timestamp()
        with tf.control_dependencies([before]):
            inputs = next(iterator)
        with tf.control_dependencies(tf.nest.flatten(inputs, expand_composites=True)):
            after = self._timestamp()
        self._waited.assign_add(tf.cast(after - before, tf.float32))

        def later(part: tf.Tensor) -> tf.Tensor:
            with tf.compat.v1.colocate_with(part):
                return tf.identity(part)

        # Otherwise a single thread may read the clock after the whole step.
        with tf.control_dependencies([after]):
            return tf.nest.map_structure(later, inputs, expand_composites=True)

    def correct(self, waited: float, left_out: float) -> None:
        """Adds `waited` and subtracts `left_out` seconds, which the graph cannot measure."""
        self._waited.assign_add(waited)
        self._started += left_out

    def read(self) -> tuple[float, float]:
        """Returns (seconds, waited) since `start`."""
        return self._now() - self._started, float(self._waited.numpy())


# Seconds that the compiled loop runs between two checks for a stop.
PIECE_SECONDS = 0.5
# Seconds of an accelerator's piece, whose steps all end before the host reads its metrics. JAX's
# loop itself looks for a stop after each step.
ACCELERATED_SECONDS = 5.0
# Most steps of a piece. Workers agree on it by a float32 sum, which is exact for small integers.
_MOST_STEPS = 10_000
# Seconds between two reports of a loop that is still running.
REPORT_SECONDS = 2.0
# Seconds after which a training without a checkpoint ends its loop early to save the first one.
FIRST_CHECKPOINT_SECONDS = 300.0
# Evaluation steps between two checks for a stop on any of several workers.
_EVALUATION_STEPS = 8


class StepFailed(Exception):
    """A non-finite step, which was not applied; the message names the step and its loss."""


class WeightsFailed(Exception):
    """A weight became non-finite; the message names the step and the weight."""


class StopRequested(Exception):
    """A training or evaluation ends early because a stop was requested."""


class Trainer(base_trainer.Trainer):
    """A trainer of the same steps as its base class, which can stop and report between pieces.

    Attributes:
      totals: totals of this run so far.
      device_loop: runs the steps in place of TensorFlow's loop; None (default): TensorFlow does.
      on_first_step: called after the first step of this run with the seconds that it took, tracing
        and compiling included; None (default): not called.
      on_piece: called with the metrics of the current loop, after the first step and every
        `REPORT_SECONDS`; None (default): no such reports. With several workers it is not called.
    """

    on_first_step: Callable[[float], None] | None = None
    on_piece: Callable[[dict[str, float]], None] | None = None

    def __init__(
        self,
        config: Any,
        task: Any,
        *,
        stop: Callable[[], bool],
        reached: dict[str, np.ndarray] | None = None,
        train: bool = True,
        evaluate: bool = True,
        now: Callable[[], float] = time.monotonic,
        **kwargs: Any,
    ) -> None:
        """Builds the datasets and the metrics.

        Args:
          config, task, train, evaluate, **kwargs: as in the base class.
          stop: returns whether a stop was requested.
          reached: data positions at which a resumed training goes on, see `build_inputs`.
          now: a clock, in seconds.
        """
        self._stop, self._now = stop, now
        self._reported = -math.inf
        # Time at which a training without a checkpoint saves its first one; None if it has one, or
        # has stopped its loop to save it.
        self._checkpoint_due: float | None = None
        self.totals = Totals()
        # Totals of the run's first piece; rates exclude it, as it includes tracing and compiling.
        self._first = Totals()
        self._piece = 1
        self._evaluated = 0
        if train:
            kwargs["train_dataset"] = orbit.utils.make_distributed_dataset(
                tf.distribute.get_strategy(),
                task.build_inputs,
                config.task.train_data,
                reached=reached,
            )
        super().__init__(config, task, train=train, evaluate=evaluate, **kwargs)
        self._watch = Stopwatch()
        self._sts_scorer = task.sts_scorer(self.model) if evaluate else None
        self.device_loop = None
        if train and config.runtime.distribution_strategy == PJRT:
            variables = self._host_variables()
            self.device_loop = JaxLoop(self._step_on_replicas, variables, self._all_variables)
        # Workers must run the same number of steps, so they have to stop together.
        self._several_workers = self.strategy.extended._in_multi_worker_mode()

    @property
    def step_metrics(self) -> list[tf_keras.metrics.Metric]:
        """The metrics that a step updates, the training's loss first."""
        return [self._train_loss, *self.train_metrics]

    def _host_variables(self) -> list[tf.Variable]:
        """Returns the variables that the host reads or resets between two pieces of a loop."""
        return [
            self.global_step,
            self.optimizer.iterations,
            *(variable for metric in self.step_metrics for variable in metric.variables),
            *self.model.guard.variables,
            *self.model.data_positions.all(),
        ]

    def _all_variables(self) -> list[tf.Variable]:
        """Returns the variables of the model and of the optimizer, slots included."""
        return [*self.model.variables, *optimizer_variables(self.optimizer)]

    @property
    def devices(self) -> list[str]:
        """Names of the devices that compute the steps."""
        if self.device_loop:
            return [self.device_loop.device]
        return list(self.strategy.extended.worker_devices)

    @property
    def compiled(self) -> bool:
        """Whether XLA compiles the steps."""
        return is_compiled(self.config.runtime)

    def check_weights(self) -> None:
        """Raises `WeightsFailed` if the update of a step has made a weight non-finite.

        The guard of a step sees its loss and gradients; an update can fail all the same, e.g. with
        a learning rate that is not finite. Nothing is evaluated or saved then.
        """
        if self.device_loop:
            self.device_loop.pull()
        wrong = non_finite(self._all_variables())
        if wrong:
            raise WeightsFailed(
                f"step {int(self.global_step.numpy())}: an update made weights non-finite "
                f"({list_names(wrong)}); they are not saved"
            )

    def create_train_loop_fn(self) -> Callable:
        loop = self._run_device_loop if self.device_loop else super().create_train_loop_fn()
        return functools.partial(self._in_pieces, loop)

    def _run_device_loop(self, iterator: Any, num_steps: tf.Tensor) -> None:
        loop = self.device_loop
        waited, compiling = loop.waited, loop.compiling
        loop.run(iterator, int(num_steps), self._stop)
        self._watch.correct(loop.waited - waited, loop.compiling - compiling)

    def _in_pieces(self, loop: Callable, iterator: Any, num_steps: tf.Tensor) -> None:
        """Runs the compiled loop in short pieces, for `num_steps` steps or until a stop."""
        left = int(num_steps)
        accelerated = self.device_loop and self.device_loop.accelerated
        aim = ACCELERATED_SECONDS if accelerated else PIECE_SECONDS
        while left:
            piece = min(left, self._piece)
            started = self._now()
            loop(iterator, tf.constant(piece, tf.int32))
            failure = self.model.guard.failure()
            if failure is not None:
                raise StepFailed(
                    f"step {failure.step}: loss {failure.loss:g}, gradient norm "
                    f"{failure.gradient_norm:g}, learning rate "
                    f"{self._learning_rate(failure.step):g}; the step was not applied"
                )
            left -= piece
            if not self._first.steps:
                if self.on_first_step is not None:
                    self.on_first_step(self._now() - started)
                self._first = self._since_begin(
                    {m.name: m.result() for m in self.train_metrics if m.name in NAMES}
                )
            # The next piece has twice as many steps, or as many as fit into the time.
            fitting = piece * aim / max(self._now() - started, 1e-6)
            self._piece = max(1, min(2 * self._piece, int(fitting), _MOST_STEPS))
            self._report()
            local = self._stop() or self._first_checkpoint_is_due()
            any_worker, self._piece = self._all_workers(local, self._piece)
            if any_worker:
                return

    def _report(self) -> None:
        # Reading metrics would be a collective operation of all workers.
        if self.on_piece is None or self._several_workers:
            return
        if self._now() - self._reported >= REPORT_SECONDS:
            self.on_piece(self._so_far())
            self._reported = self._now()

    def _so_far(self) -> dict[str, float]:
        """Returns metrics of the current loop; rates only from the second piece of the run on."""
        values = {m.name: float(m.result()) for m in self.step_metrics}
        loop = self._since_begin({name: values.pop(name) for name in NAMES})
        values["learning_rate"] = self._learning_rate(self.optimizer.iterations)
        if not self.totals.steps:
            loop -= self._first
        if loop.steps:
            values |= {"seconds": loop.seconds, **loop.rates()}
        return values

    def _first_checkpoint_is_due(self) -> bool:
        if self._checkpoint_due is None or self._now() < self._checkpoint_due:
            return False
        self._checkpoint_due = None
        return True

    def train_step(self, iterator: Any) -> None:
        """Computes a step as the base class does, but with XLA on all devices, not only on GPUs."""
        self._step_on_replicas(self.next_train_inputs(iterator))

    def _step_on_replicas(self, inputs: Any) -> None:
        """Computes a step of one batch, each replica its share."""
        self.strategy.run(self._replica_step, args=(inputs,), options=self._runtime_options)

    def _replica_step(self, inputs: Any) -> None:
        step = self.task.train_step
        # A TPU compiles every step anyway.
        if self.config.runtime.enable_xla and self.config.runtime.tpu is None:
            step = tf.function(step, jit_compile=True)
        logs = step(inputs, model=self.model, optimizer=self.optimizer, metrics=self.train_metrics)
        self._train_loss.update_state(logs[self.task.loss])
        self.global_step.assign_add(1)

    def next_train_inputs(self, iterator: Any) -> Any:
        """Returns the next batch; see `Stopwatch.next`."""
        return self._watch.next(iterator)

    def train_loop_begin(self) -> None:
        super().train_loop_begin()
        self._began = int(self.global_step.numpy())
        if not self._began:
            self._checkpoint_due = self._now() + FIRST_CHECKPOINT_SECONDS
        self._watch.start()

    def train_loop_end(self) -> dict[str, Any]:
        """Returns the metrics of the loop, with rates instead of the counts."""
        logs = super().train_loop_end()
        # Model Garden logs the rate of the next step.
        logs["learning_rate"] = self._learning_rate(self.optimizer.iterations)
        loop = self._since_begin({name: logs.pop(name) for name in NAMES})
        measured = loop if self.totals.steps else loop - self._first
        self.totals += loop
        logs.update((measured if measured.steps else loop).rates())
        left = self.config.trainer.train_steps - int(self.global_step.numpy())
        logs["seconds_left"] = left / max(logs["steps_per_second"], 1e-9)
        return logs

    def _learning_rate(self, step: int | tf.Tensor) -> float:
        """Returns the learning rate of a step, counted from 1."""
        rate = self.optimizer.learning_rate
        # A constant rate may be a distributed variable, which has no `float()`.
        return float(
            tf.convert_to_tensor(rate(tf.maximum(step - 1, 0)) if callable(rate) else rate)
        )

    def _since_begin(self, counts: dict[str, Any]) -> Totals:
        """Returns the totals of the current loop; `counts` has the keys `step.NAMES`."""
        steps = int(self.global_step.numpy()) - self._began
        return Totals(steps, *(int(counts[name]) for name in NAMES), *self._watch.read())

    def rates(self) -> dict[str, float]:
        """Returns `Totals.rates` of this run, without its first piece if there are others."""
        later = self.totals - self._first
        return (later if later.steps else self.totals).rates()

    def check_stop(self, output: dict[str, Any]) -> None:
        """Raises `StopRequested` if a stop was requested before the last step; a train action.

        All workers stop together, whichever of them received the request.
        """
        unfinished = int(self.global_step.numpy()) < self.config.trainer.train_steps
        if self.any_worker(self._stop()) and unfinished:
            raise StopRequested

    def any_worker(self, local: bool) -> bool:
        """Returns whether `local` is true on any worker; all workers call this at the same step."""
        return self._all_workers(local, 1)[0]

    def _all_workers(self, local: bool, piece: int) -> tuple[bool, int]:
        """Returns whether `local` is true on any worker, and the workers' mean `piece`.

        The result is equal on all workers: float sums of small integers are exact in any order.
        """
        if not self._several_workers:
            return bool(local), piece
        mine = self.strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant([float(bool(local)), float(piece)])
        )
        total = self.strategy.reduce(tf.distribute.ReduceOp.SUM, mine, axis=None).numpy()
        return bool(total[0] > 0), max(1, int(total[1]) // self.strategy.num_replicas_in_sync)

    def eval_begin(self) -> Any:
        self._evaluated = 0
        self.check_weights()
        return super().eval_begin()

    def eval_end(self, logs: Any = None) -> Any:
        """Returns the metrics of a validation, with the score of `task.sts_file` if it is set."""
        if self.device_loop:
            # An evaluation may swap the weights for their average and back.
            self.device_loop.forget()
        # The base class passes the scorer to `task.reduce_aggregated_logs` unless it is None.
        return super().eval_end(self._sts_scorer)

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:
        # An evaluation that is traced into one graph cannot stop early.
        if tf.executing_eagerly():
            self._evaluated += 1
            all_check = not self._several_workers or self._evaluated % _EVALUATION_STEPS == 0
            if all_check and self.any_worker(self._stop()):
                if isinstance(self.optimizer, ema_optimizer.ExponentialMovingAverage):
                    # During evaluation the moving average replaces the weights.
                    self.optimizer.swap_weights()
                raise StopRequested
        return super().eval_reduce(state, step_outputs)


class Controller(orbit.Controller):
    """A controller that evaluates at multiples of the interval.

    Orbit counts the interval from a run's first step. In the same way, loops end at multiples of
    `steps_per_loop`.
    """

    def __init__(
        self,
        *,
        unevaluated: Callable[[int], bool],
        before_saving: Callable[[], None] = lambda: None,
        after_saving: Callable[[tf.train.CheckpointManager], None] = lambda manager: None,
        **kwargs: Any,
    ) -> None:
        """Wraps Orbit's controller.

        Args:
          unevaluated: returns whether the evaluation of a step, a run's first one, is missing.
          before_saving: called before each checkpoint.
          after_saving: called after each checkpoint with the manager that saved it.
          **kwargs: see `orbit.Controller`.
        """
        self._unevaluated = unevaluated
        self._before_saving, self._after_saving = before_saving, after_saving
        super().__init__(**kwargs)

    @property
    def steps_per_loop(self) -> int:
        """Number of steps to the end of the loop that the current step is in."""
        return self._steps_per_loop - int(self.global_step.numpy()) % self._steps_per_loop

    def train_and_evaluate(
        self, train_steps: int, eval_steps: int = -1, eval_interval: int | None = None
    ) -> orbit.runner.Output | None:
        """Trains up to a step and evaluates every `eval_interval` steps, and after the last one.

        A resumed run first evaluates its starting step if that evaluation is due and missing.
        """
        interval, output = eval_interval or train_steps, None
        step = int(self.global_step.numpy())
        due = step == train_steps or (0 < step < train_steps and step % interval == 0)
        if due and self._unevaluated(step):
            output = self.evaluate(steps=eval_steps)
        while step < train_steps:
            aim = min(train_steps, step - step % interval + interval)
            self.train(steps=aim, checkpoint_at_completion=False)
            output = self.evaluate(steps=eval_steps)
            step = int(self.global_step.numpy())
        self._maybe_save_checkpoint(check_interval=False)
        return output

    def _maybe_save_checkpoint(self, check_interval: bool = True) -> bool:
        manager, step = self.checkpoint_manager, int(self.global_step.numpy())
        last = manager and manager._last_checkpoint_step
        if not check_interval or last is None or step >= last + manager.checkpoint_interval:
            self._before_saving()
        saved = super()._maybe_save_checkpoint(check_interval)
        if saved:
            self._after_saving(manager)
        return saved


class BestCheckpoint(train_utils.BestCheckpointExporter):
    """Model Garden's exporter of the best checkpoint, with `weights.safetensors` beside it."""

    def maybe_export_checkpoint(self, checkpoint: tf.train.Checkpoint, *others: Any) -> bool:
        saved = super().maybe_export_checkpoint(checkpoint, *others)
        if saved:
            write_encoder(self._get_checkpoint_manager(checkpoint))
        return saved


def write_encoder(manager: tf.train.CheckpointManager) -> None:
    """Writes the weights of the newest checkpoint, which is also the model's state, beside it."""
    model, folder = manager.checkpoint.model, manager.directory
    # Encoders are read from local folders only.
    if "://" not in folder:
        last = manager.latest_checkpoint
        save_weights(folder, model.encoder, model.head, model.projections, last)
