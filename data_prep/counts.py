"""The counts of a run: what was read, what was left out and why, what was written.

A reason to leave something out is a stable name, `stage/what_was_wrong`. All code that leaves
something out calls `DropCounter.drop`.
"""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from official_cmlm.common.errors import UserError
from official_cmlm.common.languages import language_code
from official_cmlm.records.documents import KIND
from official_cmlm.records.manifest import Manifest, Shard
from official_cmlm.tokenization import Vocabulary

UNKNOWN_LANGUAGE = "und"
_HISTOGRAM_BOUNDS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_Item = TypeVar("_Item")

# Counters of text that was changed or noted, and kept: name -> unit.
NOTED = {
    "exclude/unread_file": "evaluation files",
    "language/not_checked": "documents",
    "normalise/hyphens_mended": "words",
    "read/not_utf8": "byte sequences",
    "records/sentence_cut": "cuts",
}
# Units of the counters of text left out, by name or its prefix; all others count documents.
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
    "records/sentence_without_tokens": "sentences",
}


def is_removal(name: str) -> bool:
    """Returns whether a counter counts what was left out, and not what was changed or noted."""
    return name not in NOTED


def unit(name: str) -> str:
    """Returns the unit of a counter, in the plural."""
    if name in NOTED:
        return NOTED[name]
    return next((unit for start, unit in _UNITS.items() if name.startswith(start)), "documents")


class DropCounter(Counter[str]):
    """A counter of reasons that also counts the languages of the texts that were left out.

    Attributes:
      languages: reason -> language -> count; a code of two or three letters, however the input
        writes it; both codes of a pair, as in `en-de`.
    """

    def __init__(self, counts: Mapping[str, int] | Iterable[str] = ()) -> None:
        super().__init__(counts)
        self.languages: dict[str, Counter[str]] = defaultdict(Counter)

    def drop(self, reason: str, *languages: str) -> None:
        """Counts one thing that is left out.

        Args:
          reason: `stage/what_was_wrong`; `unit` says what it counts.
          *languages: of the text, or of both texts of a pair; none if unknown.
        """
        self[reason] += 1
        if languages:
            self.languages[reason]["-".join(map(_code, languages))] += 1

    def merge(self, counts: Mapping[str, int], languages: Mapping[str, Mapping[str, int]]) -> None:
        """Adds the counts of another worker."""
        self.update(counts)
        for reason, by_language in languages.items():
            self.languages[reason].update(by_language)


@functools.lru_cache(maxsize=1024)
def _code(language: str) -> str:
    return language_code(language) or UNKNOWN_LANGUAGE


