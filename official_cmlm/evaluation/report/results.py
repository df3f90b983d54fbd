"""Reads `results.json` of other encoders, for reports that compare."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object
from official_cmlm.common.validation import read_dataclass
from official_cmlm.evaluation.report.main_scores import MAX_ENCODERS
from official_cmlm.evaluation.scores import Missing, Score


def read_results(path: Path) -> dict[str, Any]:
    """Reads a `results.json`, and adds its `folder`.

    Raises:
      UserError: if it is missing or has another format.
    """
    advice, where = "name a results.json of experiments.evaluate", f"{path}: not a results.json"
    results = read_object(path, advice)
    try:
        facts = _pick(_Results, results) | {"encoder": _pick(_Encoder, results["encoder"])}
        scores = {
            name: {**_pick(_Suite, suite), "scores": [_pick(Score, one) for one in suite["scores"]]}
            for name, suite in results["suites"].items()
        }
    except (AttributeError, LookupError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else error
        raise UserError(f"{where} ({str(reason)[:80]}); {advice}") from None
    read_dataclass(_Results, facts, where)
    for name, suite in scores.items():
        read_dataclass(_Suite, suite, f"{where}: suites.{name}")
    return results | {"folder": str(path.parent)}


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """The fields of an encoder that reports read."""

    name: str
    path: str
    kind: str
    fingerprint: str
    dimension: int | None


@dataclasses.dataclass(frozen=True)
class _Suite:
    """The fields of a suite that reports read."""

    scores: list[Score]
    notes: list[str]
    failures: list[str]
    options: dict[str, Any]
    protocol: str
    seconds: float
    seeds: list[int]
    missing: list[Missing] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class _Results:
    """The fields of a `results.json` that reports read."""

    encoder: _Encoder
    data_dir: str
    started: str
    seconds: float


def _pick(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of a dataclass's fields; other versions may have written more."""
    return {
        field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values
    }


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
