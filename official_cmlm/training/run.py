"""One run of training or evaluation: checks, trainer, training to its end or to a stop."""

import atexit
import contextlib
import functools
import os
import shutil
import sys

import tensorflow as tf
import tf_keras
from official.core import train_lib, train_utils
from official.modeling import performance

from official_cmlm.checkpoints.encoder_directory import (
    DEFAULT_SEQ_LENGTH,
    check_description,
    describe,
)
from official_cmlm.checkpoints.integrity import (
    checkpoints_of,
    clean_up,
    latest_good_checkpoint,
    refuse_damage,
)
from official_cmlm.errors import Stopped, UserError
from official_cmlm.objectives import objectives
from official_cmlm.objectives.base import HIGHER, LOWER
from official_cmlm.records.corruption import report_damaged_shard
from official_cmlm.training.config import (
    PJRT,
    SentenceEncoderExperimentConfig,
    check_start,
    chosen_objectives,
)
from official_cmlm.training.full_disk import last_checkpoint, report_full_model_dir
from official_cmlm.training.jax_loop import DeviceFailed, describe_device
from official_cmlm.training.non_finite import failed_step
from official_cmlm.training.progress import (
    TrainingProgress,
    evaluated_steps,
    progress_reports,
    write_summary,
)
from official_cmlm.training.runtime import create_strategy, devices, is_chief, prepared
from official_cmlm.training.signals import StopRequest, watching
from official_cmlm.training.task import STS_METRIC, SentenceEncoderTask
from official_cmlm.training.trainer import Controller, GivenUp, StepFailed, Trainer


def run(params: SentenceEncoderExperimentConfig, mode: str, model_dir: str) -> None:
    """Trains and evaluates as `mode` says, and leaves an encoder directory in `model_dir`.

    Raises:
      UserError: for a configuration, records or a model directory that cannot work; if a step's
        loss is not finite, or the disk is full.
      Stopped: after SIGTERM or SIGINT; the training is in a checkpoint.
    """
    stop = StopRequest()
    # An evaluation may end at once: it leaves nothing half done.
    with watching(stop) if "train" in mode else contextlib.nullcontext():
        _run(params, mode, model_dir, stop)


def _run(
    params: SentenceEncoderExperimentConfig, mode: str, model_dir: str, stop: StopRequest
) -> None:
    check_start(params.task.init_checkpoint)
    params = prepared(params)
    strategy = create_strategy(params.runtime)
    if params.runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(params.runtime.mixed_precision_dtype)
    # Initial weights; the data's randomness is a function of the seed by itself, and dropout's.
    tf_keras.utils.set_random_seed(params.task.train_data.seed)
    with strategy.scope():
        task = SentenceEncoderTask(params.task, logging_dir=model_dir)
    check_run(params, task, mode, strategy.num_replicas_in_sync)
    on_jax = "train" in mode and params.runtime.distribution_strategy == PJRT
    print(f"{mode} on {describe_device() if on_jax else devices(strategy)}", file=sys.stderr)
    for line in task.notes() if "train" in mode else ():
        print(line, file=sys.stderr)
    encoder_config = params.task.encoder.replace(vocab_size=len(task.vocabulary))
    check_description(model_dir, encoder_config, task.vocabulary)
    checkpoint = _checkpoint(model_dir, mode)
    if "train" in mode and is_chief(strategy):
        clean_up(model_dir, checkpoint)
    if checkpoint and "train" in mode:
        for line in task.resume_data(checkpoint, strategy.num_replicas_in_sync):
            print(line, file=sys.stderr)
    with report_damaged_shard(task.input_folders()), report_full_model_dir(model_dir):
        with strategy.scope():
            trainer = _create_trainer(params, task, mode, model_dir, stop)
            # The optimizers create this lazily; a step function must not be the first to do so.
            _ = trainer.optimizer.iterations
        _check_checkpoint(checkpoint, trainer)
        if "train" not in mode:
            runner_of(params, task, mode, model_dir, trainer).run()
            return
        if is_chief(strategy):
            describe_run(params, task, mode, model_dir)
        train(params, task, mode, model_dir, trainer, checkpoint)


