"""The suites by name.

A suite is a module of this package with

- `Options`: a frozen dataclass; every field says meaning, default and source;
- `evaluate(encode, data, options, report) -> None`: reads files from a `DataFolder`, embeds texts
  with `encode` (which caches, so the same text may be passed again), adds scores to a
  `SuiteReport`.

It wraps each task in `with report.task(name):`, so that a file that is missing or broken concerns
one task only. A task that embeds several lists calls `prepare(encode, *lists)` first: all suites'
texts are embedded in one pass, which learns from a run without embedding what they are. Tasks that
take long are looped over by `report.remaining(names)`; an interrupted run does not repeat them.
What is no test set has names of its own. An encoder's roles are `for_role(encode, "query")`. Its
docstring's first paragraph is shown as the protocol in results. Measures are pure functions on
arrays, in `metrics/` where suites share them or where they are long.
"""

import contextlib
import dataclasses
import importlib
import inspect
import math
import types
import typing
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.validation import OneOf

SUITES = {
    "senteval": "SentEval's transfer tasks: a classifier on frozen embeddings",
    "probing": "SentEval's probing tasks: linguistic properties of embeddings",
    "sts": "semantic textual similarity without training",
    "tatoeba": "retrieval of translations",
    "xeval": "SentEval's tasks translated to other languages",
    "amazon": "sentiment transfer from English to other languages",
    "bitext_mining": "translations mined from two monolingual corpora",
    "language_bias": "language of the nearest neighbour among translations",
    "word_similarity": "correlation with human scores of word pairs",
    "bli": "bilingual lexicon induction",
    "entity_linking": "entities found by their mentions",
    "qnli": "questions and sentences that answer them, without training",
    "retrieval": "documents found by queries, in BEIR's form",
    "geometry": "isotropy, alignment and uniformity of embeddings",
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


def expanded(names: list[str]) -> list[str]:
    """Suite names with `all` replaced by all suites but mteb, each once; unknown names stay."""
    if "all" not in names:
        return list(dict.fromkeys(names))
    known = [name for name in SUITES if name in names or name != "mteb"]
    return known + [name for name in names if name not in SUITES and name != "all"]


def described(names: list[str]) -> str:
    """One line for each suite; for suites that are named, the options as well.

    Raises:
      UserError: for an unknown name.
    """
    lines = []
    for name in names or SUITES:
        lines.append(f"{name}: {SUITES.get(name, '')}")
        if names:
            kinds = [kind for kind in suite(name).Options.__mro__ if kind is not object]
            lines.append("\n\n".join(inspect.getdoc(kind) for kind in kinds))
    return "\n".join(lines)


def options(name: str, values: dict[str, Any]) -> Any:
    """A suite's options, with `values` in place of defaults.

    Where the default is a list, `a,b` and `a` are lists too: `[a, b]` and `[a]`.

    Raises:
      UserError: for an unknown option or an invalid value.
    """
    kind = suite(name).Options
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise UserError(f"suite {name!r} has no option {key!r}; it has {known}")
    defaults = kind()
    values = {
        key: _as_known(_listed(f"{name}.{key}", value, getattr(defaults, key)), kind, key)
        for key, value in values.items()
    }
    for key, value in values.items():
        _check(f"{name}.{key}", value, getattr(defaults, key))
    try:
        return kind(**values)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None


def _listed(where: str, value: Any, default: Any) -> Any:
    """The value; for a list's option, a single item or items with commas between as a list."""
    if not isinstance(default, list):
        return value
    kind = type(default[0]) if default else str
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise UserError(f"{where}: an item of {value!r} is empty; write a,b,c")
        return [_number(part, kind) for part in parts]
    # YAML reads some words as other values, e.g. Norwegian's code as false: `_check` says so.
    return [value] if isinstance(value, (bool, int, float)) else value


def _as_known(value: Any, kind: type, key: str) -> Any:
    """Words of which an option takes some, as they are spelled there; upper case is no difference.

    Others stay as they are, for the message.
    """
    hints = typing.get_type_hints(kind, include_extras=True)[key]
    known = {
        word.casefold(): word
        for one in getattr(hints, "__metadata__", ())
        if isinstance(one, OneOf)
        for word in one.words
    }
    if isinstance(value, list):
        return [known.get(str(item).casefold(), item) for item in value]
    return known.get(value.casefold(), value) if isinstance(value, str) else value


def _number(text: str, kind: type) -> Any:
    """A number for an option whose items are numbers, else the text."""
    if kind not in (int, float):
        return text
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


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
