"""The values that a setting may have: declared at its field, checked here.

>>> @dataclasses.dataclass
... class Config:
...     masking_rate: Annotated[float, between(0, 1, above_low=True)] = 0.15
>>> check_fields(Config(masking_rate=0.0), "task.objectives.mlm")
Traceback (most recent call last):
official_cmlm.errors.UserError: task.objectives.mlm.masking_rate must be in (0, 1], got 0.0
"""

import dataclasses
import functools
import math
import reprlib
import types
import typing
from typing import Any

from official_cmlm.errors import UserError


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`.

    Attributes:
      low, high: the bounds; infinite ones are none.
      above_low, below_high: whether the bound itself is excluded.
      reason: why, for the message; empty: none.
      infinite: whether infinity is a value, as of bounds that bound nothing.
    """

    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    below_high: bool = False
    reason: str = ""
    infinite: bool = False

    def __contains__(self, value: float) -> bool:
        low = value > self.low if self.above_low else value >= self.low
        high = value < self.high if self.below_high else value <= self.high
        return low and high and (math.isfinite(value) or (self.infinite and value > 0))

    def __str__(self) -> str:
        if math.isinf(self.high):
            bound = "above" if self.above_low else "at least"
            return f"{bound} {self.low}" if math.isfinite(self.low) else "a finite number"
        if math.isinf(self.low):
            return f"{'below' if self.below_high else 'at most'} {self.high}"
        ends = "(" if self.above_low else "[", ")" if self.below_high else "]"
        return f"in {ends[0]}{self.low}, {self.high}{ends[1]}"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of some words."""

    words: tuple[str, ...]

    def __contains__(self, value: str) -> bool:
        return value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"

    reason = ""


def at_least(low: float, reason: str = "") -> Range:
    """Numbers from `low` on."""
    return Range(low, reason=reason)


def above(low: float, reason: str = "") -> Range:
    """Numbers greater than `low`."""
    return Range(low, above_low=True, reason=reason)


def between(low: float, high: float, *, above_low: bool = False, below_high: bool = False) -> Range:
    """Numbers from `low` to `high`; bounds can be excluded."""
    return Range(low, high, above_low, below_high)


# What NumPy's and TensorFlow's seeds can be.
SEED = between(0, 2**32 - 1)
# Whole numbers of TensorFlow have 64 bits.
_WHOLE = between(-(2**63), 2**63 - 1)
_ANY = Range()
# Fields of Model Garden's classes, which declare no ranges.
_MODEL_GARDEN: dict[str, dict[str, Range]] = {
    "TrainerConfig": {
        "steps_per_loop": at_least(1),
        "summary_interval": at_least(1),
        "checkpoint_interval": at_least(1, "otherwise no checkpoint is saved, not even at a stop"),
        "max_to_keep": at_least(1, "a training could not resume"),
        "continuous_eval_timeout": at_least(0),
        "train_steps": between(0, 2**53),
        "validation_steps": at_least(-1, "-1: all"),
        "validation_interval": at_least(0),
        "loss_upper_bound": Range(0, above_low=True, infinite=True),
        "recovery_begin_steps": at_least(0),
    },
    "RuntimeConfig": {
        # Strategies list their devices, so these are bounded.
        "num_gpus": between(-1, 4096),
        "per_gpu_thread_count": between(0, 1024),
        "dataset_num_private_threads": between(0, 1024),
        "num_packs": between(1, 4096),
        "num_cores_per_replica": between(1, 4096),
        "task_index": at_least(-1),
        "default_shard_dim": at_least(-1),
    },
}
# Numbers of optimizers and learning rates are 0 or more, but for these.
_OPTIMIZATION = "official.modeling.optimization."
_SIGNED = ("power", "offset", "step_offset", "beta_2_decay")
# Where infinity means that nothing is clipped.
_CLIPPED = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_clip_norm", "ratio_clip_norm")
# Of these 0 has no meaning: it divides by zero, or nothing is learned at all.
_POSITIVE = ("decay_steps", "total_decay_steps", "epsilon", "epsilon1", "epsilon_1")


def check_fields(config: Any, where: str, recursive: bool = False) -> None:
    """Checks the values of a config's fields against what the fields declare.

    A field declares by its type, e.g. `Annotated[float, above(0)]` or
    `Annotated[str, OneOf(POOLINGS)]`. All numbers must be finite, whole numbers must fit into 64
    bits, whether they declare anything or not.

    Args:
      config: a dataclass.
      where: its path in the experiment, for the message; empty: the experiment itself.
      recursive: also check the configs inside it.

    Raises:
      UserError: names the first field that is out of range, the range and the value.
    """
    hints = _hints(type(config))
    for field in dataclasses.fields(config):
        path = f"{where}.{field.name}" if where else field.name
        _check(
            getattr(config, field.name), path, _limit(type(config), field.name, hints), recursive
        )


def _check(value: Any, path: str, limit: Range | OneOf, recursive: bool) -> None:
    if dataclasses.is_dataclass(value):
        if recursive:
            check_fields(value, path, recursive)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", limit, recursive)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and value not in _WHOLE:
            raise UserError(f"{path} must fit into 64 bits, got {reprlib.repr(value)}")
        if isinstance(limit, Range):
            _refuse_outside(value, path, limit)
    elif isinstance(value, str) and isinstance(limit, OneOf):
        _refuse_outside(value, path, limit)


def _refuse_outside(value: Any, path: str, limit: Range | OneOf) -> None:
    if value not in limit:
        reason = f" ({limit.reason})" if limit.reason else ""
        raise UserError(f"{path} must be {limit}{reason}, got {reprlib.repr(value)}")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _limit(kind: type, name: str, hints: dict[str, Any]) -> Range | OneOf:
    """What a field declares, or what is known of it; any finite number otherwise."""
    for hint in (hints.get(name), *_options(hints.get(name))):
        for note in getattr(hint, "__metadata__", ()):
            if isinstance(note, (Range, OneOf)):
                return note
    known = next(
        (
            _MODEL_GARDEN[base.__name__].get(name)
            for base in kind.__mro__
            if base.__name__ in _MODEL_GARDEN
        ),
        None,
    )
    if known is None and kind.__module__.startswith(_OPTIMIZATION) and name not in _SIGNED:
        if name in _CLIPPED:
            return Range(0, infinite=True)
        return above(0) if name in _POSITIVE else at_least(0)
    return known or _ANY


def _options(hint: Any) -> tuple:
    """The types of a union or the elements of a list: `Annotated[int, …] | None` has one."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType, list)
    return typing.get_args(hint) if union else ()
