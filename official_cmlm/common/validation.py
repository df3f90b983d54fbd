"""The one reader of settings: from nested values of YAML, JSON or flags into dataclasses.

A field's type declares the type of its values, and `Annotated` which of these values are valid:

>>> from typing import Annotated
>>> @dataclasses.dataclass
... class Config:
...     masking_rate: Annotated[float, between(0, 1, above_low=True)] = 0.15
>>> check_fields(Config(masking_rate=0.0), "task.objectives.mlm")
Traceback (most recent call last):
official_cmlm.common.errors.UserError: task.objectives.mlm.masking_rate must be in (0, 1], got 0.0
"""

import dataclasses
import difflib
import functools
import inspect
import math
import re
import reprlib
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from official_cmlm.common.errors import UserError, within


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`.

    Attributes:
      low, high: the bounds; infinite for none.
      above_low, below_high: whether the bound itself is excluded.
      reason: reason for the bound, for the message; may be empty.
      infinite: whether infinity is valid.
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
    """A choice of one of several words."""

    words: tuple[str, ...]

    def __contains__(self, value: str) -> bool:
        return value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"

    reason = ""


@dataclasses.dataclass(frozen=True)
class Matching:
    """Strings that a regular expression matches as a whole.

    Attributes:
      pattern: the expression.
      words: what it asks for, for messages.
    """

    pattern: str
    words: str

    def __contains__(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return self.words

    reason = ""


@dataclasses.dataclass(frozen=True)
class Flag:
    """Properties of a field's flag that the field's name and type do not tell.

    >>> from typing import Annotated
    >>> @dataclasses.dataclass
    ... class Reading:
    ...     max_line_bytes: Annotated[int, between(1, 2 << 30), Flag("max_line_mb", 1 << 20)]

    Attributes:
      name: the flag's name. Default: that of the field.
      unit: the field is the flag's value times this, a whole number and at least 1; None: both have
        the same value.
      repeats: whether the flag is repeated for each element of the field; else commas separate
        the elements.
      alias: another name of the flag; empty for none.
    """

    name: str = ""
    unit: int | None = None
    repeats: bool = False
    alias: str = ""


def at_least(low: float, reason: str = "") -> Range:
    """Returns the range of numbers from `low` on."""
    return Range(low, reason=reason)


def above(low: float, reason: str = "") -> Range:
    """Returns the range of numbers greater than `low`."""
    return Range(low, above_low=True, reason=reason)


def between(low: float, high: float, *, above_low: bool = False, below_high: bool = False) -> Range:
    """Returns the range from `low` to `high`; bounds can be excluded."""
    return Range(low, high, above_low, below_high)


_Limit = Range | OneOf | Matching
# NumPy's and TensorFlow's seeds have 32 bits.
SEED = between(0, 2**32 - 1)
# Whole numbers of TensorFlow have 64 bits.
_WHOLE = between(-(2**63), 2**63 - 1)
# Larger whole numbers cannot become floats.
_LARGEST_FLOAT = 1 << 1023
# Any finite number.
ANY = Range()
# Model Garden's classes declare no ranges; these are the ranges of their fields.
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
# Numbers of optimizers and learning rates are 0 or more, except these.
_OPTIMIZATION = "official.modeling.optimization."
_SIGNED = ("power", "offset", "step_offset", "beta_2_decay")
# Infinity is valid for these: nothing is clipped.
_CLIPPED = ("clipnorm", "clipvalue", "global_clipnorm", "gradient_clip_norm", "ratio_clip_norm")
# For these fields 0 is an error: it would divide by zero, or nothing would be learned.
_POSITIVE = ("decay_steps", "total_decay_steps", "epsilon", "epsilon1", "epsilon_1")


T = TypeVar("T")


def read_dataclass(kind: type[T], values: Any, where: str) -> T:
    """Builds a dataclass, and those inside it, from nested mappings and lists.

    Whole numbers become floats and lists become tuples where the fields say so. `None` is a value
    of optional fields only.

    Args:
      kind: the dataclass. Its fields may be numbers, strings, booleans, mappings, dataclasses,
        lists and tuples of these, and any of them or None; values of other fields are not checked.
      values: the mapping of its fields, as YAML or JSON gives it.
      where: source of the values for messages, for example a file's path.

    Raises:
      UserError: for an unknown key (with the nearest valid one), a missing field, or a value of
        another type or outside of its field's range; it begins with `where` and the field's path.
    """

    def build(kind: type, fields: dict[str, Any], path: str) -> Any:
        for name in _list_required_fields(kind):
            if name not in fields:
                raise UserError(f"{_below(path, name)} is missing")
        return kind(**fields)

    try:
        result = _read_fields(kind, values, "", build)
        check_fields(result, "", recursive=True)
    except ValueError as error:
        # The class itself may raise one.
        raise UserError(f"{where}: {error}") from None
    return result


def read_fields(kind: type, values: Any, where: str) -> dict[str, Any]:
    """Checks nested values as `read_dataclass` does, for dataclasses that exist already.

    Ranges are not checked: fields that are not among the values may decide on the ranges.

    Returns:
      The values, with whole numbers as floats where the fields say so. Mappings in lists get all of
      their fields, as they change no existing dataclass.
    """

    def keep(kind: type, fields: dict[str, Any], path: str) -> dict[str, Any]:
        return dataclasses.asdict(kind()) | fields if path.endswith("]") else fields

    with within(where):
        return _read_fields(kind, values, "", keep)


def _read_fields(
    kind: type, values: Any, path: str, make: Callable[[type, dict[str, Any], str], Any]
) -> Any:
    """Reads the fields of a dataclass; `make` gets its class, the fields and the path."""
    if not isinstance(values, dict):
        raise UserError(f"{path or 'top level'} must be a mapping, got {reprlib.repr(values)}")
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    fields = {}
    for key, value in values.items():
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.4)
            others = f"valid: {', '.join(names)}"
            hint = f"did you mean {_below(path, near[0])}?" if near else others
            # A class to which users add fields says how.
            hint += getattr(kind, "unknown_key_hint", "")
            raise UserError(f"unknown key {_below(path, key)}; {hint}")
        fields[key] = _read_value(hints[key], value, _below(path, key), make)
    if "type" in fields and any(base.__name__ == "OneOfConfig" for base in kind.__mro__):
        # Model Garden's union: `type` names the field that is in use.
        kinds = [name for name in names if name != "type"]
        if fields["type"] is not None and fields["type"] not in kinds:
            value = reprlib.repr(fields["type"])
            where = _below(path, "type")
            raise UserError(f"{where} must be one of {', '.join(kinds)}; got {value}")
    return make(kind, fields, path)


@functools.cache
def _list_required_fields(kind: type) -> list[str]:
    """Returns the names of the fields without a default."""
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    return [field.name for field in fields if field.default is field.default_factory is missing]


def _read_value(hint: Any, value: Any, path: str, make: Callable) -> Any:
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    # The most frequent case comes first: a manifest may list 100,000 files.
    if hint is type(value) and hint in (str, int):
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in arguments if option is not type(None)]
        if value is None or len(options) != 1:
            return value
        return _read_value(options[0], value, path, make)
    if dataclasses.is_dataclass(hint):
        # A dataclass without fields, such as Model Garden's base class, takes anything.
        return _read_fields(hint, value, path, make) if dataclasses.fields(hint) else value
    if origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{path} must be a list, got {reprlib.repr(value)}")
        element = (*arguments, Any)[0]
        items = [_read_value(element, v, f"{path}[{i}]", make) for i, v in enumerate(value)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(value, dict):
            raise UserError(f"{path} must be a mapping, got {reprlib.repr(value)}")
        element = (*arguments, Any, Any)[1]
        return {k: _read_value(element, v, f"{path}.{k}", make) for k, v in value.items()}
    if hint in (bool, int, str) and type(value) is not hint:
        # YAML reads some words as other values, e.g. Norwegian's code as false.
        quote = "; quote it" if hint is str and isinstance(value, (bool, int, float)) else ""
        raise UserError(f"{path} must be {hint.__name__}, got {reprlib.repr(value)}{quote}")
    if hint is not float:
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (type(value) is int and abs(value) >= _LARGEST_FLOAT):
        raise UserError(f"{path} must be a number, got {reprlib.repr(value)}")
    return float(value)


def _below(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


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
    kind = type(config)
    for field in dataclasses.fields(config):
        limit = limit_of(kind, field.name)
        _check(getattr(config, field.name), _below(where, field.name), limit, recursive)


def _check(value: Any, path: str, limit: _Limit, recursive: bool) -> None:
    if dataclasses.is_dataclass(value):
        if recursive:
            check_fields(value, path, recursive)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", limit, recursive)
    elif isinstance(value, dict):
        # Overrides may hold anything; the values of other mappings have a limit that is declared.
        for key, item in value.items() if limit is not ANY else ():
            _check(item, f"{path}.{key}", limit, recursive)
    elif fault := fault_of(value, limit):
        raise UserError(f"{path} {fault}, got {reprlib.repr(value)}")


def fault_of(value: Any, limit: _Limit) -> str:
    """Returns the fault of a number or string, e.g. `must be at least 1`; empty if it has none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and isinstance(value, int) and value not in _WHOLE:
        return "must fit into 64 bits"
    has_limit = is_number if isinstance(limit, Range) else isinstance(value, str)
    if not has_limit or value in limit:
        return ""
    return f"must be {limit}{f' ({limit.reason})' if limit.reason else ''}"


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def types_of(kind: type, name: str) -> list[type]:
    """Returns the types in a field's hint but for None, those of elements after that of the list.

    >>> from typing import Annotated
    >>> @dataclasses.dataclass
    ... class Config:
    ...     dim: Annotated[int, at_least(1)] | None = None
    ...     lengths: tuple[Annotated[int, at_least(3)], ...] = ()
    >>> types_of(Config, "dim"), types_of(Config, "lengths")
    ([<class 'int'>], [<class 'tuple'>, <class 'int'>])
    """
    parts = _list_parts(_hints(kind)[name])
    return [part for part in parts if isinstance(part, type) and part is not types.NoneType]


def default_of(field: dataclasses.Field) -> Any:
    """Returns the default of a field; `dataclasses.MISSING` if it has none."""
    is_made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if is_made else field.default


@functools.cache
def attributes_in_words(kind: type) -> dict[str, str]:
    """Returns field -> its sentence in the section "Attributes" of a dataclass's docstring.

    An entry may describe several fields, as in `min_score, max_score: least and largest cosine`.
    A sentence begins with a capital letter, unless its first word is a value that the field takes:
    one in backticks, or before a colon, as in `form: lines: every two files belong together`.
    Fields of a base class are described there.
    """
    sentences = {}
    for base in reversed(kind.__mro__):
        text = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")[2]
        for entry in re.split(r"^  (?! )", text.partition("\n\n")[0], flags=re.MULTILINE)[1:]:
            names, _, words = " ".join(entry.split()).partition(": ")
            first = words[:1] if re.match(r"\S+:", words) else words[:1].upper()
            sentence = f"{first}{words[1:].rstrip('.')}."
            sentences |= dict.fromkeys(names.split(", "), sentence)
    return sentences


@functools.cache
def limit_of(kind: type, name: str) -> _Limit:
    """Returns the limit that a field declares or that is known for it; else any finite number."""
    for part in _list_parts(_hints(kind)[name]):
        if isinstance(part, _Limit):
            return part
    for base in kind.__mro__:
        if limit := _MODEL_GARDEN.get(base.__name__, {}).get(name):
            return limit
    if kind.__module__.startswith(_OPTIMIZATION) and name not in _SIGNED:
        if name in _CLIPPED:
            return Range(0, infinite=True)
        return above(0) if name in _POSITIVE else at_least(0)
    return ANY


@functools.cache
def flag_of(kind: type, name: str) -> Flag:
    """Returns the flag of a field, with its name: as the field declares it, else a plain one."""
    parts = (part for part in _list_parts(_hints(kind)[name]) if isinstance(part, Flag))
    flag = next(parts, Flag())
    return dataclasses.replace(flag, name=flag.name or name)


def _list_parts(hint: Any) -> list[Any]:
    """Returns the types in a hint, outer ones first, and what `Annotated` adds to them."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return [*hint.__metadata__, *_list_parts(arguments[0])]
    parts = [] if origin in (typing.Union, types.UnionType) else [origin or hint]
    # Limits are those of a mapping itself: overrides may hold anything.
    for argument in () if origin is dict else arguments:
        parts += _list_parts(argument)
    return parts
