"""The learning rate of each step: a named schedule that adapts to the length of the training.

Model Garden computes the rates: a schedule is translated into Model Garden's own settings.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from official.modeling import optimization
from official.modeling.hyperparams import base_config

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, above, at_least, between

SCHEDULES = ("linear", "slanted_triangular", "constant", "cosine")
_SHARE = between(0, 1)
# Howard and Ruder 2018, §3.2: cut_frac, and 1 / ratio.
_CUT_SHARE, _LOWEST_SHARE = 0.1, 1 / 32


@dataclasses.dataclass
class ScheduleConfig(base_config.Config):
    """The rise and fall of the learning rate.

    It rises over the steps of the warm-up to `peak` and then falls, until the last step of the
    training, to `end_share` of it. So `trainer.train_steps` alone makes a training shorter or
    longer.

    Attributes:
      type: what follows the warm-up. `linear` (default): a line. `slanted_triangular`: a line; the
        warm-up is a line too, which begins at `end_share` of the peak (Howard and Ruder 2018, §3.2;
        DeCLUTR §4.1). `constant`: the peak until the end. `cosine`: half a wave of a cosine
        (Loshchilov and Hutter 2017, without restarts).
      peak: the highest learning rate, that of the first step after the warm-up. Must be given.
      warmup_share: share of the steps in which the rate rises from 0, linearly. Default: 0.1 for
        `slanted_triangular` (Howard and Ruder's cut fraction), otherwise 0. A fraction of a step is
        rounded up, as in Hugging Face's trainer; in `slanted_triangular` down, as in the paper.
      max_warmup_steps: upper limit on the steps of a warm-up by `warmup_share`; null (default): no
        limit. CMLM warms up over 10,000 steps in trainings of 1 million steps (§3) and of 2 million
        (§4.4).
      warmup_steps: steps of the warm-up, whatever the length of the training, e.g. the 10,000 of
        Devlin et al. 2019, appendix A.2; null (default): by `warmup_share`.
      decay_steps: the step, counted from the first of the training, at which the rate reaches its
        end; `warmup_share` is a share of these steps. null (default): `trainer.train_steps`.
        DeCLUTR §4.1, read literally, decays over 497,868 steps, many more than it trains.
      end_share: the rate at the end as a share of `peak`. Default: 1/32 for `slanted_triangular`
        (Howard and Ruder's ratio is 32), otherwise 0. `constant` has none.
    """

    type: Annotated[str, OneOf(SCHEDULES)] = "linear"
    peak: Annotated[float, above(0)] | None = None
    warmup_share: Annotated[float, _SHARE] | None = None
    max_warmup_steps: Annotated[int, at_least(1)] | None = None
    warmup_steps: Annotated[int, at_least(0)] | None = None
    decay_steps: Annotated[int, at_least(1)] | None = None
    end_share: Annotated[float, _SHARE] | None = None

    def check(self, where: str) -> None:
        """Raises `UserError` for a missing peak, or fields that contradict each other."""
        if self.peak is None:
            raise UserError(f"{where}.peak is not given; name the highest learning rate")
        if self.type == "constant" and (self.decay_steps or self.end_share is not None):
            name = "decay_steps" if self.decay_steps else "end_share"
            raise UserError(
                f"{where}.{name} is given, but {where}.type is constant, which does not decay; "
                f"take another type, or set {name} to null"
            )
        if self.decay_steps and (self.warmup_steps or 0) >= self.decay_steps:
            raise UserError(
                f"{where}.warmup_steps is {self.warmup_steps}, but {where}.decay_steps, which "
                f"counts them too, is {self.decay_steps}; lower the one or raise the other"
            )

    def length(self, train_steps: int) -> int:
        """Returns the number of steps of which `warmup_share` is a share."""
        return self.decay_steps or train_steps

    def warmup(self, train_steps: int) -> int:
        """Returns the number of steps of the warm-up in a training of `train_steps`."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        slanted = self.type == "slanted_triangular"
        share = self.warmup_share
        if share is None:
            share = _CUT_SHARE if slanted else 0.0
        # As floats, 0.1 · 30 is a little more than 3, and 0.29 · 100 a little less than 29.
        exact = round(share * self.length(train_steps), 6)
        steps = math.floor(exact) if slanted else math.ceil(exact)
        return min(steps, self.max_warmup_steps or steps)

    def end(self) -> float:
        """Returns the learning rate at the end."""
        share = self.end_share
        if share is None:
            share = {"slanted_triangular": _LOWEST_SHARE, "constant": 1.0}.get(self.type, 0.0)
        return share * self.peak

    def model_garden(self, train_steps: int) -> dict[str, Any]:
        """Returns Model Garden's `learning_rate` and `warmup` that compute this schedule."""
        warmup = self.warmup(train_steps)
        # Decay begins when the warm-up is over, so that the peak is the rate that was named.
        falling = {"decay_steps": max(1, self.length(train_steps) - warmup), "offset": warmup}
        if self.type == "constant":
            rate = {"type": "constant", "constant": {"learning_rate": self.peak}}
        elif self.type == "cosine":
            cosine = {"initial_learning_rate": self.peak, "alpha": self.end() / self.peak}
            rate = {"type": "cosine", "cosine": {**cosine, **falling}}
        else:
            line = {"initial_learning_rate": self.peak, "end_learning_rate": self.end()}
            rate = {"type": "polynomial", "polynomial": {**line, **falling, "power": 1.0}}
        rising: dict[str, Any] = {"type": None}
        if warmup and self.type == "slanted_triangular":
            begin = {"warmup_steps": warmup, "warmup_learning_rate": self.end()}
            rising = {"type": "linear", "linear": begin}
        elif warmup:
            # Unlike Model Garden's linear warm-up, this one does not waste the first step on a rate
            # of 0.
            rising = {"type": "polynomial", "polynomial": {"warmup_steps": warmup, "power": 1.0}}
        return {"learning_rate": rate, "warmup": rising}

    def in_words(self, train_steps: int) -> str:
        """Describes the schedule of a training in one line."""
        warmup, peak, end = self.warmup(train_steps), f"{self.peak:g}", f"{self.end():.3g}"
        rise = (
            f"over {warmup:,} of {train_steps:,} steps up to {peak}" if warmup else f"from {peak}"
        )
        if self.type == "constant":
            return f"learning rate: constant, {f'{rise}, then kept' if warmup else peak}"
        return f"learning rate: {self.type}, {rise}, down to {end} at {self.length(train_steps):,}"


def check_schedule(trainer: Any) -> None:
    """Raises `UserError` unless either the schedule or the optimizer sets the learning rate."""
    own, where = trainer.optimizer_config, "trainer.optimizer_config"
    if trainer.schedule is None:
        if own.learning_rate.type is None:
            raise UserError(
                f"there is no learning rate: trainer.schedule and {where}.learning_rate.type are "
                "empty; set trainer.schedule={peak: 1e-4}"
            )
        return
    trainer.schedule.check("trainer.schedule")
    empty = optimization.OptimizationConfig()
    for name, instead in (("learning_rate", "peak"), ("warmup", "warmup_steps")):
        # `as_dict` cannot be used: it leaves out the settings that `type` does not name.
        if getattr(own, name) != getattr(empty, name):
            raise UserError(
                f"{where}.{name} is given beside trainer.schedule; set trainer.schedule.{instead} "
                f"instead, or trainer.schedule to null and all of {where}.learning_rate and warmup"
            )


def with_schedule(trainer: Any) -> optimization.OptimizationConfig:
    """Returns optimizer, learning rate and warm-up as Model Garden's fields, the schedule included.

    Raises:
      UserError: as `check_schedule`.
    """
    check_schedule(trainer)
    config = trainer.optimizer_config.replace()
    if trainer.schedule is not None:
        config.override(trainer.schedule.model_garden(trainer.train_steps), is_strict=True)
    return config


def learning_rates(trainer: Any, steps: Iterable[int]) -> np.ndarray:
    """Returns the learning rates of these steps, counted from 0, float64.

    Raises:
      UserError: as `check_schedule`.
    """
    rate = optimization.OptimizerFactory(with_schedule(trainer)).build_learning_rate()
    return np.array([float(rate(step)) if callable(rate) else rate for step in steps], np.float64)


def schedule_notes(trainer: Any) -> list[str]:
    """Describes the learning rate, and settings that are probably mistakes, a line each.

    Model Garden's own settings, in place of a schedule, are checked as well.

    Raises:
      UserError: as `check_schedule`.
    """
    steps, schedule, config = trainer.train_steps, trainer.schedule, with_schedule(trainer)
    if not steps:
        return []
    lines = []
    fields = "trainer.optimizer_config" if schedule is None else "trainer.schedule"
    rising, falling = config.warmup.get(), config.learning_rate.get()
    warmup = rising.warmup_steps if rising is not None else 0
    last = learning_rates(trainer, [steps - 1])[0]
    if schedule is not None and warmup < steps:
        lines.append(schedule.in_words(steps))
    if warmup >= steps:
        lines.append(
            f"learning rate: the warm-up of {warmup:,} steps is not over when the training ends "
            f"after {steps:,}, so the rate never reaches its peak and ends at {last:.2g}; lower "
            f"warmup_steps or warmup_share of {fields}"
        )
    # The other schedules of Model Garden do not end at a step.
    elif config.learning_rate.type in ("polynomial", "cosine"):
        end = falling.offset + falling.decay_steps
        lowest = learning_rates(trainer, [end])[0]
        if end > steps:
            lines.append(
                f"learning rate: it decays to {lowest:.2g} until step {end:,}, but the training "
                f"ends after {steps:,}, at {last:.2g}; lower decay_steps of {fields}"
            )
        elif end < steps and not lowest:
            lines.append(
                f"learning rate: it is 0 from step {end:,} on, so the last {steps - end:,} steps "
                f"train nothing; raise decay_steps of {fields}"
            )
    return lines


def resume_notes(before: Any, now: Any, step: int) -> list[str]:
    """Returns a line if a resumed training has another learning rate than was planned.

    Raises:
      UserError: as `check_schedule`.
    """
    old, new = learning_rates(before, [step])[0], learning_rates(now, [step])[0]
    if step >= now.train_steps or math.isclose(old, new, rel_tol=1e-3):
        return []
    steps = (before.train_steps, now.train_steps)
    why = (
        "" if steps[0] == steps[1] else f" (trainer.train_steps was {steps[0]:,}, is {steps[1]:,})"
    )
    return [f"learning rate: {new:.2g} from step {step:,} on, {old:.2g} was planned there{why}"]