def describe_run(
    params: SentenceEncoderExperimentConfig, task: SentenceEncoderTask, mode: str, model_dir: str
) -> None:
    """Makes `model_dir`, and the folder of the best checkpoint, an encoder directory."""
    # Positions beyond the longest training sequence have never been trained.
    longest = max(data.seq_length for _, _, data in params.task.used_data())
    length = min(DEFAULT_SEQ_LENGTH, longest)
    config = params.task.encoder.replace(vocab_size=len(task.vocabulary))
    describe(model_dir, config, task.vocabulary, length)
    if params.trainer.best_checkpoint_export_subdir and "eval" in mode:
        best = os.path.join(model_dir, params.trainer.best_checkpoint_export_subdir)
        describe(best, config, task.vocabulary, length)
    train_utils.serialize_config(params, model_dir)


def check_run(
    params: SentenceEncoderExperimentConfig,
    task: SentenceEncoderTask,
    mode: str,
    num_replicas: int,
) -> None:
    """Raises `UserError` for what would stop a run, or spoil its result, after it has begun.

    Args:
      params: the whole experiment.
      task: that of `params`.
      mode: what the run does, e.g. `train_and_eval`.
      num_replicas: among which each batch is divided.
    """
    if "train" in mode:
        check_trainer(params)
    task.check_batch_sizes(num_replicas)
    if "eval" in mode:
        task.check_validation_data()
        check_best_metric(params)
    for word, is_training in (("train", True), ("eval", False)):
        if word in mode:
            task.check_inputs(is_training, num_replicas)


def check_best_metric(params: SentenceEncoderExperimentConfig) -> None:
    """Raises `UserError` if the best checkpoint would be chosen by what is not measured, or be the
    worst one, because the metric is compared the wrong way round."""
    trainer = params.trainer
    if not trainer.best_checkpoint_export_subdir:
        return
    directions = {"validation_loss": LOWER} | {
        f"{name}/{metric}": better
        for name in chosen_objectives(params.task.objectives)
        for metric, better in objectives()[name].metric_directions.items()
    }
    if params.task.sts_file:
        directions[STS_METRIC] = HIGHER
    chosen, direction = trainer.best_checkpoint_eval_metric, trainer.best_checkpoint_metric_comp
    if chosen not in directions:
        raise UserError(
            f"trainer.best_checkpoint_eval_metric is {chosen!r}; validation measures "
            f"{', '.join(directions)} ({STS_METRIC} with task.sts_file)"
        )
    if direction != (better := directions[chosen]):
        raise UserError(
            f"trainer.best_checkpoint_metric_comp is {direction!r}, but of {chosen} the best value "
            f"is the {better[:-2]}est; set it to {better}"
        )


def _checkpoint(model_dir: str, mode: str) -> str | None:
    """The checkpoint that a run begins with: in training the newest good one.

    Raises:
      UserError: if all are damaged; in evaluation also if there is none, or the newest is damaged.
    """
    if "train" in mode:
        return latest_good_checkpoint(model_dir)
    known = checkpoints_of(model_dir)
    if not known:
        raise UserError(f"{model_dir}: no checkpoint to evaluate; run --mode=train first")
    refuse_damage(known[0])
    return known[0]


def _create_trainer(
    params: SentenceEncoderExperimentConfig,
    task: SentenceEncoderTask,
    mode: str,
    model_dir: str,
    stop: StopRequest,
) -> Trainer:
    try:
        return train_utils.create_trainer(
            params,
            task,
            train="train" in mode,
            evaluate="eval" in mode,
            checkpoint_exporter=train_lib.maybe_create_best_ckpt_exporter(params, model_dir),
            trainer_cls=functools.partial(Trainer, stop=lambda: bool(stop)),
        )
    except UserError as error:
        # Gin, which makes the trainer, adds where it was called.
        raise UserError(str(error).split("\n  In call to configurable")[0]) from None


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


