"""The suites by name.

A suite is a module of this package with

- `Options`: a frozen dataclass; every field says meaning, default and source;
- `RESULTS`: a `SuiteResults` that declares every metric, and how reports show the scores;
- `tasks(data, options, report)`: yields a `Task` for each of its tasks, and one for their averages.

A task reads its files from the `DataFolder` in `texts()`, which returns all texts that it embeds,
and adds scores to a `SuiteReport` in `score(encode, report)`. So the texts of all suites are known
before the first is scored, and are embedded in one pass, similar lengths in a batch; `score` embeds
them again, and gets the stored vectors. A file that is missing or broken concerns one task only.
Scores of data that is not a test set have a task name of their own. `for_role(encode, "query")`
embeds texts of a role. The first paragraph of the module's docstring is shown as the protocol in
results. Measures are pure functions on arrays, in `metrics/` where suites share them or where they
are long.
"""

import importlib
import inspect
import types
import typing
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, read_dataclass
from official_cmlm.evaluation.suite import SuiteResults

SUITES = {
    "senteval": "SentEval's transfer tasks: a classifier on frozen embeddings",
    "probing": "SentEval's probing tasks: linguistic properties of embeddings",
    "sts": "semantic textual similarity without training",
    "tatoeba": "retrieval of translations",
    "xeval": "SentEval's tasks translated to other languages",
    "amazon": "sentiment transfer from English to other languages",
    "language_bias": "language of the nearest neighbour among translations",
    "word_similarity": "correlation with human scores of word pairs",
    "bli": "bilingual lexicon induction",
    "entity_linking": "entities found by their mentions",
    "qnli": "questions and sentences that answer them, without training",
    "retrieval": "documents found by queries, in BEIR's form",
    "geometry": "isotropy, alignment and uniformity of embeddings",
}


def suite(name: str) -> types.ModuleType:
    """Imports the module of a suite."""
    if name not in SUITES:
        raise UserError(f"no suite {name!r}; there are {', '.join(SUITES)}")
    return importlib.import_module(f"{__name__}.{name}")


def declared(name: str) -> SuiteResults:
    """Returns what a suite declares of its results; without any metric for an unknown name."""
    return suite(name).RESULTS if name in SUITES else SuiteResults(())


def expanded(names: list[str]) -> list[str]:
    """Replaces `all` by all suites, each once; unknown names stay."""
    if "all" not in names:
        return list(dict.fromkeys(names))
    return [*SUITES, *(name for name in names if name not in SUITES and name != "all")]


def described(names: list[str]) -> str:
    """Returns one line for each suite; for suites that are named, the options as well."""
    lines = []
    for name in names or SUITES:
        lines.append(f"{name}: {SUITES.get(name, '')}")
        if names:
            kinds = [kind for kind in suite(name).Options.__mro__ if kind is not object]
            lines.append("\n\n".join(inspect.getdoc(kind) for kind in kinds))
    return "\n".join(lines)


def options(name: str, values: dict[str, Any]) -> Any:
    """Builds a suite's options, with `values` in place of defaults.

    For options that are lists, `a,b` and `a` are lists too: `[a, b]` and `[a]`. Where an option
    takes only certain words, these may be written in upper or lower case.
    """
    kind = suite(name).Options
    hints = typing.get_type_hints(kind, include_extras=True)
    values = {
        key: _read_text(f"{name}.{key}", value, hints[key]) if key in hints else value
        for key, value in values.items()
    }
    for key, value in values.items():
        if isinstance(value, list) and len({repr(item) for item in value}) < len(value):
            raise UserError(f"{name}.{key} has a repeated item: {value!r}")
    return read_dataclass(kind, values, name)


def _read_text(where: str, value: Any, hint: Any) -> Any:
    """Converts an option's value that comes from a flag or a study's file; other values stay."""
    words = [note.words for note in getattr(hint, "__metadata__", ()) if isinstance(note, OneOf)]
    known = {word.casefold(): word for word in (*words, ())[0]}
    hint = typing.get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(hint) is not list:
        return known.get(value.casefold(), value) if isinstance(value, str) else value
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise UserError(f"{where}: an item of {value!r} is empty; write a,b,c")
        value = [_number(part) if hint == list[float] else part for part in parts]
    elif isinstance(value, (bool, int, float)):
        value = [value]
    if isinstance(value, list):
        return [known.get(str(item).casefold(), item) for item in value]
    return value


def _number(text: str) -> float | str:
    """Reads a number; other text stays as it is, for the message."""
    try:
        return float(text)
    except ValueError:
        return text
