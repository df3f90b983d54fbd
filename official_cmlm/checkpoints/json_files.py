"""Reads JSON files of public checkpoints; every error names the file and the key."""

from pathlib import Path
from typing import Any

from official_cmlm import files
from official_cmlm.errors import UserError

_ADVICE = "fetch it again"
_NAMES = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}


def read_json(path: Path, required: bool = False) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
      path: the file.
      required: raise if it is missing instead of returning an empty object.

    Raises:
      UserError: if the file does not hold a JSON object.
    """
    if not path.exists() and not required:
        return {}
    return files.read_object(path, _ADVICE)


def read_any_json(path: Path) -> Any:
    """Reads any JSON value.

    Raises:
      UserError: if the file is missing or not valid JSON.
    """
    return files.read_json(path, _ADVICE)


def typed(path: Path, values: dict[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """Returns `values[key]` after a check of its type; `default` if it is absent or null.

    Args:
      path: the file, for messages.
      values: a JSON object.
      key: the key to read.
      kind: `int`, `float` (integers are accepted), `bool`, `str`, `dict` or `list`.
      default: the value if the key is absent or null.

    Raises:
      UserError: if the value is of another type.
    """
    value = values.get(key)
    if value is None:
        return default
    matches = isinstance(value, (int, float) if kind is float else kind)
    # A larger whole number cannot be a float.
    matches = matches and not (kind is float and abs(value) >= 1 << 1023)
    if not matches or (isinstance(value, bool) and kind is not bool):
        expected = _NAMES.get(kind, f"a number ({kind.__name__})")
        raise UserError(f"{path}: {key} must be {expected}, got {value!r:.60}; fetch it again")
    return float(value) if kind is float else value
