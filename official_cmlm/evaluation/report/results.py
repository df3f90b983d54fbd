"""Reads `results.json` of other encoders, for reports that compare."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object
from official_cmlm.evaluation.report.main_scores import MAX_ENCODERS

# The fields that reports read: a mapping has a form for each key, or one for all (`*`), a list one
# for all items, a tuple one for each. A field whose key ends with `?` may be missing or null.
_SCORE = {"task": str, "metric": str, "value": float, "count": int}
_SCORE |= {"deviation?": float, "interval?": (float, float), "by_seed?": [float]}
_SUITE = {"scores": [_SCORE], "notes": [str], "failures": [str], "options": dict}
_SUITE |= {"protocol": str, "seconds": float, "seeds": [int]}
_SUITE |= {"missing?": [{"task": str, "what": str, "hint": str}]}
_RESULTS = {
    "encoder": {"name": str, "path": str, "kind": str, "fingerprint": str, "dimension": object},
    "data_dir": str,
    "started": str,
    "seconds": float,
    "suites": {"*": _SUITE},
}


def read_results(path: Path) -> dict[str, Any]:
    """Reads a `results.json`, and adds its `folder`.

    Raises:
      UserError: if it is missing or has another format.
    """
    advice = "name the encoder, the folder or the results.json of a cmlm evaluate"
    results = read_object(path, advice)
    try:
        _check(results, _RESULTS, "top level")
    except ValueError as error:
        raise UserError(f"{path}: not a results.json ({error!s:.80}); {advice}") from None
    return results | {"folder": str(path.parent)}


def _check(value: Any, form: Any, where: str) -> None:
    """Raises `ValueError` unless a value has the form, and its numbers are finite."""
    kind = form if isinstance(form, type) else list if isinstance(form, tuple) else type(form)
    if not isinstance(value, float | int if kind is float else kind):
        raise ValueError(f"{where}: not of the right type")
    if kind is float and not math.isfinite(value):
        raise ValueError(f"{where}: not a finite number")
    if isinstance(form, tuple) and len(value) != len(form):
        raise ValueError(f"{where}: not {len(form)} items")
    if isinstance(form, list | tuple):
        for item in value:
            _check(item, form[0], where)
    elif isinstance(form, dict):
        forms = dict.fromkeys(value, form["*"]) if "*" in form else form
        for key, inner in forms.items():
            name = key.removesuffix("?")
            if name == key and name not in value:
                raise ValueError(f"{where}: no {name}")
            if name == key or value.get(name) is not None:
                _check(value[name], inner, f"{where}, {name}")


def read_compared(values: Sequence[str]) -> list[dict[str, Any]]:
    """Reads the results that `--compare` names, each value perhaps several between commas.

    A name is a `results.json`, a folder that holds one, or the encoder's name before `_results`, as
    `cmlm evaluate` names its folders.

    Raises:
      UserError: for a file that cannot be read, or more than fit into a report.
    """
    paths = []
    for value in filter(str.strip, values):
        # A comma may also be part of a name.
        names = [value] if Path(value).expanduser().exists() else value.split(",")
        paths += [_find_results(Path(name.strip()).expanduser()) for name in names if name.strip()]
    if len(paths) >= MAX_ENCODERS:
        raise UserError(
            f"--compare: {len(paths)} results; a report shows {MAX_ENCODERS} encoders, so name "
            f"{MAX_ENCODERS - 1} at most"
        )
    return [read_results(path) for path in paths]


def _find_results(path: Path) -> Path:
    """Returns the file of results that a path or a name stands for; the path if there is none."""
    folders = (path, f"{path}_results", f"{path.name}_results")
    files = (path, *(Path(folder, "results.json") for folder in folders))
    return next(filter(os.path.isfile, files), path)
