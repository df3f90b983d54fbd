"""What the trainer's settings must be for a training to begin, and to end well."""

from official_cmlm.errors import UserError
from official_cmlm.tasks.config import SentenceEncoderExperimentConfig


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
