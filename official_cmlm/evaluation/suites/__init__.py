"""The suites by name.

A suite is a file with

- `Options`: a frozen dataclass; every field says meaning, default and source;
- `RESULTS`: a `SuiteResults` that declares every metric, and how reports show the scores;
- `tasks(data, options, report)`: yields a `Task` for each of its tasks, and one for their averages.
  The decorator `register` makes a suite of it.

A task reads its files from the `DataFolder` in `texts()`, which returns all texts that it embeds,
and adds scores to a `SuiteReport` in `score(encode, report)`. So the texts of all suites are known
before the first is scored, and are embedded in one pass, similar lengths in a batch; `score` embeds
them again, and gets the stored vectors. A file that is missing or broken concerns one task only.
Scores of data that is not a test set have a task name of their own. `for_role(encode, "query")`
embeds texts of a role. The first paragraph of the file's docstring is shown as the protocol in
results. Measures are pure functions on arrays, in `metrics/` where suites share them or where they
are long.

The suites of this package are imported when they are needed. A suite of your own is registered by a
module that `--import_module` imports, see `examples/own_suite.py`.
"""

import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, default_of, read_dataclass
from official_cmlm.evaluation.suite import Suite, SuiteResults, Tasks

# Name -> one line; registered suites are added.
SUITES = {
    "senteval": "SentEval's transfer tasks: a classifier on frozen embeddings",
    "probing": "SentEval's probing tasks: linguistic properties of embeddings",
    "sts": "semantic textual similarity without training",
    "tatoeba": "retrieval of translations",
    "xeval": "SentEval's tasks translated to other languages",
    "amazon": "sentiment transfer from English to other languages",
    "xnli": "inference transfer from English to other languages",
    "language_bias": "language of the nearest neighbour among translations",
    "lareqa": "answers to questions in a pool of all languages",
    "word_similarity": "correlation with human scores of word pairs",
    "bli": "bilingual lexicon induction",
    "entity_linking": "entities found by their mentions",
    "qnli": "questions and sentences that answer them, without training",
    "retrieval": "documents found by queries, in BEIR's form",
    "geometry": "isotropy, alignment and uniformity of embeddings",
}


_REGISTERED: dict[str, Suite] = {}


def register(
    name: str, options: type, results: SuiteResults, summary: str = ""
) -> Callable[[Tasks], Tasks]:
    """Returns a decorator that registers a function `tasks` as a suite.

    Examples:
      >>> @register("own", Options, RESULTS, "documents found by their titles")  # doctest: +SKIP
      ... def tasks(data, options, report):
      ...     yield ...

    Args:
      name: of the suite: letters, digits and underscores.
      options: the dataclass of its options.
      results: its metrics, and how reports show them.
      summary: one line for lists of suites. Default: that of `SUITES`.

    Raises:
      UserError: if the name cannot be used, or another suite has it.
    """

    def decorate(tasks: Tasks) -> Tasks:
        where = f"suite {name!r} ({tasks.__module__})"
        if not re.fullmatch(r"\w+", name):
            raise UserError(f"{where}: its name needs letters, digits and underscores")
        is_own = name in SUITES and tasks.__module__ != f"{__name__}.{name}"
        if is_own or name in _REGISTERED:
            raise UserError(f"{where}: another suite has that name already; choose another")
        SUITES.setdefault(name, summary)
        _REGISTERED[name] = Suite(name, options, results, tasks)
        return tasks

    return decorate


def get_suite(name: str) -> Suite:
    """Returns a suite; one of this package is imported."""
    if name not in SUITES:
        raise UserError(f"no suite {name!r}; there are {', '.join(SUITES)}")
    if name not in _REGISTERED:
        importlib.import_module(f"{__name__}.{name}")
    return _REGISTERED[name]


def get_results(name: str) -> SuiteResults:
    """Returns what a suite declares of its results; without any metric for an unknown name."""
    return get_suite(name).results if name in SUITES else SuiteResults(())


def expand_names(names: list[str]) -> list[str]:
    """Replaces `all` by all suites, each once; unknown names stay."""
    if "all" not in names:
        return list(dict.fromkeys(names))
    return [*SUITES, *(name for name in names if name not in SUITES and name != "all")]


def describe(names: list[str]) -> str:
    """Returns one line for each suite; for suites that are named, the options as well."""
    lines = []
    for name in names or SUITES:
        lines.append(f"{name}: {SUITES.get(name, '')}")
        if names:
            kinds = [kind for kind in get_suite(name).options.__mro__ if kind is not object]
            lines.append("\n\n".join(inspect.getdoc(kind) for kind in kinds))
    return "\n".join(lines)


def read_options(name: str, values: dict[str, Any]) -> Any:
    """Builds a suite's options, with `values` in place of defaults.

    For options that are lists, `a,b` and `a` are lists too: `[a, b]` and `[a]`. A list may be empty
    only where that is the default. Where an option takes only certain words, these may be written
    in upper or lower case.
    """
    kind = get_suite(name).options
    hints = typing.get_type_hints(kind, include_extras=True)
    values = {
        key: _read_text(f"{name}.{key}", value, hints[key]) if key in hints else value
        for key, value in values.items()
    }
    defaults = {field.name: default_of(field) for field in dataclasses.fields(kind)}
    for key, value in values.items():
        if value == [] and defaults.get(key):
            raise UserError(f"{name}: {key} must name at least one")
        if isinstance(value, list) and len({repr(item) for item in value}) < len(value):
            raise UserError(f"{name}.{key} has a repeated item: {value!r}")
    return read_dataclass(kind, values, name)


def _read_text(where: str, value: Any, hint: Any) -> Any:
    """Converts an option's value that comes from a flag or a study's file; other values stay."""
    words = [note.words for note in getattr(hint, "__metadata__", ()) if isinstance(note, OneOf)]
    by_word = {word.casefold(): word for word in (*words, ())[0]}
    hint = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(hint) is not list:
        return by_word.get(value.casefold(), value) if isinstance(value, str) else value
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise UserError(f"{where}: an item of {value!r} is empty; write a,b,c")
        value = [_read_number(part) if hint == list[float] else part for part in parts]
    elif isinstance(value, (bool, int, float)):
        value = [value]
    if isinstance(value, list):
        return [by_word.get(str(item).casefold(), item) for item in value]
    return value


def _read_number(text: str) -> float | str:
    """Reads a number; other text stays as it is, for the message."""
    try:
        return float(text)
    except ValueError:
        return text
