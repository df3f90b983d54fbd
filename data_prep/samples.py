"""Examples of what was dropped, for a person to judge the rules by."""

import hashlib
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

# Enough of a dropped text for a person to judge it, in characters.
SAMPLE_CHARACTERS = 300


@dataclass
class Samples:
    """Examples of what was dropped: of each reason those with the smallest hashes.

    Which ones are kept depends on the documents alone, neither on their order nor on how they
    are divided among workers, whose samples `merge` joins.

    Attributes:
      limit: examples of each reason.
      kept: by reason, a heap of (-hash, document's id, text's beginning).
    """

    limit: int
    kept: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)

    def offer(self, reason: str, document_id: str, text: str) -> None:
        """Keeps the example if its hash is among the `limit` smallest of its reason."""
        # A half surrogate in an id or a text must not stop the run.
        key = f"{document_id}\n{text}".encode("utf-8", "replace")
        digest = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        self._offer(reason, (-digest, document_id, text[:SAMPLE_CHARACTERS]))

    def merge(self, other: "Samples") -> None:
        """Adds the examples of another worker."""
        for reason, examples in other.kept.items():
            for example in examples:
                self._offer(reason, tuple(example))

    def lines(self) -> Iterator[str]:
        """One JSON object {"reason", "id", "text"} for each example, sorted by reason and hash."""
        for reason, examples in sorted(self.kept.items()):
            for _, document_id, text in sorted(examples, reverse=True):
                example = {"reason": reason, "id": document_id, "text": text}
                yield json.dumps(example, ensure_ascii=False)

    def _offer(self, reason: str, example: tuple[int, str, str]) -> None:
        if not self.limit:
            return
        # A heap whose first entry has the largest hash, the next to go.
        kept = self.kept.setdefault(reason, [])
        if example in kept:
            return
        if len(kept) < self.limit:
            heapq.heappush(kept, example)
        elif example > kept[0]:
            heapq.heapreplace(kept, example)
