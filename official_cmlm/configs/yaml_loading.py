"""Strict overrides: an unknown key or a value of the wrong type is an error, never ignored."""

import dataclasses
import difflib
import re
import reprlib
import types
import typing
from pathlib import Path
from typing import Any

import yaml
from official.modeling.hyperparams import base_config, oneof

from official_cmlm.errors import UserError
from official_cmlm.files import read_text

_MOST = 1 << 1023


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads `1e-3` as a number (YAML 1.1 wants `1.0e-3`)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse_yaml(text: str, where: str) -> Any:
    """Parses YAML with the safe loader.

    Raises:
      UserError: with `where` and the line of the mistake.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except RecursionError:
        raise UserError(f"{where}: not valid YAML: nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark else ""
        raise UserError(
            f"{where}{line}: not valid YAML: {getattr(error, 'problem', None) or error}"
        ) from None


def read_yaml(path: Path) -> Any:
    """Parses a YAML file; raises as `parse_yaml` and `files.read_text` do."""
    return parse_yaml(read_text(path), str(path))


def parse_override(text: str) -> dict[str, Any]:
    """Reads `--params_override`: a YAML mapping, or `a.b=1,c.d=[2,3]` as Model Garden does.

    >>> parse_override("task.train_data.seed=3,trainer.train_steps=10")
    {'task': {'train_data': {'seed': 3}}, 'trainer': {'train_steps': 10}}
    """
    # A mapping has "key:" or braces; the short form has "a.b=value" before any colon.
    if not re.match(r"^\s*[\w.]+\s*=", text):
        value = parse_yaml(text, "--params_override")
        if not isinstance(value, dict):
            raise UserError(
                f"--params_override: expected a.b=value or a YAML mapping, got {text!r}"
            )
        return value
    result: dict[str, Any] = {}
    for part in re.split(r",(?=\s*[\w.]+\s*=)", text):
        key, _, value = part.partition("=")
        node = result
        *parents, leaf = key.strip().split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise UserError(f"--params_override: {parent} is given a value and also {key}")
        node[leaf] = parse_yaml(value, f"--params_override {key.strip()}")
    return result


def override(config: base_config.Config, values: dict[str, Any], where: str) -> None:
    """Overrides `config` in place after checking every key and type.

    Args:
      config: a Model Garden config of typed dataclasses.
      values: nested mapping of the fields to change.
      where: source of the values for messages, e.g. the YAML file's path.

    Raises:
      UserError: for an unknown key (with the nearest valid one) or a value of another type.
    """
    check(type(config), values, where)
    config.override(_with_floats(type(config), values), is_strict=True)


def _with_floats(config_class: type, values: dict[str, Any]) -> dict[str, Any]:
    """The checked `values` with whole numbers as floats where floats belong.

    Model Garden's classes refuse `initial_learning_rate: 1`. The elements of lists get all of their
    fields.
    """
    hints = typing.get_type_hints(config_class)
    return {key: _with_float(hints[key], value) for key, value in values.items()}


def _with_float(hint: Any, value: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        # Of an optional field; where there are several types, the value has one of them.
        options = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return _with_float(options[0], value) if len(options) == 1 else value
    if isinstance(value, dict) and dataclasses.is_dataclass(hint):
        return value if hint is base_config.Config else _with_floats(hint, value)
    if isinstance(value, (list, tuple)) and typing.get_origin(hint) in (list, tuple):
        element = (typing.get_args(hint) or (Any,))[0]
        items = [_with_float(element, item) for item in value]
        if isinstance(element, type) and issubclass(element, base_config.Config):
            # Model Garden's classes would keep the fields of an earlier list of the same length.
            items = [element().as_dict() | item for item in items]
        return items
    return float(value) if hint is float and type(value) is int else value


def _brief(value: Any) -> str:
    """The value for messages. Aliases in YAML can make a short text a value of any size."""
    return reprlib.repr(value)


def check(config_class: type, values: Any, where: str, prefix: str = "") -> None:
    """Checks nested `values` against the dataclass `config_class`; see `override`."""
    if not isinstance(values, dict):
        raise UserError(
            f"{where}: {prefix.rstrip('.') or 'top level'} must be a mapping, got {values!r}"
        )
    hints = typing.get_type_hints(config_class)
    names = [field.name for field in dataclasses.fields(config_class)]
    for key, value in values.items():
        path = f"{prefix}{key}"
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.4)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"valid: {', '.join(names)}"
            raise UserError(f"{where}: unknown key {path}; {hint}")
        _check_value(hints[key], value, where, path)
        if key == "type" and issubclass(config_class, oneof.OneOfConfig) and value is not None:
            kinds = [name for name in names if name != "type"]
            if value not in kinds:
                raise UserError(
                    f"{where}: {path} must be one of {', '.join(kinds)}; got {_brief(value)}"
                )


def _check_value(hint: Any, value: Any, where: str, path: str) -> None:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if value is None or len(options) != 1:
            return
        hint = options[0]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if hint is not base_config.Config:
            check(hint, value, where, path + ".")
        return
    if typing.get_origin(hint) in (list, tuple):
        element = (typing.get_args(hint) or (Any,))[0]
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{where}: {path} must be a list, got {_brief(value)}")
        for index, item in enumerate(value):
            _check_value(element, item, where, f"{path}[{index}]")
        return
    if hint in (bool, int, str) and type(value) is not hint:
        raise UserError(f"{where}: {path} must be {hint.__name__}, got {_brief(value)}")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # A larger whole number has no float.
    if hint is float and not (is_number and (type(value) is float or abs(value) < _MOST)):
        raise UserError(f"{where}: {path} must be a number, got {_brief(value)}")