def runner_of(
    params: SentenceEncoderExperimentConfig,
    task: SentenceEncoderTask,
    mode: str,
    model_dir: str,
    trainer: Trainer,
    reports: TrainingProgress | None = None,
    checkpoint: str | None = None,
) -> train_lib.OrbitExperimentRunner:
    """Model Garden's runner; it restores the newest checkpoint, or initialises the model."""
    chief = is_chief(trainer.strategy)
    runner = train_lib.OrbitExperimentRunner(
        distribution_strategy=trainer.strategy,
        task=task,
        mode=mode,
        params=params,
        model_dir=model_dir,
        trainer=trainer,
        save_summary=chief,
        train_actions=[reports.on_train, trainer.give_up] if reports else None,
        eval_actions=[reports.on_eval] if reports else None,
        # The first worker knows; all must decide alike.
        controller_cls=functools.partial(
            Controller,
            unevaluated=lambda step: trainer.anywhere(
                chief and step not in evaluated_steps(model_dir)
            ),
            before_saving=trainer.pull,
        ),
    )
    if not chief:
        # A folder of its own, where all but the first worker save what nobody reads.
        folder = runner.checkpoint_manager.directory
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        if checkpoint:
            # It has looked for one there. All workers save at the same steps.
            trainer.checkpoint.restore(checkpoint)
            runner.checkpoint_manager._last_checkpoint_step = int(trainer.global_step.numpy())
    return runner


def train(
    params: SentenceEncoderExperimentConfig,
    task: SentenceEncoderTask,
    mode: str,
    model_dir: str,
    trainer: Trainer,
    checkpoint: str | None,
) -> None:
    """Trains, and evaluates as `mode` says; from `checkpoint` on, if there is one.

    Raises:
      UserError: at a step that was not finite; no checkpoint is written then.
      Stopped: if a stop was asked for.
    """
    total, chief = params.trainer.train_steps, is_chief(trainer.strategy)
    with progress_reports(total, model_dir if chief else None, trainer) as reports:
        runner = runner_of(params, task, mode, model_dir, trainer, reports, checkpoint)
        trainer.on_piece = reports.on_piece if chief else None
        stopped = False
        try:
            # While everything was built.
            trainer.give_up({})
            runner.run()
        except GivenUp:
            stopped = True
            # Before the first step there is nothing to go on from.
            if trainer.global_step.numpy():
                runner.controller.save_checkpoint()
        except StepFailed as error:
            raise failed_step(error.failure, trainer, task.training_data(), model_dir) from None
        except DeviceFailed as error:
            advice = "the same command goes on from there"
            if "RESOURCE_EXHAUSTED" in str(error):
                advice = f"lower task.train_data.global_batch_size, and {advice}"
            raise UserError(f"{error}; {last_checkpoint(model_dir)}; {advice}") from None
    checkpoint = runner.checkpoint_manager.latest_checkpoint
    if chief:
        write_summary(model_dir, trainer, reports.last, params.task.train_data.seed, checkpoint)
    if stopped:
        step = int(trainer.global_step.numpy())
        where = f"saved as {checkpoint}" if chief else "saved by the first worker"
        how = "the same command goes on from there"
        if not step:
            where, how = "nothing is saved", "the same command begins again"
        if step >= total:
            how = "the training is complete, the same command evaluates it"
        raise Stopped(f"stopped at step {step} of {total}, {where}; {how}")


def check_trainer(params: SentenceEncoderExperimentConfig) -> None:
    """Raises `UserError` for settings of `trainer` that cannot work in training."""
    trainer = params.trainer
    for name in ("steps_per_loop", "summary_interval"):
        if getattr(trainer, name) < 1:
            raise UserError(f"trainer.{name} must be at least 1, got {getattr(trainer, name)}")
    if trainer.checkpoint_interval < 1:
        raise UserError(
            f"trainer.checkpoint_interval is {trainer.checkpoint_interval}: nothing would ever be "
            f"saved, not even at a stop; set it to at least 1, e.g. {max(1, trainer.train_steps)} "
            "for one checkpoint at the end"
        )
    if trainer.validation_interval < 0:
        raise UserError(
            f"trainer.validation_interval must be 0 or more, got {trainer.validation_interval}"
        )
    if trainer.summary_interval % trainer.steps_per_loop:
        raise UserError(
            f"trainer.summary_interval {trainer.summary_interval} is no multiple of "
            f"trainer.steps_per_loop {trainer.steps_per_loop}; set it to "
            f"{-(-trainer.summary_interval // trainer.steps_per_loop) * trainer.steps_per_loop}"
        )
    # By Keras' name too, as `runtime.prepared` may not have been called.
    half = params.runtime.mixed_precision_dtype in ("float16", "mixed_float16")
    if half and trainer.optimizer_config.ema:
        raise UserError(
            "trainer.optimizer_config.ema: an average of weights cannot be kept with "
            "runtime.mixed_precision_dtype float16, whose loss is scaled; use bfloat16, or leave "
            "one of the two out"
        )
