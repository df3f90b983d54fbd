"""One run of training or evaluation with Model Garden's trainer."""

import contextlib
import functools
import os
import sys

import tensorflow as tf
import tf_keras
from official.core import train_lib, train_utils
from official.modeling import performance

from experiments import registry
from experiments.full_disk import naming_full_disk
from experiments.interruption import StopRequest, watching
from experiments.runtime import create_strategy, devices, is_chief, prepared
from experiments.train_loop import runner_of, train
from experiments.trainer import Trainer
from experiments.trainer_checks import check_trainer
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
from official_cmlm.errors import UserError
from official_cmlm.objectives import objectives
from official_cmlm.records.corruption import naming_damage
from official_cmlm.tasks.config import (
    PJRT,
    SentenceEncoderExperimentConfig,
    chosen_objectives,
)
from official_cmlm.tasks.sentence_encoder import STS_METRIC, SentenceEncoderTask
from official_cmlm.training.jax_loop import describe_device


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
    registry.check_start(params.task.init_checkpoint)
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
    with naming_damage(task.input_folders()), naming_full_disk(model_dir):
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


# Metrics whose name holds one of these are better the higher they are; all others are losses.
_HIGHER = (STS_METRIC, "recall", "accuracy")


def check_best_metric(params: SentenceEncoderExperimentConfig) -> None:
    """Raises `UserError` if the best checkpoint would be chosen by what is not measured, or be the
    worst one, because the metric is compared the wrong way round."""
    trainer = params.trainer
    if not trainer.best_checkpoint_export_subdir:
        return
    metrics = ["validation_loss"] + [
        f"{name}/{metric}"
        for name in chosen_objectives(params.task.objectives)
        for metric in objectives()[name].metric_names
    ]
    if params.task.sts_file:
        metrics.append(STS_METRIC)
    chosen, direction = trainer.best_checkpoint_eval_metric, trainer.best_checkpoint_metric_comp
    if chosen not in metrics:
        raise UserError(
            f"trainer.best_checkpoint_eval_metric is {chosen!r}; validation measures "
            f"{', '.join(metrics)} ({STS_METRIC} with task.sts_file)"
        )
    better = "higher" if any(word in chosen for word in _HIGHER) else "lower"
    if direction != better:
        raise UserError(
            f"trainer.best_checkpoint_metric_comp is {direction!r}, but of {chosen} the best value "
            f"is the {'highest' if better == 'higher' else 'lowest'}; set it to {better}"
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
