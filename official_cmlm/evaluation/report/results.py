"""Reads `results.json` of other encoders, for reports that compare."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object
from official_cmlm.evaluation.report.main_scores import MAX_ENCODERS

# Field that reports read -> its type.
_RESULTS = {"encoder": dict, "data_dir": str, "started": str, "seconds": float, "suites": dict}
_ENCODER = {"name": str, "path": str, "kind": str, "fingerprint": str, "dimension": object}
_SUITE = {"scores": list, "notes": list, "failures": list, "options": dict}
_SUITE |= {"protocol": str, "seconds": float, "seeds": list}
_SCORE = {"task": str, "metric": str, "value": float, "count": int}
_MISSING = {"task": str, "what": str, "hint": str}
# Type of the items of a suite's lists.
_ITEMS = {"notes": str, "failures": str, "seeds": int}


def read_results(path: Path) -> dict[str, Any]:
    """Reads a `results.json`, and adds its `folder`.

    Raises:
      UserError: if it is missing or has another format.
    """
    advice = "name a results.json of experiments.evaluate"
    results = read_object(path, advice)
    try:
        _check(results, _RESULTS, "top level")
        _check(results["encoder"], _ENCODER, "encoder")
        for name, suite in results["suites"].items():
            _check(suite, _SUITE, name)
            for field, kind in _ITEMS.items():
                if not all(isinstance(item, kind) for item in suite[field]):
                    raise ValueError(f"{name}: an item of {field} is not of the right type")
            for missing in _read_list(suite, "missing", name):
                _check(missing, _MISSING, f"missing data of {name}")
            for score in suite["scores"]:
                _check_score(score, f"a score of {name}")
    except ValueError as error:
        raise UserError(f"{path}: not a results.json ({error!s:.80}); {advice}") from None
    return results | {"folder": str(path.parent)}


def _check(values: Any, kinds: dict[str, type], where: str) -> None:
    """Raises `ValueError` unless all fields are there, of their types and finite."""
    if not isinstance(values, dict):
        raise ValueError(f"{where}: not a mapping")
    for name, kind in kinds.items():
        value = values.get(name)
        if name not in values or not isinstance(value, (float, int) if kind is float else kind):
            raise ValueError(f"{where}: no {name}, or not of the right type")
        if kind is float and not math.isfinite(value):
            raise ValueError(f"{where}: {name} is not a number")


def _check_score(score: Any, where: str) -> None:
    """Raises `ValueError` unless a score has its fields, and those that it may lack are right."""
    _check(score, _SCORE, where)
    if score.get("deviation") is not None:
        _check(score, {"deviation": float}, where)
    interval = _read_list(score, "interval", where)
    if len(interval) not in (0, 2):
        raise ValueError(f"{where}: interval does not have two ends")
    for number in (*interval, *_read_list(score, "by_seed", where)):
        if not isinstance(number, float | int) or not math.isfinite(number):
            raise ValueError(f"{where}: interval and by_seed need numbers")


def _read_list(values: dict[str, Any], name: str, where: str) -> list[Any]:
    """Returns a list that may be missing or null; raises `ValueError` for another type."""
    value = values.get(name)
    if not isinstance(value, list | None):
        raise ValueError(f"{where}: {name} is not a list")
    return value or []


def read_compared(values: Sequence[str]) -> list[dict[str, Any]]:
    """Reads the results that `--compare` names: paths, each perhaps several between commas.

    Raises:
      UserError: for a file that cannot be read, or more than fit into a report.
    """
    paths = []
    for value in filter(str.strip, values):
        # A comma may also be part of a name.
        paths += [value] if Path(value).expanduser().exists() else value.split(",")
    paths = [path.strip() for path in paths if path.strip()]
    if len(paths) >= MAX_ENCODERS:
        raise UserError(
            f"--compare: {len(paths)} results; a report shows {MAX_ENCODERS} encoders, so name "
            f"{MAX_ENCODERS - 1} at most"
        )
    return [read_results(Path(path).expanduser()) for path in paths]
