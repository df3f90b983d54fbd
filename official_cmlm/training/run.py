"""Runs a training or an evaluation: checks it, builds the trainer, runs to the end or to a stop."""

import atexit
import contextlib
import functools
import os
import shutil
import sys
import time
from pathlib import Path

import tensorflow as tf
import tf_keras
from official.core import train_lib, train_utils
from official.modeling import performance
from official.modeling.optimization.optimizer_factory import LEGACY_OPTIMIZERS_CLS

from official_cmlm.checkpoints.encoder_directory import (
    CONFIG_NAME,
    check_description,
    describe,
)
from official_cmlm.checkpoints.integrity import (
    checkpoints_of,
    clean_up,
    last_checkpoint,
    latest_good_checkpoint,
    refuse_damage,
    remove_leftovers,
)
from official_cmlm.configs.schedule import check_schedule, resume_notes, schedule_notes
from official_cmlm.configs.yaml_loading import override, read_yaml
from official_cmlm.errors import Stopped, UserError
from official_cmlm.files import check_writable, locked, read_object, report_write_errors
from official_cmlm.objectives import objectives
from official_cmlm.objectives.base import HIGHER, LOWER
from official_cmlm.records.corruption import report_damaged_shard
from official_cmlm.training.config import (
    PJRT,
    SentenceEncoderExperimentConfig,
    SentenceEncoderTrainerConfig,
    check_start,
    chosen_objectives,
)
from official_cmlm.training.curve import write_curve
from official_cmlm.training.jax_loop import DeviceFailed, describe_device
from official_cmlm.training.non_finite import failed_step
from official_cmlm.training.progress import (
    TrainingProgress,
    evaluated_steps,
    progress_reports,
    write_summary,
)
from official_cmlm.training.projector import validation_folders, write_projector
from official_cmlm.training.runtime import (
    create_strategy,
    devices,
    is_chief,
    prepared,
    xla_decision,
)
from official_cmlm.training.signals import StopRequest, watching
from official_cmlm.training.start import for_sentences, length, read_start
from official_cmlm.training.task import STS_METRIC, SentenceEncoderTask
from official_cmlm.training.trainer import Controller, GivenUp, StepFailed, Trainer, WeightsFailed
from official_cmlm.validation import check_fields


def run(
    params: SentenceEncoderExperimentConfig,
    mode: str,
    model_dir: str,
    projector_sentences: int = 0,
) -> None:
    """Trains and evaluates as `mode` says, and leaves an encoder directory in `model_dir`.

    Args:
      params: the experiment.
      mode: e.g. `train_and_eval`.
      model_dir: the folder.
      projector_sentences: at the end TensorBoard's projector gets the embeddings of so many
        validation sentences.

    Raises:
      UserError: for an invalid configuration, invalid records or an unsuitable model directory; for
        a non-finite loss; for a full disk.
      Stopped: after SIGTERM or SIGINT; the training is saved in a checkpoint.
    """
    stop = StopRequest()
    # An evaluation may end at once: it leaves no incomplete files.
    with watching(stop) if "train" in mode else contextlib.nullcontext():
        _run(params, mode, model_dir, stop, projector_sentences)


def _run(
    params: SentenceEncoderExperimentConfig,
    mode: str,
    model_dir: str,
    stop: StopRequest,
    projector_sentences: int,
) -> None:
    check_start(params.task.init_checkpoint)
    shown = validation_folders(params.task) if projector_sentences else []
    started = time.monotonic()
    decision = None
    if params.runtime.enable_xla is None:
        decision = xla_decision(params, model_dir if "train" in mode else "")
        params = params.replace(runtime=params.runtime.replace(enable_xla=decision.compiled))
    params = prepared(params)
    strategy = create_strategy(params.runtime)
    if is_chief(strategy):
        check_writable(model_dir, is_folder=True)
    if params.runtime.mixed_precision_dtype:
        performance.set_mixed_precision_policy(params.runtime.mixed_precision_dtype)
    # For the initial weights; data and dropout are functions of the seed by themselves.
    tf_keras.utils.set_random_seed(params.task.train_data.seed)
    with strategy.scope():
        task = SentenceEncoderTask(params.task, logging_dir=model_dir)
    check_run(params, task, mode, strategy.num_replicas_in_sync)
    on_jax = "train" in mode and params.runtime.distribution_strategy == PJRT
    print(f"{mode} on {describe_device() if on_jax else devices(strategy)}", file=sys.stderr)
    if decision and "train" in mode:
        print(decision, file=sys.stderr)
    for line in (*task.notes(), *schedule_notes(params.trainer)) if "train" in mode else ():
        print(line, file=sys.stderr)
    check_description(model_dir, task.encoder_config, task.vocabulary)
    _check_best_checkpoint(params, model_dir)
    is_writer = "train" in mode and is_chief(strategy)
    with contextlib.ExitStack() as held:
        if is_writer:
            held.enter_context(_sole_training(model_dir))
        checkpoint = _checkpoint(model_dir, mode)
        if is_writer:
            clean_up(model_dir, checkpoint)
        if checkpoint and "train" in mode:
            for line in task.resume_data(checkpoint, strategy.num_replicas_in_sync):
                print(line, file=sys.stderr)
        held.enter_context(report_damaged_shard(task.input_folders()))
        held.enter_context(report_write_errors(model_dir, lambda: _remedy(model_dir, is_writer)))
        with strategy.scope():
            trainer = _create_trainer(params, task, mode, model_dir, stop)
            # The optimizers create this variable lazily; the step function must not create it.
            _ = trainer.optimizer.iterations
        _check_checkpoint(checkpoint, trainer)
        if "train" in mode:
            if is_chief(strategy):
                if checkpoint:
                    _report_new_rate(params, model_dir, int(trainer.global_step.numpy()))
                describe_run(params, task, mode, model_dir)
            train(params, task, mode, model_dir, trainer, checkpoint, started)
        else:
            runner_of(params, task, mode, model_dir, trainer).run()
        if shown and is_chief(strategy):
            where = write_projector(model_dir, shown, task.vocabulary, projector_sentences)
            print(f"projector: tensorboard --logdir={model_dir} shows {where}", file=sys.stderr)


