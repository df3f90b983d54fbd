"""What a run of `data_prep.prepare` does to text."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from data_prep.documents import RecordOptions
from data_prep.readers import ReadOptions
from data_prep.stages import Chain, Stage
from data_prep.stages.duplicates import DuplicateOptions, MinHash
from data_prep.stages.language_id import LanguageId
from data_prep.stages.normalise import Normalise
from data_prep.stages.quality_classifier import QualityClassifier
from data_prep.stages.quality_rules import QualityRules
from official_cmlm.errors import UserError

DEDUPLICATE = ("off", "exact", "near")


@dataclasses.dataclass(frozen=True)
class Options:
    """All that decides what is written, beside the input and the vocabulary.

    Attributes:
      reader: name of the reader; default "auto", by the file's extension.
      reading: how files are read.
      normalise: whether texts are brought to one form; default true.
      language: whether languages are checked or found, and which are wanted; default "off", all.
      quality_rules: whether the published rules drop what is no running text; default false.
      quality_model: file of a trained classifier; default empty, none.
      quality_threshold: what scores less is dropped, 0 to 1; default 0.5.
      quality_level: whether "document"s or each "paragraph" are judged.
      deduplicate: "off", "exact" (default) or "near": which duplicates over the whole input go,
        documents and, if they are exact, paragraphs.
      sample_dropped: examples of each reason that are kept for a person to read; default 0.
      records: how documents become records.
      shard_bytes: size after which a new shard begins; default 16 MB.
      element_bytes: files are bundled up to so many bytes as stored; default 64 MB. More bytes are
        fewer and larger shards, fewer bytes lose less work when a run is stopped.

    Raises:
      UserError: a value is out of range.
    """

    reader: str = "auto"
    reading: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    normalise: bool = True
    language: LanguageId = dataclasses.field(default_factory=lambda: LanguageId("off"))
    quality_rules: bool = False
    quality_model: str = ""
    quality_threshold: float = 0.5
    quality_level: str = "document"
    deduplicate: str = "exact"
    sample_dropped: int = 0
    records: RecordOptions = dataclasses.field(default_factory=RecordOptions)
    shard_bytes: int = 16_000_000
    element_bytes: int = 64_000_000

    def __post_init__(self) -> None:
        if self.deduplicate not in DEDUPLICATE:
            raise UserError(
                f"deduplicate is {self.deduplicate!r}; choose one of {', '.join(DEDUPLICATE)}"
            )
        for name in ("shard_bytes", "element_bytes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; give a positive number of bytes")
        if self.sample_dropped < 0:
            raise UserError(f"sample_dropped is {self.sample_dropped}; give 0 or more")

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Options":
        """The options that `dataclasses.asdict` and JSON made these values of."""
        language = dict(values["language"])
        language["languages"] = tuple(language["languages"])
        return cls(
            **values
            | {
                "reading": ReadOptions(**values["reading"]),
                "language": LanguageId(**language),
                "records": RecordOptions(**values["records"]),
            }
        )

    def chain(self) -> Chain:
        """The stages between reader and records, in order."""
        return Chain(self._stages())

    def duplicates(self) -> DuplicateOptions:
        """What is a duplicate, where they do not stay."""
        return DuplicateOptions(MinHash() if self.deduplicate == "near" else None)

    def _stages(self) -> Iterator[Stage]:
        if self.normalise:
            yield Normalise()
        if self.language.detect != "off" or self.language.languages:
            yield self.language
        if self.quality_rules:
            yield QualityRules()
        if self.quality_model:
            yield QualityClassifier(self.quality_model, self.quality_threshold, self.quality_level)


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, value before, value now) of what differs, in nested values too."""
    for name in sorted(before.keys() | now.keys()):
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other)
        elif one != other:
            yield name, one, other
