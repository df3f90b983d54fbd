"""The model card of an exported encoder: description, training and scores."""

import contextlib
import dataclasses
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object
from official_cmlm.common.validation import Matching
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.encoding.exporting import PARAMS_NAME, Source
from official_cmlm.tokenization import Vocabulary

_TEMPLATE = """\
---
{front_matter}---

# {name}

A sentence encoder: it maps a text to a vector of {size} numbers{normalized}. Written by
official_cmlm from an encoder directory.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
embeddings = model.encode(["A sentence.", "Another one."])
```

| | |
|---|---|
| architecture | {architecture}, {layers} layers of {hidden}, {heads} heads, {activation} |
| parameters | {parameters:,} |
| pooling | {pooling} over real tokens |
| longest text | {max_seq_length} tokens |
| vocabulary | {entries:,} entries, {settings} |

## Evaluation

{evaluation}

## Training

{training}
"""

# Bidirectional classes of the characters that embed, override or isolate a direction.
_TURNING = ("LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
# A name as model hubs have them, of a licence, a data set or a model; empty: none.
_HubName = Annotated[
    str,
    Matching(
        r"([A-Za-z0-9][\w.-]*(/[\w.-]+)?)?",
        "a name on a model hub; letters, digits and . _ - are, with one / after the owner",
    ),
]
_MANIFEST = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Publication:
    """Facts for the front matter of a card that the folder of a run does not hold.

    Attributes:
      license: licence for the model card, e.g. apache-2.0. Default: none.
      datasets: names of the training data on the model hub, for the card, e.g.
        wikimedia/wikipedia. Default: none.
      languages: language tags for the model card. Default: those of the training's records, where
        these are still in their place.
      base_model: model on the hub that training started from, for the card. Default: none.
    """

    license: _HubName = ""
    datasets: tuple[_HubName, ...] = ()
    languages: tuple[_HubName, ...] = ()
    base_model: _HubName = ""


@dataclasses.dataclass(frozen=True)
class Training:
    """The files that a training left in its folder, and those of its records.

    Attributes:
      params: content of `params.yaml`, without the folders of absolute paths; None if it was not
        trained here.
      summary: content of `train_summary.json`; empty where there is none.
      records: content of the `dataset.json` of each folder of records, by the folder's name, for
        the folders that are still in their place.
    """

    params: str | None = None
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    records: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)


def read_training(source: Source) -> Training:
    """Reads the files that a training left; missing or damaged ones but `params.yaml` are left out.

    Raises:
      UserError: if `params.yaml` cannot be read.
    """
    params = source.params()
    if params is None:
        return Training()
    folder = source.directory.path
    manifests = {path.name: _read_object(path / _MANIFEST) for path in _input_folders(folder)}
    records = {name: values for name, values in manifests.items() if values}
    return Training(params, _read_object(folder / "train_summary.json"), records)


def _read_object(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, UserError):
        return read_object(path)
    return {}


def _input_folders(model_dir: Path) -> list[Path]:
    """Returns the folders of records that `task.train_data` of `params.yaml` names."""
    try:
        text = (model_dir / PARAMS_NAME).read_text(encoding="utf-8")
        data = yaml.safe_load(text)["task"]["train_data"]
        paths = [source["path"] for source in data.get("sources") or ()]
        paths = paths or [data.get("input_path")]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return []
    return [Path(path) for path in paths if isinstance(path, str) and path]


def model_card(
    name: str,
    config: EncoderConfig,
    architecture: str,
    vocabulary: Vocabulary,
    max_seq_length: int,
    parameters: int,
    results: Mapping[str, Any] | None,
    training: Training,
    publication: Publication,
) -> str:
    """Returns Markdown with the front matter that model hubs read.

    Text that comes from names and files cannot end a table, a title or a code block: see `escape`.

    Args:
      name: title.
      config, vocabulary, max_seq_length: the encoder's.
      architecture: Hugging Face's `model_type`.
      parameters: number of weights that are exported.
      results: the `results.json` of an evaluation, whose scores are given to the hub too, or other
        figures by name, possibly nested; None if nothing was evaluated.
      training: see `read_training`.
      publication: facts that the run does not know.
    """
    scores = _scores(results or {})
    settings = ", ".join(
        [vocabulary.kind, *(f"{key} {value}" for key, value in vocabulary.settings().items())]
    )
    name = _make_printable(name) or "Sentence encoder"
    return _TEMPLATE.format(
        front_matter=_front_matter(name, scores, training, publication),
        name=escape(name),
        size=config.embedding_size,
        normalized=" of length 1" if config.normalize else "",
        architecture=architecture,
        layers=config.num_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        activation=config.hidden_activation,
        parameters=parameters,
        pooling=config.pooling,
        max_seq_length=max_seq_length,
        entries=len(vocabulary),
        settings=settings,
        evaluation=_evaluation(results or {}, scores),
        training=_training(training),
    )


