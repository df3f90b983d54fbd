"""What is counted while records are written; it becomes the manifest."""

import dataclasses
from collections import Counter

from official_cmlm.records.documents import KIND
from official_cmlm.records.manifest import Manifest, Shard
from official_cmlm.tokenization import Vocabulary

from .dropped import DropCounter

_HISTOGRAM_BOUNDS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclasses.dataclass
class Statistics:
    """Totals for the manifest; a sentence that a cut repeats is counted once."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    negatives: int = 0
    languages: Counter[str] = dataclasses.field(default_factory=Counter)
    language_tokens: Counter[str] = dataclasses.field(default_factory=Counter)
    lengths: Counter[int] = dataclasses.field(default_factory=Counter)
    labels: Counter[str] = dataclasses.field(default_factory=Counter)
    counters: DropCounter = dataclasses.field(default_factory=DropCounter)

    def merge(self, other: "Statistics") -> None:
        """Adds what was counted of other documents."""
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, DropCounter):
                mine.merge(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, field.name, mine + theirs)

    def histogram(self) -> dict[str, int]:
        """Sentences by length in tokens: upper bound (inclusive) -> count, up to `inf`."""
        result = {str(bound): 0 for bound in _HISTOGRAM_BOUNDS} | {"inf": 0}
        for length, count in self.lengths.items():
            bound = next((b for b in _HISTOGRAM_BOUNDS if length <= b), None)
            result["inf" if bound is None else str(bound)] += count
        return result

    def manifest(
        self,
        vocabulary: Vocabulary,
        shards: list[Shard],
        keep_text: bool,
        kind: str = KIND,
        row_size: int = 1,
    ) -> Manifest:
        """The manifest of a folder of these records; see `Manifest` for the arguments."""
        return Manifest(
            kind=kind,
            documents=self.documents,
            records=sum(shard.records for shard in shards),
            sentences=self.sentences,
            tokens=self.tokens,
            languages=dict(self.languages),
            length_histogram=self.histogram(),
            vocabulary={
                "hash": vocabulary.hash,
                "size": len(vocabulary),
                "kind": vocabulary.kind,
                **vocabulary.settings(),
                **({"after_space": True} if kind == KIND and vocabulary.space_changes_ids else {}),
            },
            keep_text=keep_text,
            counters={name: n for name, n in sorted(self.counters.items()) if n},
            counters_by_language={
                name: dict(sorted(found.items()))
                for name, found in sorted(self.counters.languages.items())
            },
            shards=shards,
            row_size=row_size,
            labels=dict(self.labels),
            language_tokens=dict(self.language_tokens),
            negatives=self.negatives,
        )
