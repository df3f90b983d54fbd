"""The training itself: to its end, or to a stop, with a checkpoint and a summary either way."""

import atexit
import functools
import shutil

from official.core import train_lib

from experiments.controller import Controller
from experiments.failed_step import failed_step
from experiments.full_disk import last_checkpoint
from experiments.runtime import is_chief
from experiments.train_summary import write_summary
from experiments.trainer import GivenUp, StepFailed, Trainer
from experiments.training_progress import TrainingProgress, evaluated_steps, progress_reports
from official_cmlm.errors import Stopped, UserError
from official_cmlm.tasks.config import SentenceEncoderExperimentConfig
from official_cmlm.tasks.sentence_encoder import SentenceEncoderTask
from official_cmlm.training.jax_loop import DeviceFailed


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
