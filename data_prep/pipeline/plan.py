"""The plan of a run: what is read, in which elements, with which options.

It is saved beside the output. The same plan gives the same files, so it resumes a stopped run.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import sha256
from official_cmlm.common.job import Part
from official_cmlm.common.validation import Flag, between

from ..output.documents import RecordOptions
from ..readers import ReadOptions, TextFile, get_stored_size
from ..stages import Stage
from ..stages.duplicates import DuplicateOptions
from ..stages.language_id import LanguageId
from ..stages.normalise import normalise_document
from ..stages.quality_classifier import QualityClassifier, SentenceClassifier
from ..stages.quality_rules import QualityRules

# Incremented with every change of the files that phases write.
_FORMAT = 9
# Number of elements whose duplicates are collected at a time, from the files of all partitions.
ELEMENTS_A_GROUP = 16
# The keys of one partition are in memory at once; see `partitions`.
_BYTES_A_PARTITION = 1 << 26
_MAX_PARTITIONS = 1024


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that decide what is written; by default nothing is changed or dropped.

    Attributes:
      reader: name of a reader, see `readers.reader_for`.
      reading: how files are read.
      normalise: whether to bring text to Unicode's form C, without control characters.
      language: whether languages are checked or found, and which are kept; default: all.
      quality_rules: whether to drop text that is not running text by C4's and Gopher's rules.
      quality: a trained classifier, which drops texts with low scores; default: none.
      duplicates: the documents and paragraphs that are removed as duplicates; default: none.
      records: how documents become records.
      element_bytes: work of a worker at a time, in megabytes (10^6 bytes) as stored; it has shards
        of its own. Files are bundled up to this size; a larger file is one piece of work, so divide
        it first (split -l, or data sets by --tfds_split).
    """

    reader: str = "auto"
    reading: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    normalise: bool = False
    language: LanguageId = dataclasses.field(default_factory=LanguageId)
    quality_rules: bool = False
    quality: QualityClassifier = dataclasses.field(default_factory=QualityClassifier)
    duplicates: DuplicateOptions = dataclasses.field(default_factory=DuplicateOptions)
    records: RecordOptions = dataclasses.field(default_factory=RecordOptions)
    element_bytes: Annotated[int, between(1, 10**12), Flag("element_mb", 10**6)] = 64_000_000

    def stages(self) -> Iterator[Stage]:
        """Yields the stages between reader and records, in order."""
        if self.normalise:
            yield normalise_document
        if self.language.detect != "off" or self.language.languages:
            yield self.language
        if self.quality_rules:
            yield QualityRules()
        if self.quality.model and self.quality.level != "sentence":
            yield self.quality

    def sentence_classifier(self) -> SentenceClassifier | None:
        """Returns the classifier of single sentences, if any; a new one for each element."""
        if self.quality.model and self.quality.level == "sentence":
            return SentenceClassifier(self.quality.model, self.quality.threshold)
        return None


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
        named = [*exclude, *filter(None, [options.quality.model])]
        return cls(
            options,
            tuple(
                Input(path, get_stored_size(path, options.reading), language)
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

    @property
    def partitions(self) -> int:
        """The number of partitions of the keys of duplicates.

        A key is 24 bytes, and some 60 while keys are sorted: one of each document and paragraph,
        and 20 bands of each where near duplicates are looked for. So a partition of 64 MiB of text
        takes some 10 MB for exact paragraphs, 30 MB for near documents of 3 kB, 250 MB for near
        paragraphs of 350 bytes. Above 64 GiB of input, with 1,024 partitions, it grows with the
        input; compressed input counts as it is stored.
        """
        total = sum(size for _, size, *_ in self.inputs)
        return min(_MAX_PARTITIONS, 1 + total // _BYTES_A_PARTITION)

    def list_phases(self) -> list[tuple[str, list[Part]]]:
        """Returns (phase, its parts) in order; a part's size is bytes of input, or 1."""
        elements = [sum(item.size for item in element) for element in self.elements]
        ways = self.options.duplicates.ways
        phases = [("read", elements)] if ways else []
        for kind in ways:
            groups = -(-len(elements) // ELEMENTS_A_GROUP)
            phases += [
                (f"compare_{kind}", [1] * self.partitions),
                (f"collect_{kind}", [1] * groups),
            ]
        return [
            (phase, [Part(f"{phase}-{n:05d}", (phase, n), size) for n, size in enumerate(sizes)])
            for phase, sizes in [*phases, ("write", elements)]
        ]

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `prepare.json`."""
        inputs = {item.path: {"size": item.size, "language": item.language} for item in self.inputs}
        order = hashlib.sha256(os.fsencode("\n".join(item.path for item in self.inputs)))
        return {
            "format": _FORMAT,
            "options": dataclasses.asdict(self.options),
            "inputs": inputs,
            "order_of_inputs": order.hexdigest()[:16],
            "vocabulary": self.vocabulary,
            "exclude": self.exclude,
            "files": self.files,
        }


def may_change(name: str, before: Any, now: Any) -> bool:
    """Returns whether a run may go on with another value; see `Job`."""
    return (name, before, now) == ("options.reading.on_error", "fail", "skip")


def _digest(path: str) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its name") from None
