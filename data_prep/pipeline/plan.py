"""The plan of a run: what is read, in which elements, with which options.

It is saved beside the output. The same plan gives the same files, so it resumes a stopped run.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object, sha256, write_json
from official_cmlm.common.validation import read_dataclass

from ..output.documents import RecordOptions
from ..output.folder import PLAN_FILE
from ..readers import ReadOptions, TextFile, stored_size
from ..stages import Stage
from ..stages.duplicates import DuplicateOptions, MinHash
from ..stages.language_id import LanguageId
from ..stages.normalise import normalise_document
from ..stages.quality_classifier import QualityClassifier, SentenceClassifier
from ..stages.quality_rules import QualityRules

WORK = "work"
DEDUPLICATE = ("off", "exact", "normalised", "near")
DEDUPLICATE_PARAGRAPHS = ("auto", *DEDUPLICATE)
# Incremented with every change of the files that phases write.
_FORMAT = 7
# Number of elements whose losses are gathered at a time, from the files of all partitions.
ELEMENTS_A_GROUP = 16
# The keys of one partition are in memory at once; see `partitions`.
_BYTES_A_PARTITION = 1 << 26
_MAX_PARTITIONS = 1024


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that decide what is written.

    Fields that are not described here are flags of `prepare` of the same name, which say meaning,
    unit and range and check the values. By default nothing is changed or dropped.

    Attributes:
      reading: how files are read.
      language: whether languages are checked or found, and which are kept; default "off", all.
      deduplicate_paragraphs: "auto" (default): as documents, but "normalised" where those are
        "near", see `DuplicateOptions`.
      records: how documents become records.
      shard_bytes: size after which a new shard begins; default 16 MB.
      element_bytes: files are bundled up to this many bytes, as stored; default 64 MB. More bytes
        give fewer and larger shards, fewer bytes lose less work when a run is stopped.
    """

    reader: str = "auto"
    reading: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    normalise: bool = False
    language: LanguageId = dataclasses.field(default_factory=lambda: LanguageId("off"))
    quality_rules: bool = False
    quality_model: str = ""
    quality_threshold: float = 0.5
    quality_level: str = "document"
    deduplicate: str = "off"
    deduplicate_paragraphs: str = "auto"
    near_threshold: float = MinHash.threshold
    near_bands: int = MinHash.bands
    min_paragraph_letters: int = DuplicateOptions.min_paragraph_letters
    records: RecordOptions = dataclasses.field(default_factory=RecordOptions)
    shard_bytes: int = 16_000_000
    element_bytes: int = 64_000_000

    def stages(self) -> Iterator[Stage]:
        """Yields the stages between reader and records, in order."""
        if self.normalise:
            yield normalise_document
        if self.language.detect != "off" or self.language.languages:
            yield self.language
        if self.quality_rules:
            yield QualityRules()
        if self.quality_model and self.quality_level != "sentence":
            yield QualityClassifier(self.quality_model, self.quality_threshold, self.quality_level)

    def sentence_classifier(self) -> SentenceClassifier | None:
        """Returns the classifier of single sentences, if any; a new one for each element."""
        if self.quality_model and self.quality_level == "sentence":
            return SentenceClassifier(self.quality_model, self.quality_threshold)
        return None

    @property
    def duplicates(self) -> DuplicateOptions:
        """The options of the removal of duplicates."""
        paragraphs = self.deduplicate_paragraphs
        if paragraphs == "auto":
            paragraphs = "normalised" if self.deduplicate == "near" else self.deduplicate
        near = MinHash(bands=self.near_bands, threshold=self.near_threshold)
        return DuplicateOptions(self.deduplicate, paragraphs, near, self.min_paragraph_letters)