def _sole_training(model_dir: str) -> contextlib.AbstractContextManager:
    """Refuses a second training in the same folder; see `files.locked`.

    Of several workers only the chief writes to the folder, and only it holds the lock.
    """
    if "://" in model_dir:
        return contextlib.nullcontext()
    os.makedirs(model_dir, exist_ok=True)
    return locked(
        os.path.join(model_dir, "training.lock"),
        f"{model_dir}: another training is running in this folder; wait for it, stop it, or name "
        "another --model_dir",
    )


def _remedy(model_dir: str, is_writer: bool) -> str:
    """What to do about a full disk; the writer removes its incomplete checkpoint files first."""
    if is_writer:
        with contextlib.suppress(OSError, tf.errors.OpError, UserError):
            remove_leftovers(model_dir)
    return (
        f"{last_checkpoint(model_dir)}; free disk space, or lower trainer.max_to_keep, then run "
        "the same command to resume"
    )


def _check_best_checkpoint(params: SentenceEncoderExperimentConfig, model_dir: str) -> None:
    """Raises `UserError` if the folder of the best checkpoint cannot be continued."""
    subdir = params.trainer.best_checkpoint_export_subdir
    if subdir:
        folder = os.path.join(model_dir, subdir)
        checkpoints_of(folder)
        known = os.path.join(folder, "info.json")
        if os.path.exists(known):
            read_object(known, f"delete {folder}, and the best checkpoint is chosen anew")


def _report_new_rate(params: SentenceEncoderExperimentConfig, model_dir: str, step: int) -> None:
    """Prints a line if the run that is resumed at `step` had planned another learning rate."""
    path = Path(model_dir) / "params.yaml"
    before = SentenceEncoderTrainerConfig()
    # It is only a remark: a file of other code, or a damaged one, prevents no training.
    with contextlib.suppress(UserError, OSError):
        values = read_yaml(path)
        override(before, values.get("trainer") if isinstance(values, dict) else None, str(path))
        for line in resume_notes(before, params.trainer, step):
            print(line, file=sys.stderr)


def describe_run(
    params: SentenceEncoderExperimentConfig, task: SentenceEncoderTask, mode: str, model_dir: str
) -> None:
    """Describes `model_dir`, and the folder of the best checkpoint, as encoder directories."""
    config = task.encoder_config
    if (Path(model_dir) / CONFIG_NAME).exists() and checkpoints_of(model_dir):
        # Resumed: what it started from may be gone.
        known = read_start(model_dir)
        kept = (max(known.max_seq_length, task.trained_length), known.for_sentences)
    else:
        start = read_start(params.task.init_checkpoint) if params.task.init_checkpoint else None
        trained = chosen_objectives(params.task.objectives)
        kept = (length(start, task.trained_length), for_sentences(start, trained))
    describe(model_dir, config, task.vocabulary, *kept)
    if params.trainer.best_checkpoint_export_subdir and "eval" in mode:
        best = os.path.join(model_dir, params.trainer.best_checkpoint_export_subdir)
        describe(best, config, task.vocabulary, *kept)
    train_utils.serialize_config(params, model_dir)


