"""The plan of a run: what is read, in which elements, with which options; kept beside the output.

It is what makes a run that was stopped go on: the same plan gives the same files.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from data_prep.engine.atomic import written
from data_prep.engine.options import Options, differences
from data_prep.readers import size_of
from official_cmlm.errors import UserError

FILE_NAME = "prepare.json"
WORK = "work"
# One partition's keys are in memory at once: some 24 bytes for each of its documents' keys.
_BYTES_A_PARTITION = 1 << 30
_MAX_PARTITIONS = 1024


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run does.

    Attributes:
      options: what happens to the text.
      inputs: (path, size in bytes as stored) in order.
      vocabulary: hash of the vocabulary, which is saved in the folder.
      exclude: names of files whose sentences are left out.
      files: name -> SHA-256 of the files that the options name.
    """

    options: Options
    inputs: tuple[tuple[str, int], ...]
    vocabulary: str
    exclude: tuple[str, ...] = ()
    files: dict[str, str] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def of(
        cls, paths: Sequence[str], options: Options, vocabulary: str, exclude: Iterable[str] = ()
    ) -> "Plan":
        """The plan for these paths, as `readers.expand_inputs` gives them.

        Raises:
          UserError: a file that the options name cannot be read.
        """
        named = [*exclude, *filter(None, [options.quality_model])]
        return cls(
            options,
            tuple((path, size_of(path)) for path in paths),
            vocabulary,
            tuple(exclude),
            {path: _digest(path) for path in named},
        )

    @functools.cached_property
    def elements(self) -> tuple[tuple[str, ...], ...]:
        """Bundles of consecutive paths; a file larger than an element is one by itself."""
        bundles: list[list[str]] = []
        held = 0
        for path, size in self.inputs:
            if not bundles or held + size > self.options.element_bytes:
                bundles.append([])
                held = 0
            bundles[-1].append(path)
            held += size
        return tuple(map(tuple, bundles))

    @property
    def partitions(self) -> int:
        """Into how many parts the keys of duplicates are divided."""
        total = sum(size for _, size in self.inputs)
        return min(_MAX_PARTITIONS, 1 + total // _BYTES_A_PARTITION)

    def phases(self) -> list[tuple[str, int]]:
        """(phase, how often it is computed) in order."""
        write = ("write", len(self.elements))
        if self.options.deduplicate == "off":
            return [write]
        partitions = self.partitions
        read = ("read", len(self.elements))
        return [read, ("documents", partitions), ("paragraphs", partitions), write]

    def save(self, folder: Path) -> None:
        """Writes `prepare.json`."""
        with written(folder / FILE_NAME) as file:
            file.write((json.dumps(dataclasses.asdict(self), indent=1) + "\n").encode())

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """Reads `prepare.json`."""
        values = json.loads((folder / FILE_NAME).read_bytes())
        return cls(
            Options.from_dict(values["options"]),
            tuple((path, size) for path, size in values["inputs"]),
            values["vocabulary"],
            tuple(values["exclude"]),
            values["files"],
        )

    @property
    def digest(self) -> str:
        """Changes with anything in the plan."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def check_goes_on(self, before: "Plan", folder: Path) -> None:
        """Raises `UserError` unless what `before` has begun in a folder is a part of this.

        Faults may be skipped where they stopped the run before.
        """

        def values(plan: Plan) -> dict[str, Any]:
            found = dataclasses.asdict(plan)
            found["inputs"] = dict(plan.inputs)
            return found

        for name, one, other in differences(values(before), values(self)):
            if (name, one) == ("on_error", "fail"):
                continue
            raise UserError(
                f"{folder}: was begun with {name} {_brief(one)}, now it is {_brief(other)}; give"
                " the same options to go on, or delete that folder to begin anew"
            )
        if [path for path, _ in before.inputs] != [path for path, _ in self.inputs]:
            raise UserError(
                f"{folder}: was begun with the inputs in another order; give them in the same"
                " order to go on, or delete that folder to begin anew"
            )


def result_path(folder: Path, phase: str, number: int) -> Path:
    """The file of an unfinished folder that says that a phase is done for a number."""
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
