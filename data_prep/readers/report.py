"""What was read, what was left out, and what happens where a file cannot be read."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from official_cmlm.errors import UserError

from ..output.dropped import Samples

ON_ERROR = ("fail", "skip")
_Item = TypeVar("_Item")


@dataclass(slots=True)
class ReadReport:
    """What was read so far; readers add to it as they go.

    Attributes:
      files: files opened.
      lines: lines read.
      bytes: bytes of text read, after decompression.
      documents: documents (or pieces of documents) yielded.
      empty_files: paths of files without any text.
      empty_documents: documents dropped because they held no text.
      not_utf8: number of byte sequences replaced by U+FFFD, by path; clean files are absent.
      files_failed: message by path, for each file of which the rest was left out.
      records_failed: for each path the number of records left out as unreadable, and the message
        of the first.
      records_dropped: records that are readable, but not what the reader is for, by reason.
      exclusion_faults: message of each file of evaluation sentences that could not be read to its
        end, so that some of its sentences may be left in.
      samples: examples of what was left out, under the names of `counters`; none unless asked
        for.
    """

    files: int = 0
    lines: int = 0
    bytes: int = 0
    documents: int = 0
    empty_files: list[str] = field(default_factory=list)
    empty_documents: int = 0
    not_utf8: dict[str, int] = field(default_factory=dict)
    files_failed: dict[str, str] = field(default_factory=dict)
    records_failed: dict[str, tuple[int, str]] = field(default_factory=dict)
    records_dropped: Counter[str] = field(default_factory=Counter)
    exclusion_faults: list[str] = field(default_factory=list)
    samples: Samples = field(default_factory=lambda: Samples(0))

    def merge(self, other: "ReadReport") -> None:
        """Adds what was read of other files."""
        self.files += other.files
        self.lines += other.lines
        self.bytes += other.bytes
        self.documents += other.documents
        self.empty_files += other.empty_files
        self.empty_documents += other.empty_documents
        for path, count in other.not_utf8.items():
            self.add_not_utf8(path, count)
        self.files_failed.update(other.files_failed)
        for path, (count, first) in other.records_failed.items():
            before, message = self.records_failed.get(path, (0, first))
            self.records_failed[path] = (before + count, message)
        self.records_dropped.update(other.records_dropped)
        self.exclusion_faults += other.exclusion_faults
        self.samples.merge(other.samples.kept)

    def add_not_utf8(self, path: str, count: int) -> None:
        """Counts `count` replaced byte sequences of `path`."""
        if count:
            self.not_utf8[path] = self.not_utf8.get(path, 0) + count

    def drop_empty(self, name: str) -> None:
        """Counts a document without text; `name` is its id."""
        self.empty_documents += 1
        self.samples.add("read/without_text", name, "")

    def drop_record(self, reason: str, name: str, text: str = "") -> None:
        """Counts a record that is not what the reader is for; `text` is what is known of it."""
        self.records_dropped[reason] += 1
        self.samples.add(f"read/{reason}", name, text)

    def record_fault(self, path: str, message: str, on_error: str) -> None:
        """Counts a record that cannot be read, where the file can be read on behind it.

        Raises:
          UserError: with the message, if `on_error` is "fail".
        """
        if on_error == "fail":
            raise UserError(message)
        count, first = self.records_failed.get(path, (0, message))
        self.records_failed[path] = (count + 1, first)
        self.samples.add("read/unreadable_record", path, message)

    def raise_if_all_failed(self, files: int) -> None:
        """To be called after the last of `files` files.

        Raises:
          UserError: not one of them could be read to its end, and they gave no document before.
        """
        if files and len(self.files_failed) >= files and not self.documents:
            first = next(iter(self.files_failed.values()))
            raise UserError(f"none of {files} file(s) could be read to its end; the first: {first}")

    def counters(self) -> dict[str, int]:
        """What was left out or mended, by `stage/reason`; for a manifest."""
        return {
            "exclude/unread_file": len(self.exclusion_faults),
            "read/not_utf8": sum(self.not_utf8.values()),
            "read/unreadable_file": len(self.files_failed),
            "read/unreadable_record": sum(count for count, _ in self.records_failed.values()),
            "read/without_text": self.empty_documents,
            **{f"read/{reason}": count for reason, count in self.records_dropped.items()},
        }

    def skipped(self, files: int) -> str:
        """The part of a summary that says what of `files` files was skipped; often empty."""
        parts = []
        if self.files_failed:
            parts.append(f"{len(self.files_failed)} of {files} file(s) skipped")
        if count := sum(count for count, _ in self.records_failed.values()):
            parts.append(f"{count} unreadable record(s) skipped")
        if self.empty_documents:
            parts.append(f"{self.empty_documents} document(s) without text left out")
        return "".join(f", {part}" for part in parts)

    def warnings(self) -> list[str]:
        """One line for each file that was not quite as it should be."""
        lines = [f"skipped: {message}" for message in self.files_failed.values()]
        for message in self.exclusion_faults:
            lines.append(f"not excluded: {message}; sentences of it may be in the records")
        for count, first in self.records_failed.values():
            more = f" (and {count - 1} more of this file)" if count > 1 else ""
            lines.append(f"skipped a record: {first}{more}")
        lines += [f"{path}: the file is empty" for path in self.empty_files]
        for path, count in self.not_utf8.items():
            what = "byte sequence was" if count == 1 else "byte sequences were"
            lines.append(f"{path}: {count} {what} not UTF-8 and {what.split()[-1]} replaced")
        return lines


def guarded(
    path: str, items: Iterator[_Item], on_error: str, report: ReadReport
) -> Iterator[_Item]:
    """Passes on what is read from one file; the one place where `on_error` is decided.

    Args:
      path: names the file in `report.files_failed`.
      items: what a reader yields; a `UserError` of it is a fault of the file.
      on_error: "fail" passes the fault on; "skip" notes it and ends, as if the file did. What was
        yielded before stays.
      report: counts the fault.

    Raises:
      UserError: the fault, if `on_error` is "fail".
    """
    try:
        yield from items
    except UserError as error:
        if on_error == "fail":
            raise
        report.files_failed[path] = str(error)
        report.samples.add("read/unreadable_file", path, str(error))
