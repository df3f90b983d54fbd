"""What was left out, and why: counts by reason, with languages and examples.

A reason is a stable name, `stage/what_was_wrong`. Everything that leaves something out calls
`DropCounter.drop`, mostly by `drop_document` or, for pairs, `pairs.filters.drop_row`.
"""

import functools
import hashlib
import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..language_codes import language_code

UNKNOWN_LANGUAGE = "und"
# Length of the text of an example: enough for a person to judge it.
SAMPLE_CHARACTERS = 300

# Counters of what was changed or noted, and kept: name -> unit.
NOTED = {
    "exclude/unread_file": "evaluation files",
    "language/not_checked": "documents",
    "normalise/hyphens_mended": "words",
    "read/not_utf8": "byte sequences",
    "records/sentence_cut": "cuts",
}
# Units of what was left out, by the name of a counter or its prefix; all others count documents.
_UNITS = {
    "duplicates/exact_paragraph": "paragraphs",
    "duplicates/near_paragraph": "paragraphs",
    "exclude/row": "rows",
    "exclude/sentence": "sentences",
    "normalise/empty_paragraph": "paragraphs",
    "pairs/": "rows",
    "quality/paragraph_": "paragraphs",
    "quality/sentence_": "sentences",
    "read/unreadable_file": "files",
    "read/unreadable_record": "records",
    "read/not_http": "records",
    "read/not_html": "records",
    "read/other_http_status": "records",
    "read/without_both_languages": "rows",
    "records/sentence_without_tokens": "sentences",
}


def is_loss(name: str) -> bool:
    """Whether a counter counts what was left out; else it counts what was changed or noted."""
    return name not in NOTED


def unit(name: str) -> str:
    """The unit of a counter, in the plural; empty for counters of older releases."""
    if name in NOTED:
        return NOTED[name]
    if "/" not in name:
        return ""
    return next((unit for start, unit in _UNITS.items() if name.startswith(start)), "documents")


@dataclass
class Samples:
    """Examples of what was left out: for each reason those with the smallest hashes.

    Which ones are kept depends on the texts alone, neither on their order nor on the workers
    among which they are divided.

    Attributes:
      limit: largest number of examples of a reason.
      kept: reason -> heap of (-hash, id, beginning of the text).
    """

    limit: int
    kept: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)

    def add(self, reason: str, name: str, text: str) -> None:
        """Keeps the example if its hash is among the `limit` smallest of its reason."""
        if not self.limit:
            return
        # Half a surrogate pair in an id or a text must not stop the run.
        key = f"{name}\n{text}".encode("utf-8", "replace")
        digest = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        self.merge({reason: [(-digest, name, text[:SAMPLE_CHARACTERS])]})

    def merge(self, examples: Mapping[str, Iterable[tuple[int, str, str]]]) -> None:
        """Adds examples by reason, such as the `kept` of another worker."""
        for reason, added in examples.items():
            # The first entry of the heap has the largest hash and is the next to be replaced.
            kept = self.kept.setdefault(reason, [])
            for example in map(tuple, added):
                if example in kept:
                    continue
                if len(kept) < self.limit:
                    heapq.heappush(kept, example)
                elif example > kept[0]:
                    heapq.heapreplace(kept, example)

    def lines(self) -> Iterator[str]:
        """One JSON object {"reason", "id", "text"} for each example, sorted by reason and hash."""
        for reason, examples in sorted(self.kept.items()):
            for _, name, text in sorted(examples, reverse=True):
                example = {"reason": reason, "id": name, "text": text}
                yield json.dumps(example, ensure_ascii=False)


class DropCounter(Counter[str]):
    """A counter of reasons that also keeps languages and examples of what was left out.

    Attributes:
      languages: reason -> language -> count; a code of two or three letters, however the input
        writes it; of pairs both, as in `en-de`.
      samples: examples; none unless asked for.
    """

    def __init__(
        self,
        counts: Mapping[str, int] | Iterable[str] = (),
        languages: Mapping[str, Mapping[str, int]] | None = None,
        samples: Samples | None = None,
    ) -> None:
        """Starts with these counts; `samples` is filled from now on."""
        super().__init__(counts)
        self.languages: dict[str, Counter[str]] = defaultdict(Counter)
        for reason, found in (languages or {}).items():
            self.languages[reason] = Counter(found)
        self.samples = samples or Samples(0)

    def drop(self, reason: str, name: str, languages: Sequence[str], text: str) -> None:
        """Counts one thing that is left out.

        Args:
          reason: `stage/what_was_wrong`; `unit` says what it counts.
          name: id of what is left out.
          languages: of the text, or of both texts of a pair; empty if unknown.
          text: what is left out, or its beginning.
        """
        self[reason] += 1
        if languages:
            self.languages[reason]["-".join(map(_code, languages))] += 1
        self.samples.add(reason, name, text)

    def merge(self, other: "DropCounter") -> None:
        """Adds what another worker counted."""
        self.update(other)
        for reason, found in other.languages.items():
            self.languages[reason].update(found)
        self.samples.merge(other.samples.kept)


class _Document(Protocol):
    """The part of `readers.Document` that is needed here."""

    id: str
    language: str
    paragraphs: list[str]


def drop_document(dropped: DropCounter, reason: str, document: _Document, text: str = "") -> None:
    """Counts a document that is left out, or with `text` a paragraph or sentence of it."""
    text = text or (_opening(document.paragraphs) if dropped.samples.limit else "")
    dropped.drop(reason, document.id, (document.language,), text)


def _opening(paragraphs: list[str]) -> str:
    """As much of the beginning as a sample shows, without joining a whole book."""
    text = ""
    for paragraph in paragraphs:
        text += ("\n" if text else "") + paragraph[:SAMPLE_CHARACTERS]
        if len(text) > SAMPLE_CHARACTERS:
            break
    return text


@functools.lru_cache(maxsize=1024)
def _code(language: str) -> str:
    return language_code(language) or UNKNOWN_LANGUAGE
