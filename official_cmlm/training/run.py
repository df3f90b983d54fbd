"""Runs a training or an evaluation: checks it, builds the trainer, runs to the end or to a stop."""

import atexit
import contextlib
import dataclasses
import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
from official.core import train_lib, train_utils
from official.modeling import performance
from official.modeling.hyperparams import base_config

from official_cmlm.checkpoints.encoder_directory import TRAINING_LOCK, EncoderDirectory
from official_cmlm.checkpoints.integrity import (
    checkpoints_of,
    clean_up,
    last_checkpoint,
    latest_good_checkpoint,
    refuse_damage,
    remove_leftovers,
)
from official_cmlm.common.errors import Stopped, UserError
from official_cmlm.common.files import check_writable, hold_lock, report_write_errors
from official_cmlm.common.signals import StopRequest, watching
from official_cmlm.configs.schedule import resume_notes, schedule_notes
from official_cmlm.configs.yaml_loading import override, read_yaml
from official_cmlm.inputs.data_position import read_positions
from official_cmlm.records.corruption import report_damaged_shard
from official_cmlm.training.checks import check_best_checkpoint, check_run, checkpoint_notes
from official_cmlm.training.config import (
    AUTO_PRECISION,
    PJRT,
    ObjectivesConfig,
    SentenceEncoderExperimentConfig,
    SentenceEncoderTrainerConfig,
    check_start,
    objective_notes,
)
from official_cmlm.training.curve import write_curve
from official_cmlm.training.jax_loop import DeviceFailed, describe_device
from official_cmlm.training.progress import TrainingProgress, read_evaluations, write_summary
from official_cmlm.training.runtime import (
    compilation_notes,
    create_strategy,
    devices,
    is_chief,
    is_compiled,
    resolve_runtime,
)
from official_cmlm.training.task import SentenceEncoderTask
from official_cmlm.training.trainer import (
    BestCheckpoint,
    Controller,
    StepFailed,
    StopRequested,
    Trainer,
    WeightsFailed,
    write_encoder,
)

# Advice for each error of a step; then the same command is to be run again.
_ADVICE = {
    StepFailed: "lower the learning rate, or check the training records, then ",
    WeightsFailed: "lower the learning rate, then ",
    DeviceFailed: "",
}


def run(params: SentenceEncoderExperimentConfig, mode: str, model_dir: str) -> None:
    """Trains and evaluates as `mode` says, and leaves an encoder directory in `model_dir`.

    Args:
      params, mode, model_dir: see `Run`.

    Raises:
      UserError: for an invalid configuration, invalid records or an unsuitable model directory; for
        a non-finite loss; for a full disk.
      Stopped: after SIGTERM or SIGINT; the training is saved in a checkpoint.
    """
    stop, started = StopRequest(), time.monotonic()
    # A signal may end an evaluation at once, as it leaves no incomplete files.
    with watching(stop) if "train" in mode else contextlib.nullcontext():
        check_start(params.task.init_checkpoint)
        prepared_run = prepare(params, mode, model_dir)
        with prepared_run.guard():
            if "train" in mode:
                prepared_run.train(stop, started)
            else:
                prepared_run.evaluate()


def prepare(params: SentenceEncoderExperimentConfig, mode: str, model_dir: str) -> "Run":
    """Checks a run and builds its strategy and task; prints what the run will do."""
    trains, asked = "train" in mode, params.runtime.mixed_precision_dtype
    params, xla_choice = resolve_runtime(params, model_dir if trains else "")
    strategy = create_strategy(params.runtime)
    if is_chief(strategy):
        check_writable(model_dir, is_folder=True)
    if params.runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(params.runtime.mixed_precision_dtype)
    # This decides the initial weights; data and dropout are functions of the seed anyway.
    tf_keras.utils.set_random_seed(params.task.train_data.seed)
    with strategy.scope():
        task = SentenceEncoderTask(
            params.task,
            logging_dir=model_dir,
            static_shapes=is_compiled(params.runtime),
            # A TPU compiles validation too.
            static_validation=params.runtime.distribution_strategy == "tpu",
        )
    params = with_counted_steps(params, task, strategy.num_replicas_in_sync)
    check_run(params, task, mode, strategy.num_replicas_in_sync)
    on_jax = trains and params.runtime.distribution_strategy == PJRT
    precision = params.runtime.mixed_precision_dtype or "float32"
    where = describe_device() if on_jax else devices(strategy)
    why = " (auto)" if asked == AUTO_PRECISION else ""
    print(f"{mode} on {where}, {precision}{why}", file=sys.stderr)
    if trains:
        choice = [str(xla_choice)] if xla_choice else []
        choice += compilation_notes(params)
        notes = (*choice, *task.notes(), *schedule_notes(params.trainer))
        for line in (*notes, *checkpoint_notes(params.trainer)):
            print(line, file=sys.stderr)
    if EncoderDirectory.is_at(model_dir):
        EncoderDirectory.open(model_dir).check_takes(task.encoder_config, task.vocabulary)
    check_best_checkpoint(params, model_dir)
    return Run(params, task, mode, model_dir, strategy)


