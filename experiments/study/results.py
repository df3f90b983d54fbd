"""The results of a study: one file, to which each arm and seed is added when it has been scored."""

import dataclasses
import itertools
import json
import textwrap
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object, write_json
from official_cmlm.common.validation import read_dataclass

from .definition import Settings, Study

RESULTS_NAME = "results.json"


@dataclasses.dataclass(frozen=True)
class Result:
    """An arm's scores with one seed, and all that is known about how they were made.

    Attributes:
      settings: see `Study.settings`; "training" also has digests of the records and of the start,
        and the values of the experiment's files.
      steps, examples, tokens, seconds: costs of the training; None where a killed run has left
        no counts.
      devices, versions: devices and packages of the training.
      scores: `suite/task/metric` -> score.
      protocols: suite -> its protocol in words.
      evaluation_files: file -> its SHA-256.
      wall_seconds: time with start-up and scoring.
    """

    settings: dict[str, Any]
    steps: int
    examples: float | None
    tokens: float | None
    seconds: float | None
    devices: list[str]
    versions: dict[str, Any]
    scores: dict[str, Any]
    protocols: dict[str, Any]
    evaluation_files: dict[str, Any]
    wall_seconds: float


def read_results(study: Study, work_dir: Path) -> dict[tuple[str, int], Result]:
    """Reads the results of a study that are there, seed by seed: (arm, seed) -> result.

    Raises:
      UserError: if the file is damaged, or the study says something else about an arm now.
    """
    path = work_dir / RESULTS_NAME
    found = read_object(path, "take an undamaged copy, or delete it") if path.is_file() else {}
    # None of the settings depends on the seed.
    settings = {arm.name: study.settings(arm) for arm in study.arms if found}
    results = {}
    for seed, arm in itertools.product(study.seeds, study.arms):
        name = f"{arm.name}.{seed}"
        if name in found:
            result = read_dataclass(Result, found[name], f"{path}: {name}")
            check_same(f"{path}: {name}", result.settings, settings[arm.name])
            results[arm.name, seed] = result
    return results


def check_same(where: str, before: Settings, now: Settings) -> None:
    """Raises `UserError` if any setting of `now` had another value before."""
    for part, values in now.items():
        old = {key: before.get(part, {}).get(key) for key in values}
        if differing := _first_difference(old, values):
            model = ", and the arm's folder in models" if part == "training" else ""
            raise UserError(
                f"{where} was made by another version of the study ({differing}); take the study "
                f"back to that, or delete it there{model}, or name another --work_dir"
            )


def add_result(work_dir: Path, name: str, result: Result) -> None:
    """Adds a result to the file, or replaces the one of its name."""
    path = work_dir / RESULTS_NAME
    found = read_object(path) if path.is_file() else {}
    write_json(path, found | {name: dataclasses.asdict(result)})


def _first_difference(old: Any, new: Any, at: str = "") -> str:
    """Returns the path of the first value that differs, and both values; empty if none does."""
    if isinstance(old, dict) and isinstance(new, dict):
        below = (
            _first_difference(old.get(k), new.get(k), f"{at}.{k}".lstrip(".")) for k in old | new
        )
        return next(filter(None, below), "")
    if old == new:
        return ""
    before, now = (textwrap.shorten(json.dumps(value), 80) for value in (old, new))
    return f"{at} was {before}, is {now}"