def check_run(
    params: SentenceEncoderExperimentConfig,
    task: SentenceEncoderTask,
    mode: str,
    num_replicas: int,
) -> None:
    """Raises `UserError` for settings that would fail, or spoil the result, during the run.

    Args:
      params: the whole experiment.
      task: the task of `params`.
      mode: what the run does, e.g. `train_and_eval`.
      num_replicas: number of replicas that share each batch.
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
    """Raises `UserError` if the best checkpoint would be chosen by an unknown metric, or by a known
    metric in the wrong direction."""
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
            f"trainer.best_checkpoint_metric_comp is {direction!r}, but {better} values of "
            f"{chosen} are better; set it to {better}"
        )


def _checkpoint(model_dir: str, mode: str) -> str | None:
    """The checkpoint that a run starts from: in training the newest good one.

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
        trainer = params.trainer.replace(optimizer_config=params.trainer.optimization())
        return train_utils.create_trainer(
            params.replace(trainer=trainer),
            task,
            train="train" in mode,
            evaluate="eval" in mode,
            checkpoint_exporter=train_lib.maybe_create_best_ckpt_exporter(params, model_dir),
            trainer_cls=functools.partial(Trainer, stop=lambda: bool(stop)),
        )
    except UserError as error:
        # Gin, which calls the constructor, appends the place of the call to the message.
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
        # Only the chief knows; all workers must make the same decision.
        controller_cls=functools.partial(
            Controller,
            unevaluated=lambda step: trainer.anywhere(
                chief and step not in evaluated_steps(model_dir)
            ),
            before_saving=trainer.check_weights,
        ),
    )
    if not chief:
        # Non-chief workers save to a throw-away folder.
        folder = runner.checkpoint_manager.directory
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        if checkpoint:
            # The runner found no checkpoint in that folder: restore the chief's. All workers must
            # save at the same steps.
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
    started: float,
) -> None:
    """Trains, and evaluates as `mode` says; resumes from `checkpoint` if it is not None.

    `started` is the time by `time.monotonic` at which the run began.

    Raises:
      UserError: at a non-finite step; no checkpoint is written then.
      Stopped: if a stop was requested.
    """
    total, chief = params.trainer.train_steps, is_chief(trainer.strategy)
    with progress_reports(total, model_dir if chief else None, trainer, started) as reports:
        runner = runner_of(params, task, mode, model_dir, trainer, reports, checkpoint)
        trainer.on_piece = reports.on_piece if chief else None
        trainer.on_first_step = reports.on_first_step if chief else None
        if chief and trainer.global_step.numpy() >= total:
            print(f"{model_dir}: all {total} steps are trained already", file=sys.stderr)
        stopped = False
        try:
            try:
                # A stop may have been requested while everything was built.
                trainer.give_up({})
                runner.run()
            except GivenUp:
                stopped = True
                # Before the first step there is nothing to save.
                if trainer.global_step.numpy():
                    runner.controller.save_checkpoint()
        except StepFailed as error:
            raise failed_step(error.failure, trainer, task.training_data(), model_dir) from None
        except WeightsFailed as error:
            raise UserError(
                f"{error}; {last_checkpoint(model_dir)}; lower the learning rate, then run the "
                "same command to resume"
            ) from None
        except DeviceFailed as error:
            advice = "run the same command to resume"
            if "RESOURCE_EXHAUSTED" in str(error):
                advice = f"lower task.train_data.global_batch_size, then {advice}"
            raise UserError(f"{error}; {last_checkpoint(model_dir)}; {advice}") from None
    checkpoint = runner.checkpoint_manager.latest_checkpoint
    if chief:
        first = reports.seconds_to_first_step
        seed = params.task.train_data.seed
        write_summary(model_dir, trainer, reports.last, first, seed, checkpoint)
        write_curve(model_dir)
    if stopped:
        step = int(trainer.global_step.numpy())
        where = f"saved as {checkpoint}" if chief else "saved by the chief worker"
        how = "run the same command to resume"
        if not step:
            where, how = "nothing to save", "run the same command to start again"
        if step >= total:
            how = "the training is complete, run the same command to evaluate it"
        raise Stopped(f"stopped at step {step} of {total}, {where}; {how}")


def check_trainer(params: SentenceEncoderExperimentConfig) -> None:
    """Raises `UserError` for invalid settings of `trainer` in training."""
    trainer = params.trainer
    check_fields(trainer, "trainer", recursive=True)
    check_schedule(trainer)
    kind = trainer.optimizer_config.optimizer.type
    if isinstance(LEGACY_OPTIMIZERS_CLS.get(kind), str):
        raise UserError(
            f"trainer.optimizer_config.optimizer.type is {kind}, but Model Garden has only its "
            "name and no code for it; set it to adafactor_keras, adamw or lamb"
        )
    if trainer.summary_interval % trainer.steps_per_loop:
        raise UserError(
            f"trainer.summary_interval {trainer.summary_interval} is not a multiple of "
            f"trainer.steps_per_loop {trainer.steps_per_loop}; set it to "
            f"{-(-trainer.summary_interval // trainer.steps_per_loop) * trainer.steps_per_loop}"
        )
    # By Keras' name too, as `runtime.prepared` may not have been called.
    half = params.runtime.mixed_precision_dtype in ("float16", "mixed_float16")
    if half and trainer.optimizer_config.ema:
        raise UserError(
            "trainer.optimizer_config.ema: a moving average of weights cannot be combined with the "
            "loss scaling of runtime.mixed_precision_dtype float16; use bfloat16, or remove one of "
            "the two settings"
        )
