"""The suites by name.

A suite is a module of this package with

- `Options`: a frozen dataclass; every field says meaning, default and source;
- `evaluate(encode, data, options, report) -> None`: reads files from a `DataFolder`, embeds texts
  with `encode` (which caches, so the same text may be passed again), adds scores to a
  `SuiteReport`.

It wraps each task in `with report.task(name):`, so that a missing file fails one task only. Its
docstring's first paragraph is shown as the protocol in results. Measures are pure functions on
arrays, in `metrics/` where suites share them or where they are long.
"""

import dataclasses
import importlib
import math
import types
from typing import Any

from official_cmlm.errors import UserError

SUITES = {
    "senteval": "SentEval's transfer tasks: a classifier on frozen embeddings",
    "probing": "SentEval's probing tasks: what an embedding knows of a sentence",
    "sts": "semantic textual similarity without training",
    "tatoeba": "retrieval of translations",
    "xeval": "SentEval's tasks translated to other languages",
    "amazon": "sentiment transfer from English to other languages",
    "bitext_mining": "translations mined from two monolingual corpora",
    "language_bias": "language of the nearest neighbour among translations",
    "word_similarity": "people's scores of word pairs",
    "bli": "bilingual lexicon induction",
    "entity_linking": "names of entities found by their mentions",
    "qnli": "does a sentence answer a question",
    "geometry": "isotropy, alignment and uniformity of the space",
    "mteb": "tasks of the mteb package",
}


def suite(name: str) -> types.ModuleType:
    """Imports the module of a suite.

    Raises:
      UserError: for an unknown name.
    """
    if name not in SUITES:
        raise UserError(f"no suite {name!r}; there are {', '.join(SUITES)}")
    return importlib.import_module(f"{__name__}.{name}")


def options(name: str, values: dict[str, Any]) -> Any:
    """A suite's options, with `values` in place of defaults.

    Raises:
      UserError: for an unknown option or an invalid value.
    """
    kind = suite(name).Options
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise UserError(f"suite {name!r} has no option {key!r}; it has {known}")
    for key, value in values.items():
        _check(f"{name}.{key}", value, getattr(kind(), key))
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None


def _check(where: str, value: Any, default: Any) -> None:
    """Raises `UserError` unless a value has its default's type; lists are checked item by item."""
    if not _is_like(value, default):
        raise UserError(f"{where} must be {type(default).__name__} like {default!r}, got {value!r}")
    if not isinstance(default, list):
        return
    example = default[0] if default else ""
    for item in value:
        if not _is_like(item, example):
            kind = type(example).__name__
            raise UserError(f"{where} must be a list of {kind}, got {item!r}; quote it")
    if len(set(value)) < len(value):
        raise UserError(f"{where} has a repeated item: {value!r}")


def _is_like(value: Any, default: Any) -> bool:
    if isinstance(default, float):
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is type(default)