@dataclasses.dataclass(frozen=True)
class Run:
    """A training or an evaluation whose settings and records are checked.

    Attributes:
      params: the experiment, with the settings of this machine, see `runtime.resolve_runtime`.
      task: the task of `params`.
      mode: e.g. `train_and_eval`.
      model_dir: folder of its checkpoints and reports.
      strategy: distributes its steps.
    """

    params: SentenceEncoderExperimentConfig
    task: SentenceEncoderTask
    mode: str
    model_dir: str
    strategy: tf.distribute.Strategy

    @property
    def chief(self) -> bool:
        """Whether this process writes checkpoints and reports."""
        return is_chief(self.strategy)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Locks the folder for a training; turns damaged shards and full disks into `UserError`."""
        is_writer = "train" in self.mode and self.chief
        with contextlib.ExitStack() as held:
            if is_writer:
                held.enter_context(_sole_training(self.model_dir))
            held.enter_context(report_damaged_shard(self.task.input_folders()))
            held.enter_context(
                report_write_errors(self.model_dir, lambda: _remedy(self.model_dir, is_writer))
            )
            yield

    def train(self, stop: StopRequest, started: float) -> None:
        """Trains, and evaluates as `mode` says; resumes from the newest good checkpoint.

        Args:
          stop: whether a stop was requested.
          started: time by `time.monotonic` at which the run began.

        Raises:
          UserError: at a non-finite step; no checkpoint is written then.
          Stopped: if a stop was requested.
        """
        checkpoint, reached = latest_good_checkpoint(self.model_dir), {}
        if self.chief:
            clean_up(self.model_dir, checkpoint)
        if checkpoint:
            reached = read_positions(checkpoint, self.task.training_data())
            replicas = self.strategy.num_replicas_in_sync
            for line in self.task.resume_notes(reached, replicas):
                print(line, file=sys.stderr)
        trainer = self.build_trainer(checkpoint, lambda: bool(stop), reached)
        step, total = int(trainer.global_step.numpy()), self.params.trainer.train_steps
        if self.chief:
            if checkpoint:
                _report_changes(self.params, self.model_dir, step)
            describe_run(self.params, self.task, self.mode, self.model_dir)
            if step >= total:
                print(f"{self.model_dir}: all {total} steps are trained already", file=sys.stderr)
        history = self.model_dir if self.chief else None
        with TrainingProgress(total, history, trainer.global_step, started) as reports:
            runner = self._runner(trainer, reports, checkpoint)
            if checkpoint and self.chief:
                # A training that was killed after a checkpoint has not written its weights.
                write_encoder(runner.checkpoint_manager)
            with self._step_errors():
                stopped = _run_until_stop(runner, trainer)
        checkpoint = runner.checkpoint_manager.latest_checkpoint
        if self.chief:
            write_summary(self.model_dir, trainer, reports, checkpoint)
            write_curve(self.model_dir)
        if stopped:
            raise self._stop_error(int(trainer.global_step.numpy()), checkpoint)

    def evaluate(self) -> None:
        """Evaluates the newest checkpoint.

        Raises:
          UserError: if there is none, or it is damaged.
        """
        checkpoints = checkpoints_of(self.model_dir)
        if not checkpoints:
            raise UserError(f"{self.model_dir}: no checkpoint to evaluate; run --mode=train first")
        refuse_damage(checkpoints[0])
        self._runner(self.build_trainer(checkpoints[0])).run()

    def build_trainer(
        self,
        checkpoint: str | None,
        stop: Callable[[], bool] = lambda: False,
        reached: dict[str, np.ndarray] | None = None,
    ) -> Trainer:
        """Builds the trainer, and reads the checkpoint into it."""
        params = self.params
        optimization = params.trainer.replace(optimizer_config=params.trainer.optimization())
        with self.strategy.scope():
            try:
                trainer = train_utils.create_trainer(
                    params.replace(trainer=optimization),
                    self.task,
                    train="train" in self.mode,
                    evaluate="eval" in self.mode,
                    checkpoint_exporter=self._best_checkpoint(),
                    trainer_cls=functools.partial(Trainer, stop=stop, reached=reached),
                )
            except UserError as error:
                # Gin, which calls the constructor, appends the place of the call to the message.
                raise UserError(str(error).split("\n  In call to configurable")[0]) from None
        _check_checkpoint(checkpoint, trainer)
        return trainer

    def _best_checkpoint(self) -> BestCheckpoint | None:
        """Returns what exports the best checkpoint; None if none is asked for."""
        trainer = self.params.trainer
        if not (self.model_dir and trainer.best_checkpoint_export_subdir):
            return None
        return BestCheckpoint(
            os.path.join(self.model_dir, trainer.best_checkpoint_export_subdir),
            trainer.best_checkpoint_eval_metric,
            trainer.best_checkpoint_metric_comp,
        )

    def _runner(
        self,
        trainer: Trainer,
        reports: TrainingProgress | None = None,
        checkpoint: str | None = None,
    ) -> train_lib.OrbitExperimentRunner:
        """Builds Model Garden's runner, which restores the newest checkpoint or initialises."""
        chief, model_dir = self.chief, self.model_dir
        if reports and chief:
            trainer.on_piece, trainer.on_first_step = reports.on_piece, reports.on_first_step
        runner = train_lib.OrbitExperimentRunner(
            distribution_strategy=self.strategy,
            task=self.task,
            mode=self.mode,
            params=self.params,
            model_dir=model_dir,
            trainer=trainer,
            save_summary=chief,
            train_actions=[reports.on_train, trainer.check_stop] if reports else None,
            eval_actions=[reports.on_eval] if reports else None,
            # Only the chief knows which evaluations are missing; all workers must decide alike.
            controller_cls=functools.partial(
                Controller,
                unevaluated=lambda step: trainer.any_worker(
                    chief and step not in read_evaluations(model_dir)
                ),
                before_saving=trainer.check_weights,
                after_saving=write_encoder if chief else lambda manager: None,
            ),
        )
        if not chief:
            # Non-chief workers save to a throw-away folder.
            folder = runner.checkpoint_manager.directory
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            if checkpoint:
                # The runner found no checkpoint in that folder: restore the chief's. All workers
                # must save at the same steps.
                trainer.checkpoint.restore(checkpoint)
                runner.checkpoint_manager._last_checkpoint_step = int(trainer.global_step.numpy())
        return runner

    @contextlib.contextmanager
    def _step_errors(self) -> Iterator[None]:
        """Turns the failure of a step into a `UserError` that says how to go on."""
        try:
            yield
        except tuple(_ADVICE) as error:
            advice = _ADVICE[type(error)]
            if "RESOURCE_EXHAUSTED" in str(error):
                advice = "lower task.train_data.global_batch_size, then "
            where = last_checkpoint(self.model_dir)
            raise UserError(f"{error}; {where}; {advice}run the same command to resume") from None

    def _stop_error(self, step: int, checkpoint: str | None) -> Stopped:
        """Returns the error that ends a run which was stopped after `step` steps."""
        total = self.params.trainer.train_steps
        where = f"saved as {checkpoint}" if self.chief else "saved by the chief worker"
        how = "run the same command to resume"
        if not step:
            where, how = "nothing to save", "run the same command to start again"
        if step >= total:
            how = "the training is complete, run the same command to evaluate it"
        return Stopped(f"stopped at step {step} of {total}, {where}; {how}")