class Input(NamedTuple):
    """A file, or a data set.

    Attributes:
      path: as a reader takes it.
      size: bytes as stored.
      language: language of the documents that do not name their own; empty: that of the reading
        options.
    """

    path: str
    size: int
    language: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The work of a run.

    Attributes:
      options: decide what happens to the text.
      inputs: what is read, in order.
      vocabulary: hash of the vocabulary, which is saved in the folder.
      exclude: names of files whose sentences are left out.
      files: name -> SHA-256 of the files of `exclude` and of the quality model.
    """

    options: Options
    inputs: tuple[Input, ...]
    vocabulary: str
    exclude: tuple[str, ...] = ()
    files: dict[str, str] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls,
        files: Sequence[TextFile],
        options: Options,
        vocabulary: str,
        exclude: Iterable[str] = (),
    ) -> "Plan":
        """Makes the plan for these files, as `readers.expand_text_files` gives them.

        Raises:
          UserError: a file that the options name cannot be read, or a data set does not exist.
        """
        named = [*exclude, *filter(None, [options.quality_model])]
        return cls(
            options,
            tuple(
                Input(path, stored_size(path, options.reading, options.reader), language)
                for path, language in files
            ),
            vocabulary,
            tuple(exclude),
            {path: _digest(path) for path in named},
        )

    @functools.cached_property
    def elements(self) -> tuple[tuple[Input, ...], ...]:
        """The elements in order: consecutive files, bundled up to `element_bytes`.

        A larger file is an element of its own.
        """
        bundles: list[list[Input]] = []
        room = 0
        for item in self.inputs:
            if not bundles or item.size > room:
                bundles.append([])
                room = self.options.element_bytes
            bundles[-1].append(item)
            room -= item.size
        return tuple(map(tuple, bundles))

    def sizes(self, phase: str) -> list[int]:
        """Returns the part of each number of a phase in its progress bar: bytes of input, or 1."""
        if phase not in ("read", "write"):
            return [1] * dict(self.phases())[phase]
        return [sum(item.size for item in element) for element in self.elements]

    @property
    def partitions(self) -> int:
        """The number of parts into which the keys of duplicates are divided.

        A key is 24 bytes, and some 60 while keys are sorted: one of each document and paragraph,
        and 20 bands of each where near duplicates are looked for. So a partition of 64 MiB of text
        takes some 10 MB for exact paragraphs, 30 MB for near documents of 3 kB, 250 MB for near
        paragraphs of 350 bytes. Above 64 GiB of input, with 1,024 partitions, it grows with the
        input; compressed input counts as it is stored.
        """
        total = sum(size for _, size, *_ in self.inputs)
        return min(_MAX_PARTITIONS, 1 + total // _BYTES_A_PARTITION)

    def phases(self) -> list[tuple[str, int]]:
        """Returns (phase, number of its computations) in order."""
        elements = len(self.elements)
        compared = self.options.duplicates.compared
        phases = [("read", elements)] if compared else []
        for kind in compared:
            groups = -(-elements // ELEMENTS_A_GROUP)
            phases += [(kind, self.partitions), (f"{kind}_lost", groups)]
        return [*phases, ("write", elements)]

    def save(self, folder: Path) -> None:
        """Writes `prepare.json`."""
        write_json(folder / PLAN_FILE, {"format": _FORMAT} | dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """Reads `prepare.json`; raises `UserError` if another release wrote it."""
        try:
            values = read_object(folder / PLAN_FILE, f"delete {folder} to start again")
            if values.get("format") != _FORMAT:
                raise ValueError(f"format {values.get('format')}, wanted {_FORMAT}")
            return cls(
                read_dataclass(Options, values["options"], "options"),
                tuple(Input(*given) for given in values["inputs"]),
                values["vocabulary"],
                tuple(values["exclude"]),
                values["files"],
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{folder / PLAN_FILE}: is not of this release ({type(error).__name__}:"
                f" {str(error)[:120]}); delete {folder} to start again, or resume it with the"
                " release that began it"
            ) from None

    @property
    def digest(self) -> str:
        """A hash of the whole plan."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def check_can_resume(self, before: "Plan", folder: Path) -> None:
        """Raises `UserError` unless this plan can resume the work that `before` began in a folder.

        `on_error` may change from "fail" to "skip".
        """

        def values(plan: Plan) -> dict[str, Any]:
            found = dataclasses.asdict(plan)
            found["inputs"] = {given.path: given.size for given in plan.inputs}
            found["languages"] = {given.path: given.language for given in plan.inputs}
            return found

        for name, one, other in _differences(values(before), values(self)):
            if (name, one) == ("on_error", "fail"):
                continue
            raise UserError(
                f"{folder}: was begun with {name} {_brief(one)}, now it is {_brief(other)}; give"
                " the same options to resume it, or delete that folder to start again"
            )
        if [path for path, *_ in before.inputs] != [path for path, *_ in self.inputs]:
            raise UserError(
                f"{folder}: was begun with the inputs in another order; give them in the same"
                " order to resume it, or delete that folder to start again"
            )


def result_path(folder: Path, phase: str, number: int) -> Path:
    """Returns the result file of a phase for a number, which exists when that number is done."""
    return folder / WORK / f"{phase}-{number:05d}.json"


def _differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, value before, value now) of the differences, in nested values too."""
    for name in sorted(before.keys() | now.keys()):
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differences(one, other)
        elif one != other:
            yield name, one, other


def _brief(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _digest(path: str) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its name") from None