@dataclasses.dataclass
class Counts:
    """The counts of a run, or of a part of it; readers, stages and writers add to them.

    Attributes:
      counters: text that was left out, changed or noted, by reason.
      files: files opened.
      lines: lines read.
      bytes: bytes of text read, after decompression.
      documents_read: documents, or pieces of documents, that the readers yielded.
      empty_files: paths of files without any text.
      not_utf8: path -> byte sequences replaced by U+FFFD.
      files_failed: path -> message, for each file whose rest was left out.
      records_failed: path -> records left out as unreadable.
      first_faults: path -> message of the first of these records.
      exclusion_faults: message of each file of evaluation sentences that could not be read to its
        end, so that some of its sentences may be left in.
      documents: documents, or rows of pairs, written; one that is cut into several records counts
        once, and so does a sentence that a cut repeats.
      sentences, tokens, negatives, scores: their sentences, tokens, hard negatives and scores.
      languages, language_tokens: language -> sentences or pairs; tokens.
      lengths: length in tokens -> sentences.
      labels: label -> rows.
    """

    counters: DropCounter = dataclasses.field(default_factory=DropCounter)
    files: int = 0
    lines: int = 0
    bytes: int = 0
    documents_read: int = 0
    empty_files: list[str] = dataclasses.field(default_factory=list)
    not_utf8: Counter[str] = dataclasses.field(default_factory=Counter)
    files_failed: dict[str, str] = dataclasses.field(default_factory=dict)
    records_failed: Counter[str] = dataclasses.field(default_factory=Counter)
    first_faults: dict[str, str] = dataclasses.field(default_factory=dict)
    exclusion_faults: list[str] = dataclasses.field(default_factory=list)
    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    negatives: int = 0
    scores: int = 0
    languages: Counter[str] = dataclasses.field(default_factory=Counter)
    language_tokens: Counter[str] = dataclasses.field(default_factory=Counter)
    lengths: Counter[int] = dataclasses.field(default_factory=Counter)
    labels: Counter[str] = dataclasses.field(default_factory=Counter)

    def merge(self, other: "Counts") -> None:
        """Adds the counts of the part that follows."""
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if isinstance(mine, DropCounter):
                mine.merge(theirs, theirs.languages)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            elif isinstance(mine, dict):
                for path, message in theirs.items():
                    mine.setdefault(path, message)
            elif isinstance(mine, list):
                mine.extend(theirs)
            else:
                setattr(self, name, mine + theirs)

    def to_json(self) -> dict[str, Any]:
        """Returns the counts as values that JSON takes."""
        return vars(self) | {"counters": [self.counters, self.counters.languages]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Counts":
        """Returns the counts that `to_json` gave."""
        counts = cls()
        counts.counters.merge(*values.pop("counters"))
        for name, value in values.items():
            if name == "lengths":
                value = {int(length): count for length, count in value.items()}
            setattr(counts, name, type(getattr(counts, name))(value))
        return counts

    def add_not_utf8(self, path: str, count: int) -> None:
        """Counts `count` replaced byte sequences of `path`."""
        if count:
            self.not_utf8[path] += count
            self.counters["read/not_utf8"] += count

    def file_fault(self, path: str, message: str) -> None:
        """Notes a file whose rest is left out."""
        self.files_failed[path] = message
        self.counters.drop("read/unreadable_file")

    def record_fault(self, path: str, message: str, on_error: str) -> None:
        """Counts a record that cannot be read, in a file that can be read on after it.

        Raises:
          UserError: with the message, if `on_error` is "fail".
        """
        if on_error == "fail":
            raise UserError(message)
        self.records_failed[path] += 1
        self.first_faults.setdefault(path, message)
        self.counters.drop("read/unreadable_record")

    def add_exclusion_faults(self, messages: Iterable[str]) -> None:
        """Notes files of evaluation sentences that could not be read to their end."""
        before = len(self.exclusion_faults)
        self.exclusion_faults += messages
        self.counters["exclude/unread_file"] += len(self.exclusion_faults) - before

    def raise_if_all_failed(self, files: int) -> None:
        """Raises `UserError` if all of the `files` files failed and none of them gave a document.

        It is called after the last file.
        """
        if files and len(self.files_failed) >= files and not self.documents_read:
            first = next(iter(self.files_failed.values()))
            raise UserError(f"none of {files} file(s) could be read to its end; the first: {first}")

    def describe_skipped(self, files: int) -> str:
        """Returns the end of a summary: how many of `files` files, and records, were skipped."""
        parts = []
        if self.files_failed:
            parts.append(f"{len(self.files_failed)} of {files} file(s) skipped")
        if count := self.records_failed.total():
            parts.append(f"{count} unreadable record(s) skipped")
        if count := self.counters["read/without_text"]:
            parts.append(f"{count} document(s) without text left out")
        return "".join(f", {part}" for part in parts)

    def warnings(self) -> list[str]:
        """Returns a line for each file with a fault."""
        lines = [f"skipped: {message}" for message in self.files_failed.values()]
        for message in self.exclusion_faults:
            lines.append(f"not excluded: {message}; sentences of it may be in the records")
        for path, count in self.records_failed.items():
            more = f" (and {count - 1} more of this file)" if count > 1 else ""
            lines.append(f"skipped a record: {self.first_faults[path]}{more}")
        lines += [f"{path}: the file is empty" for path in self.empty_files]
        for path, count in self.not_utf8.items():
            what = "byte sequence was" if count == 1 else "byte sequences were"
            lines.append(f"{path}: {count} {what} not UTF-8 and {what.split()[-1]} replaced")
        return lines

    def histogram(self) -> dict[str, int]:
        """Returns sentences by length in tokens: upper bound (inclusive) -> count, up to `inf`."""
        result = {str(bound): 0 for bound in _HISTOGRAM_BOUNDS} | {"inf": 0}
        for length, count in self.lengths.items():
            result[next((str(b) for b in _HISTOGRAM_BOUNDS if length <= b), "inf")] += count
        return result

    def manifest(
        self,
        vocabulary: Vocabulary,
        shards: list[Shard],
        keep_text: bool,
        kind: str = KIND,
        row_size: int = 1,
    ) -> Manifest:
        """Returns the manifest of a folder of these records; see `Manifest` for the arguments."""
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
                name: dict(sorted(by_language.items()))
                for name, by_language in sorted(self.counters.languages.items())
            },
            shards=shards,
            row_size=row_size,
            labels=dict(self.labels),
            language_tokens=dict(self.language_tokens),
            negatives=self.negatives,
            scores=self.scores,
        )


def guard_faults(
    path: str, items: Iterator[_Item], on_error: str, counts: Counts
) -> Iterator[_Item]:
    """Passes on the items of one file; decides what `on_error` does with a fault.

    Args:
      path: names the file in `counts.files_failed`.
      items: yielded by a reader; its `UserError` is a fault of the file.
      on_error: "fail" passes the fault on; "skip" notes it and ends, as if the file did, and what
        was yielded before stays.
      counts: counts the fault.

    Raises:
      UserError: the fault, if `on_error` is "fail".
    """
    try:
        yield from items
    except UserError as error:
        if on_error == "fail":
            raise
        counts.file_fault(path, str(error))
