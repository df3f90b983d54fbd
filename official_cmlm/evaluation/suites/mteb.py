"""Tasks of the `mteb` package (Muennighoff et al. 2023), if it is installed.

The package downloads its data into its own cache; the evaluation data folder is not used. Its cache
of results is not used either, since it identifies encoders by public names. Results are also
written as mteb writes them, `mteb/<encoder>/<fingerprint>/<task>.json` with `model_meta.json`.
"""

import dataclasses
import importlib
import json
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.encoder import Encode, OpenedEncoder, Role, roles_of
from official_cmlm.evaluation.metrics.nearest import unit
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole

_NAMES = 'set mteb.tasks to names that mteb documents, e.g. ["STS12", "Banking77Classification"]'


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a run of mteb.

    Attributes:
      tasks: names of tasks, as mteb spells them. Required: the default, none, is an error.
    """

    tasks: list[str] = dataclasses.field(default_factory=list)


class MtebEncoder:
    """An encoder as mteb 1.x and 2.x call it.

    Attributes:
      encoded: number of texts requested.
      texts: role -> the texts requested, each once; the role is "" for texts without one.
      used: name -> role of the encoder that was taken for texts.
      mteb_model_meta: description of the model that mteb 2 requires.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self.encoded = 0
        self.texts: dict[str, dict[str, None]] = {}
        self.used: dict[str, Role] = {}

    def encode(
        self, inputs: Sequence[str] | Iterable[Mapping[str, Sequence[str]]], **kwargs: Any
    ) -> np.ndarray:
        """Embeds strings (mteb 1), or batches with their strings under `text` (mteb 2).

        They are embedded in the first of the encoder's roles that `role_names` gives.
        """
        texts = texts_of(inputs)
        self.encoded += len(texts)
        roles = roles_of(self._encode)
        name = next((name for name in role_names(kwargs) if name in roles), None)
        self.texts.setdefault(name or "", {}).update(dict.fromkeys(texts))
        if name is None:
            return self._encode(texts)
        self.used[name] = roles[name]
        return roles[name].encode(texts)

    def similarity(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> np.ndarray:
        """Computes cosines of all rows `[n, dim]` with all rows `[m, dim]`: float32 `[n, m]`."""
        return unit(np.atleast_2d(embeddings1)) @ unit(np.atleast_2d(embeddings2)).T

    def similarity_pairwise(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> np.ndarray:
        """Returns the cosine of row i of one array with row i of the other: float32 `[n]`."""
        first, second = (unit(np.atleast_2d(side)) for side in (embeddings1, embeddings2))
        return np.einsum("nd,nd->n", first, second)


def role_names(kwargs: Mapping[str, Any]) -> list[str]:
    """Returns names of roles for a task's texts, the best first: mteb's prompts, in its order."""
    metadata, kind = kwargs.get("task_metadata"), kwargs.get("prompt_type")
    tasks = [kwargs.get("task_name"), getattr(metadata, "name", None)]
    tasks.append(getattr(metadata, "type", None))
    kind = getattr(kind, "value", kind)
    # `passage` is the name of documents in mteb 1, and in many lists of prompts.
    kinds = ["document", "passage"] if kind in ("document", "passage") else [kind] if kind else []
    names = []
    for task in filter(None, tasks):
        names += [*(f"{task}-{kind}" for kind in kinds), task]
    return names + kinds


def texts_of(inputs: Sequence[str] | Iterable[Mapping[str, Sequence[str]]]) -> list[str]:
    """Returns all strings of a list of strings or of batches, in order."""
    texts: list[str] = []
    for item in inputs:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping) and "text" in item:
            # A data loader may give one string or an array of strings.
            texts.extend([item["text"]] if isinstance(item["text"], str) else item["text"])
        else:
            raise UserError("this task has inputs other than text; choose a text task")
    return [str(text) for text in texts]


RESULTS = SuiteResults(
    (Metric("main_score", "main score", "× 100", main=True),),
    bars="Tasks of the mteb package",
    package="mteb",
)


def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields the tasks that `options` names.

    The main score of `<name>` is the mean over the task's splits and subsets; if there are several,
    also of `<name>.<subset>` or `<name>.<split>.<subset>`. `count` is the number of texts that the
    task requested.
    """
    if not options.tasks:
        raise UserError(f"no task is named; {_NAMES}")
    try:
        mteb = importlib.import_module("mteb")
    except ImportError as error:
        raise UserError(f"mteb cannot be imported ({error}); pip install mteb") from None
    for name in dict.fromkeys(options.tasks):
        yield _MtebTask(name, mteb)


@dataclasses.dataclass(eq=False)
class _MtebTask(Task):
    """A task of mteb, whose texts are known only after mteb has run it."""

    mteb: types.ModuleType
    _texts: dict[str, dict[str, None]] = dataclasses.field(default_factory=dict, init=False)

    def texts(self) -> TextsByRole:
        return self._texts

    def score(self, encode: Encode, report: SuiteReport) -> None:
        adapter, name = MtebEncoder(encode), self.name
        about = _model_meta(report.encoder)
        results = _run(self.mteb, name, adapter, about)
        scores = [score for result in results for score in main_scores(result.scores)]
        scores = scores or main_scores({})
        self._texts = adapter.texts
        folder = f"mteb/{about['name'].replace('/', '__')}/{about['revision']}"
        report.documents[f"{folder}/model_meta.json"] = about
        for result in results:
            # Results have dates, and perhaps measures that are NaN, which JSON cannot represent.
            text = json.dumps(result.to_dict(), default=str)
            content = json.loads(text, parse_constant=lambda constant: None)
            report.documents[f"{folder}/{name}.json"] = content
        values = [value for _, _, value in scores]
        report.notes += [f"{name}: {used} texts: {adapter.used[used]}" for used in adapter.used]
        report.add(name, "main_score", 100.0 * float(np.mean(values)), adapter.encoded)
        splits = {part for part, _, _ in scores}
        for part, subset, value in scores if len(scores) > 1 else ():
            label = f"{name}.{part}.{subset}" if len(splits) > 1 else f"{name}.{subset}"
            report.add(label, "main_score", 100.0 * value, adapter.encoded)


def main_scores(scores: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Returns (split, subset, main score) from the `scores` of mteb's result of a task."""
    found = [
        (split, str(row.get("hf_subset", "default")), float(row["main_score"]))
        for split, rows in scores.items()
        for row in rows
    ]
    if not found:
        raise UserError("mteb returned no score")
    return found


def _run(
    mteb: types.ModuleType, name: str, adapter: MtebEncoder, about: dict[str, Any]
) -> list[Any]:
    """Returns mteb's results of a task."""
    try:
        tasks = list(mteb.get_tasks(tasks=[name]))
    except (LookupError, ValueError) as error:
        raise UserError(f"mteb has no such task ({error}); {_NAMES}".replace("\n", " ")) from None
    if not tasks:
        raise UserError(f"mteb has no such task; {_NAMES}")
    try:
        if hasattr(mteb, "evaluate"):
            adapter.mteb_model_meta = description_of(about)
            return list(mteb.evaluate(adapter, tasks, cache=None).task_results)
        return list(mteb.MTEB(tasks=tasks).run(adapter, output_folder=None))
    except OSError as error:
        raise UserError(
            f"mteb could not read its data ({error}); it downloads them at first use"
        ) from None


def _model_meta(encoder: OpenedEncoder | None) -> dict[str, Any]:
    """Returns the fields of mteb's `ModelMeta` that are known."""
    if encoder is None:
        return {"name": "unknown", "revision": "unknown", "max_tokens": None}
    return {
        "name": encoder.name,
        "revision": encoder.fingerprint,
        "max_tokens": encoder.max_seq_length,
    }


def description_of(about: Mapping[str, Any]) -> Any:
    """Returns mteb's description of the model, or None, for which mteb substitutes one."""
    try:
        empty = importlib.import_module("mteb.models.model_meta").ModelMeta.create_empty()
        return empty.model_copy(update=about)
    except (ImportError, AttributeError):
        return None
