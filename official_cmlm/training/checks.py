"""Checks of a run before its first step: settings that would fail later, or spoil its result."""

import os

from official.modeling.optimization.optimizer_factory import LEGACY_OPTIMIZERS_CLS

from official_cmlm.checkpoints.integrity import checkpoints_of
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object
from official_cmlm.common.validation import check_fields
from official_cmlm.configs.schedule import check_schedule
from official_cmlm.objectives import objectives
from official_cmlm.objectives.base import HIGHER, LOWER
from official_cmlm.training.config import (
    SentenceEncoderExperimentConfig,
    SentenceEncoderTrainerConfig,
    get_objectives,
)
from official_cmlm.training.task import STS_METRIC, SentenceEncoderTask


def check_run(
    params: SentenceEncoderExperimentConfig,
    task: SentenceEncoderTask,
    mode: str,
    num_replicas: int,
) -> None:
    """Raises `UserError` for settings that would fail, or spoil the result, during the run."""
    if "train" in mode:
        check_trainer(params)
        task.check_padding()
    task.check_batch_sizes(num_replicas)
    if "eval" in mode:
        task.check_validation_data()
        check_best_metric(params)
    for word, is_training in (("train", True), ("eval", False)):
        if word in mode:
            task.check_inputs(is_training, num_replicas)


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
    # `mixed_float16` is Keras's name, which `runtime.resolve_runtime` would have replaced.
    half = params.runtime.mixed_precision_dtype in ("float16", "mixed_float16")
    if half and trainer.optimizer_config.ema:
        raise UserError(
            "trainer.optimizer_config.ema: a moving average of weights cannot be combined with the "
            "loss scaling of runtime.mixed_precision_dtype float16, which auto means on GPUs; set "
            "it to bfloat16 or float32, or remove the average"
        )


def checkpoint_notes(trainer: SentenceEncoderTrainerConfig) -> list[str]:
    """Returns a line if checkpoints are saved more rarely than `checkpoint_interval` says."""
    interval, loop = trainer.checkpoint_interval, trainer.steps_per_loop
    # A checkpoint is saved at the end of a loop only.
    saved = -(-interval // loop) * loop
    if saved == interval:
        return []
    when = f"every {saved} steps" if saved < trainer.train_steps else "after the last step"
    return [
        f"trainer.checkpoint_interval is {interval}, but checkpoints are saved {when}, at the end "
        f"of a loop of trainer.steps_per_loop {loop} steps; lower that to save more often"
    ]


def check_best_metric(params: SentenceEncoderExperimentConfig) -> None:
    """Raises `UserError` if the best checkpoint would be chosen by an unknown metric, or by a known
    metric in the wrong direction."""
    trainer = params.trainer
    if not trainer.best_checkpoint_export_subdir:
        return
    directions = {"validation_loss": LOWER} | {
        f"{name}/{metric}": better
        for name in get_objectives(params.task.objectives)
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


def check_best_checkpoint(params: SentenceEncoderExperimentConfig, model_dir: str) -> None:
    """Raises `UserError` if the folder of the best checkpoint cannot be continued."""
    subdir = params.trainer.best_checkpoint_export_subdir
    if subdir:
        folder = os.path.join(model_dir, subdir)
        checkpoints_of(folder)
        info = os.path.join(folder, "info.json")
        metric = params.trainer.best_checkpoint_eval_metric
        advice = f"delete {folder}, and the best checkpoint is chosen anew"
        if os.path.exists(info) and metric not in read_object(info, advice):
            raise UserError(
                f"{info}: has no {metric}, another metric chose this checkpoint; set "
                "trainer.best_checkpoint_eval_metric to that one, or move the folder away, and "
                "the best checkpoint is chosen anew"
            )