def _run_until_stop(runner: train_lib.OrbitExperimentRunner, trainer: Trainer) -> bool:
    """Runs to the end, or to a requested stop, where it saves; returns whether it was stopped."""
    try:
        # A stop may have been requested while everything was built.
        trainer.check_stop({})
        runner.run()
    except StopRequested:
        # Before the first step there is nothing to save.
        if trainer.global_step.numpy():
            runner.controller.save_checkpoint()
        return True
    return False


def _sole_training(model_dir: str) -> contextlib.AbstractContextManager:
    """Refuses a second training in the same folder; see `files.hold_lock`.

    Of several workers only the chief writes to the folder, and only it holds the lock.
    """
    if "://" in model_dir:
        return contextlib.nullcontext()
    os.makedirs(model_dir, exist_ok=True)
    return hold_lock(
        os.path.join(model_dir, TRAINING_LOCK),
        f"{model_dir}: another training is running in this folder; wait for it, stop it, or name "
        "another --model_dir",
    )


def _remedy(model_dir: str, is_writer: bool) -> str:
    """Says what to do about a full disk; the writer removes its incomplete checkpoint first."""
    if is_writer:
        with contextlib.suppress(OSError, tf.errors.OpError, UserError):
            remove_leftovers(model_dir)
    return (
        f"{last_checkpoint(model_dir)}; free disk space, or lower trainer.max_to_keep, then run "
        "the same command to resume"
    )


