"""The plan of a run: what is read, in which elements, with which options.

It is saved beside the output. The same plan gives the same files, so it resumes a stopped run.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write_text, read_object
from official_cmlm.validation import read_dataclass

from ..output.folder import PLAN_FILE
from ..readers import LEAST_PART_BYTES, Part, TextFile, measure
from .options import Options, differences

FILE_NAME = PLAN_FILE
WORK = "work"
# Incremented with every change of the files that phases write.
_FORMAT = 3
# Elements whose losses are gathered at a time, from the files of all partitions.
ELEMENTS_A_GROUP = 16
# The keys of one partition are in memory at once; see `partitions`.
_BYTES_A_PARTITION = 1 << 26
_MAX_PARTITIONS = 1024


class Input(NamedTuple):
    """A file, or a data set.

    Attributes:
      path: as a reader takes it.
      size: bytes as stored.
      extent: what parts of it are counted in, bytes or examples, if it can be read in parts; else
        0.
      language: of the documents that do not name their own; empty: that of the reading options.
    """

    path: str
    size: int
    extent: int = 0
    language: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
      options: what happens to the text.
      inputs: what is read, in order.
      vocabulary: hash of the vocabulary, which is saved in the folder.
      exclude: names of files whose sentences are left out.
      files: name -> SHA-256 of the files that the options name.
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
        """The plan for these files, as `readers.expand_text_files` gives them.

        Raises:
          UserError: a file that the options name cannot be read, or a data set is not there.
        """
        named = [*exclude, *filter(None, [options.quality_model])]
        return cls(
            options,
            tuple(
                Input(path, *measure(path, options.reading, options.reader), language)
                for path, language in files
            ),
            vocabulary,
            tuple(exclude),
            {path: _digest(path) for path in named},
        )

    @functools.cached_property
    def elements(self) -> tuple[tuple[tuple[str, Part | None], ...], ...]:
        """The elements in order, each a bundle of (path, part of the file or None).

        Consecutive files are bundled up to `element_bytes`. A larger one is read in parts of that
        size and more, each an element, where that can be done, else it is one by itself.
        """
        wanted = self.options.element_bytes
        bundles: list[list[tuple[str, Part | None]]] = []
        room = 0
        for path, size, extent, _ in self.inputs:
            parts = min(size // max(wanted, LEAST_PART_BYTES), extent)
            if parts > 1:
                bounds = [extent * number // parts for number in range(parts + 1)]
                bundles += [[(path, part)] for part in itertools.pairwise(bounds)]
                room = -1
                continue
            if not bundles or size > room:
                bundles.append([])
                room = wanted
            bundles[-1].append((path, None))
            room -= size
        return tuple(map(tuple, bundles))

    @functools.cached_property
    def languages(self) -> dict[str, str]:
        """Path -> the language of its documents that do not name their own."""
        return {given.path: given.language for given in self.inputs}

    def sizes(self, phase: str) -> list[int]:
        """What each number of a phase adds to its progress bar: bytes of input, or 1."""
        if phase not in ("read", "write"):
            return [1] * dict(self.phases())[phase]
        stored = {given.path: given for given in self.inputs}
        return [
            sum(
                (part[1] - part[0]) * stored[path].size // stored[path].extent
                if part
                else stored[path].size
                for path, part in element
            )
            for element in self.elements
        ]

    @property
    def partitions(self) -> int:
        """Into how many parts the keys of duplicates are divided.

        A key is 24 bytes, and some 60 while they are sorted: one of each document and paragraph,
        and where near duplicates are looked for 20 bands of each. So a partition of 64 MiB of text
        takes some 10 MB for exact paragraphs, 30 MB for near documents of 3 kB, 250 MB for near
        paragraphs of 350 bytes. Above 64 GiB of input, with 1,024 partitions, it grows with the
        input; compressed input counts as it is stored.
        """
        total = sum(size for _, size, *_ in self.inputs)
        return min(_MAX_PARTITIONS, 1 + total // _BYTES_A_PARTITION)

    @property
    def compared(self) -> tuple[str, ...]:
        """The units whose duplicates are removed, in order: "documents", "paragraphs"."""
        return self.options.compared

    def phases(self) -> list[tuple[str, int]]:
        """(phase, how often it is computed) in order."""
        elements = len(self.elements)
        phases = [("read", elements)] if self.compared else []
        for kind in self.compared:
            groups = -(-elements // ELEMENTS_A_GROUP)
            phases += [(kind, self.partitions), (f"{kind}_lost", groups)]
        return [*phases, ("write", elements)]

    def save(self, folder: Path) -> None:
        """Writes `prepare.json`."""
        values = {"format": _FORMAT} | dataclasses.asdict(self)
        atomic_write_text(folder / FILE_NAME, json.dumps(values, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """Reads `prepare.json`; raises `UserError` if another release wrote it."""
        try:
            values = read_object(folder / FILE_NAME, f"delete {folder} to start again")
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
                f"{folder / FILE_NAME}: is not of this release ({type(error).__name__}:"
                f" {str(error)[:120]}); delete {folder} to start again, or resume it with the"
                " release that began it"
            ) from None

    @property
    def digest(self) -> str:
        """Changes with anything in the plan."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def check_can_resume(self, before: "Plan", folder: Path) -> None:
        """Raises `UserError` unless this plan can resume what `before` has begun in a folder.

        `on_error` may change from "fail" to "skip".
        """

        def values(plan: Plan) -> dict[str, Any]:
            found = dataclasses.asdict(plan)
            found["inputs"] = {given.path: given.size for given in plan.inputs}
            found["extents"] = {given.path: given.extent for given in plan.inputs}
            found["languages"] = plan.languages
            return found

        for name, one, other in differences(values(before), values(self)):
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
    """The result file of a phase for a number; it exists when that is done."""
    return folder / WORK / f"{phase}-{number:05d}.json"


def _brief(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its name") from None
