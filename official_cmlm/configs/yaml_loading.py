"""Strict overrides: an unknown key or a value of the wrong type is an error, never ignored."""

import re
from pathlib import Path
from typing import Any

import yaml
from official.modeling.hyperparams import base_config

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_text
from official_cmlm.common.validation import read_fields

# The loader reads some 100,000 characters a second.
_MOST_CHARACTERS = 1 << 16
# Aliases of lists of aliases would be a million values in a hundred characters.
_MOST_ALIASES = 16


class _Loader(yaml.SafeLoader):
    """SafeLoader that also reads `1e-3` as a number (YAML 1.1 wants `1.0e-3`)."""

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Reads a value, or refuses one alias too many."""
        self.aliases += self.check_event(yaml.AliasEvent)
        if self.aliases > _MOST_ALIASES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {_MOST_ALIASES} aliases",
                problem_mark=self.peek_event().start_mark,
            )
        return super().compose_node(parent, index)


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
    if len(text) > _MOST_CHARACTERS:
        raise UserError(
            f"{where}: longer than {_MOST_CHARACTERS} characters; is it the right file?"
        )
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
    config.override(read_fields(type(config), values, where), is_strict=True)
