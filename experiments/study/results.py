"""The results of a study: one file, of which its tables are made."""

import dataclasses
import itertools
import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object, write_json
from official_cmlm.common.job import differences
from official_cmlm.common.validation import read_dataclass

from .definition import Study

RESULTS_NAME = "results.json"


@dataclasses.dataclass(frozen=True)
class Result:
    """An arm's scores with one seed, and all that is known about how they were made.

    Attributes:
      settings: see `Study.settings`, of which one is the precision; "training" also has digests of
        the records and of the start, and the values of the experiment's files.
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


# Name of an arm and seed -> result.
Results = dict[tuple[str, int], Result]


def read_results(study: Study, work_dir: Path) -> Results:
    """Reads the results of a study that are there, seed by seed.

    Raises:
      UserError: if the file is damaged, or the study says something else about an arm now.
    """
    path = work_dir / RESULTS_NAME
    values = read_object(path, "take an undamaged copy, or delete it") if path.is_file() else {}
    # None of the settings depends on the seed.
    settings = {arm.name: study.settings(arm) for arm in study.arms if values}
    results = {}
    for seed, arm in itertools.product(study.seeds, study.arms):
        name = f"{arm.name}.{seed}"
        if name in values:
            result = read_dataclass(Result, values[name], f"{path}: {name}")
            for kind, now in settings[arm.name].items():
                check_same(f"{path}: {name}", result.settings.get(kind, {}), now)
            results[arm.name, seed] = result
    return results


def check_same(where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises `UserError` if any setting of `now` had another value before."""
    for name, *values in differences({key: before.get(key) for key in now}, now):
        then, today = (textwrap.shorten(json.dumps(value), 80) for value in values)
        raise UserError(
            f"{where} was made by another version of the study ({name} was {then}, is {today}); "
            "take the study back to that, or delete it there, and what it has made, or name "
            "another --work_dir"
        )


def add_result(work_dir: Path, name: str, result: Result) -> None:
    """Adds a result to the file, or replaces the one of its name."""
    path = work_dir / RESULTS_NAME
    results = read_object(path) if path.is_file() else {}
    write_json(path, results | {name: dataclasses.asdict(result)})
