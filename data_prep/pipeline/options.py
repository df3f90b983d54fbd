"""The options of the document pipeline."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from official_cmlm.errors import UserError

from ..documents.records import RecordOptions
from ..readers import ReadOptions
from ..stages import Chain, Stage
from ..stages.duplicates import DuplicateOptions, MinHash
from ..stages.language_id import LanguageId
from ..stages.normalise import Normalise
from ..stages.quality_classifier import LEVELS, QualityClassifier, SentenceClassifier
from ..stages.quality_rules import QualityRules

DEDUPLICATE = ("off", "exact", "near")
DEDUPLICATE_PARAGRAPHS = ("auto", *DEDUPLICATE)


@dataclasses.dataclass(frozen=True)
class Options:
    """All that decides what is written, beside the input and the vocabulary.

    Attributes:
      reader: name of the reader; default "auto", by the file's extension.
      reading: how files are read.
      normalise: whether texts are normalised (`stages.normalise`); default false.
      language: whether languages are checked or found, and which are wanted; default "off", all.
      quality_rules: whether the published rules drop what is no running text; default false.
      quality_model: file of a trained classifier; default empty, none.
      quality_threshold: what scores less is dropped, 0 to 1; default 0.5.
      quality_level: whether "document"s, each "paragraph" or each "sentence" are judged.
      deduplicate: "off" (default), "exact" or "near": which documents go that stood anywhere in the
        whole input before.
      deduplicate_paragraphs: the same for paragraphs; default "auto": "off" where documents are,
        else "exact".
      near_threshold: share of runs of five words in common (estimated Jaccard similarity) from
        which texts are near duplicates, above 0, up to 1; default 0.75, as `MinHash` explains.
      near_bands: bands of a signature, of 8 hashes each; more find more pairs near the threshold
        and take more room, 32 bytes each of every text. Default 20, as there.
      min_paragraph_letters: a paragraph with fewer letters is never a duplicate; default 100, as
        `DuplicateOptions` explains.
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
    sample_dropped: int = 0
    records: RecordOptions = dataclasses.field(default_factory=RecordOptions)
    shard_bytes: int = 16_000_000
    element_bytes: int = 64_000_000

    def __post_init__(self) -> None:
        choices = {
            "deduplicate": DEDUPLICATE,
            "deduplicate_paragraphs": DEDUPLICATE_PARAGRAPHS,
            "quality_level": LEVELS,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UserError(
                    f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}"
                )
        for name in ("shard_bytes", "element_bytes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; give a positive number of bytes")
        for name in ("sample_dropped", "min_paragraph_letters"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}; give 0 or more")
        # Checks what is near.
        self.duplicates()

    def chain(self) -> Chain:
        """The stages between reader and records, in order."""
        return Chain(self._stages())

    def sentence_classifier(self) -> SentenceClassifier | None:
        """What judges single sentences, if anything does; a new one for each file or bundle."""
        if self.quality_model and self.quality_level == "sentence":
            return SentenceClassifier(self.quality_model, self.quality_threshold)
        return None

    @property
    def compared(self) -> tuple[str, ...]:
        """The units whose duplicates are removed, in order: "documents", "paragraphs"."""
        modes = {"documents": self.deduplicate, "paragraphs": self._paragraphs}
        return tuple(kind for kind, mode in modes.items() if mode != "off")

    def duplicates(self) -> DuplicateOptions:
        """The options of the removal of duplicates."""
        near = MinHash(bands=self.near_bands, threshold=self.near_threshold)
        return DuplicateOptions(
            near if self.deduplicate == "near" else None,
            self._paragraphs != "off",
            near if self._paragraphs == "near" else None,
            self.min_paragraph_letters,
        )

    @property
    def _paragraphs(self) -> str:
        if self.deduplicate_paragraphs != "auto":
            return self.deduplicate_paragraphs
        return "off" if self.deduplicate == "off" else "exact"

    def _stages(self) -> Iterator[Stage]:
        if self.normalise:
            yield Normalise()
        if self.language.detect != "off" or self.language.languages:
            yield self.language
        if self.quality_rules:
            yield QualityRules()
        if self.quality_model and self.quality_level != "sentence":
            yield QualityClassifier(self.quality_model, self.quality_threshold, self.quality_level)


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, value before, value now) of what differs, in nested values too."""
    for name in sorted(before.keys() | now.keys()):
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from differences(one, other)
        elif one != other:
            yield name, one, other