def _report_changes(params: SentenceEncoderExperimentConfig, model_dir: str, step: int) -> None:
    """Prints the changes of a run resumed at `step`: of its objectives and its learning rate."""
    path, lines = Path(model_dir) / "params.yaml", []

    def read(config: base_config.Config, *keys: str) -> None:
        values = read_yaml(path)
        for key in keys:
            values = values.get(key) if isinstance(values, dict) else None
        override(config, values, str(path))

    # The lines are only remarks, so a damaged file, or a file of other code, is ignored.
    with contextlib.suppress(UserError, OSError):
        read(objectives_before := ObjectivesConfig(), "task", "objectives")
        lines += objective_notes(objectives_before, params.task.objectives)
    with contextlib.suppress(UserError, OSError):
        read(trainer_before := SentenceEncoderTrainerConfig(), "trainer")
        lines += resume_notes(trainer_before, params.trainer, step)
    for line in lines:
        print(line, file=sys.stderr)


def describe_run(
    params: SentenceEncoderExperimentConfig, task: SentenceEncoderTask, mode: str, model_dir: str
) -> None:
    """Describes `model_dir`, and the folder of the best checkpoint, as encoder directories."""
    task.describe(model_dir, model_dir)
    if params.trainer.best_checkpoint_export_subdir and "eval" in mode:
        best = os.path.join(model_dir, params.trainer.best_checkpoint_export_subdir)
        task.describe(best, model_dir)
        EncoderDirectory.open(best).remove_older_weights()
    train_utils.serialize_config(params, model_dir)


def with_counted_steps(
    params: SentenceEncoderExperimentConfig, task: SentenceEncoderTask, num_replicas: int
) -> SentenceEncoderExperimentConfig:
    """Returns an experiment with the steps of its `trainer.train_epochs`, if any, as `train_steps`.

    Raises:
      UserError: see `SentenceEncoderTask.steps_of`.
    """
    trainer = params.trainer
    if trainer.train_epochs is None:
        return params
    steps = task.steps_of(trainer.train_epochs, num_replicas)
    return params.replace(trainer=trainer.replace(train_steps=steps))


def _check_checkpoint(prefix: str | None, trainer: Trainer) -> None:
    """Raises `UserError` if a checkpoint cannot be read into this run's model."""
    if prefix is None:
        return
    try:
        trainer.checkpoint.read(prefix).expect_partial()
    except (ValueError, IndexError, tf.errors.OpError) as error:
        raise UserError(
            f"{prefix}: does not fit this experiment ({str(error)[:160]}); use the settings that "
            "it was written with, or another --model_dir"
        ) from None