def _front_matter(
    name: str, scores: Sequence[Mapping[str, Any]], training: Training, publication: Publication
) -> str:
    """Returns the fields that model hubs read, as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    languages = publication.languages or tuple(
        dict.fromkeys(
            part
            for values in training.records.values()
            for tag in _languages(values)
            for part in _split_tag(tag)
        )
    )
    results = [
        EvalResult(
            task_type="sentence-similarity",
            task_name=_make_printable(score["suite"]),
            # The hub puts scores together whose data sets have the same type.
            dataset_type=_make_printable(f"{score['suite']}/{score['task']}"),
            dataset_name=_make_printable(score["task"]),
            metric_type=_make_printable(score["metric"]),
            metric_value=round(score["value"], 4),
        )
        for score in scores
    ]
    data = ModelCardData(
        language=list(map(_make_printable, languages)) or None,
        license=publication.license or None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction"],
        datasets=list(publication.datasets) or None,
        base_model=publication.base_model or None,
        model_name=name if results else None,
        eval_results=results or None,
    )
    return f"{data.to_yaml()}\n"


def _languages(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    languages = manifest.get("languages")
    return languages if isinstance(languages, Mapping) else {}


def _split_tag(tag: str) -> list[str]:
    """Returns the languages of a tag in records, without unknown ones; a pair's tag has two."""
    parts = [tag] if not re.fullmatch(r"[a-z]{2,3}-[a-z]{2,3}", tag) else tag.split("-")
    return [part for part in parts if part and part != "und"]


def _scores(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the scores of a `results.json`, each with its suite; empty for other figures."""
    suites = results.get("suites")
    if not isinstance(suites, Mapping):
        return []
    scores = []
    for suite, values in suites.items():
        for score in values.get("scores", ()) if isinstance(values, Mapping) else ():
            if isinstance(score, Mapping) and isinstance(score.get("value"), int | float):
                scores.append(
                    {
                        "suite": str(suite),
                        "task": str(score.get("task")),
                        "metric": str(score.get("metric")),
                        "value": float(score["value"]),
                        "count": score.get("count", ""),
                    }
                )
    return scores


def _evaluation(results: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> str:
    """Returns the table of scores, or of other figures."""
    if scores:
        rows = [
            "| " + " | ".join(escape(str(score[key])) for key in ("suite", "task", "metric"))
            + f" | {score['value']:.2f} | {escape(str(score['count']))} |"
            for score in scores
        ]  # fmt: skip
        return "\n".join(["| suite | task | metric | score | examples |", "|---" * 5 + "|", *rows])
    rows = [f"| {escape(key)} | {escape(value)} |" for key, value in flatten(results)]
    if rows:
        return "\n".join(["| what | figure |", "|---|---|", *rows])
    return "No figures were given when this folder was written."


def _training(training: Training) -> str:
    """Returns the section on data and configuration of the training."""
    if training.params is None:
        return "Not trained by official_cmlm: an imported checkpoint."
    parts = []
    rows = [
        f"| {escape(name)} | {escape(str(values.get('kind', '')))} | {_count(values, 'documents')} "
        f"| {_count(values, 'sentences')} | {_count(values, 'tokens')} "
        f"| {escape(', '.join(_languages(values)))} |"
        for name, values in training.records.items()
    ]
    if rows:
        head = "| records | kind | documents | sentences | tokens | languages |"
        parts.append("\n".join(["Training data:\n", head, "|---" * 6 + "|", *rows]))
    step, devices = training.summary.get("step"), training.summary.get("devices")
    if isinstance(step, int):
        on = f" on {escape(', '.join(map(str, devices)))}" if isinstance(devices, list) else ""
        loss = training.summary.get("loss")
        last = f"; the last loss was {loss:.4g}" if isinstance(loss, int | float) else ""
        parts.append(f"Trained for {step:,} steps{on}{last}.")
    parts.append(
        "`cmlm train params.yaml --data=RECORDS --to=FOLDER`, in this folder, trains with the same "
        "configuration again, which is:"
    )
    # A code block ends at the next fence of its length, so this fence is longer than all inside.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", training.params)), default=0))
    parts.append(f"{fence}yaml\n{training.params.strip()}\n{fence}")
    return "\n\n".join(parts)


def _count(values: Mapping[str, Any], key: str) -> str:
    return f"{values[key]:,}" if isinstance(values.get(key), int) else ""


def flatten(results: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields nested figures as (path, text), in order; floats with at most four decimals.

    >>> list(flatten({"sts": {"STS-B": 82.03}, "note": "test"}))
    [('sts/STS-B', '82.03'), ('note', 'test')]
    """
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}/")
        else:
            text = f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
            yield f"{prefix}{key}", str(text)


def escape(text: str) -> str:
    """Returns a line of Markdown that shows the text unchanged, in a title or in a table.

    Line ends, control characters, lone surrogates and marks that turn the direction of text become
    spaces.

    >>> print(escape("a|b <script>\\n# *c*"))
    a\\|b &lt;script&gt; \\# \\*c\\*
    """
    line = re.sub(r"([\\`*_\[\]|#~$])", r"\\\1", _make_printable(text).replace("&", "&amp;"))
    return line.replace("<", "&lt;").replace(">", "&gt;")


def _make_printable(text: str) -> str:
    """Returns one line without control characters."""
    shown = "".join(" " if _is_unprinted(letter) else letter for letter in text)
    return " ".join(shown.split())


def _is_unprinted(letter: str) -> bool:
    turning = unicodedata.bidirectional(letter) in _TURNING
    return turning or unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")
