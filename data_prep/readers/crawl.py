"""Records of crawl files (WARC, and its relatives such as WET), one at a time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from data_prep.readers.document import ReadOptions
from data_prep.readers.opening import BrokenStreamError, ExpandedFile
from data_prep.readers.report import ReadReport
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord, WarcRecordType

# Behind each record, by the standard (ISO 28500, section 4).
_RECORD_END = b"\r\n\r\n"


def records(
    path: str, kind: "WarcRecordType", options: ReadOptions, report: ReadReport
) -> Iterator[tuple[str, "WarcRecord", bytes]]:
    """Yields (the URI of the record, or `path#NUMBER`; the record, for its headers; its content).

    A record of more than `options.max_expanded_bytes` is a fault, told before any of it is read.

    Args:
      path: plain, gzip or zstd; whole or by the record.
      kind: the type of record to yield; others are passed over.
      options: see above.
      report: counts the file, its bytes and its faults.

    Raises:
      UserError: not a crawl file, a broken one, or one cut short.
    """
    from fastwarc.warc import ArchiveIterator

    number = read = 0
    with ExpandedFile(
        path, report, options.max_expanded_bytes, directory=options.directory
    ) as file:
        stream = _Tail(file)
        try:
            # HTTP is parsed later: a record's own length tells whether it was cut short.
            for record in ArchiveIterator(
                stream, record_types=kind, parse_http=False, stream_detect=False, fsspec_args=False
            ):
                number += 1
                name = record.headers.get("WARC-Target-URI") or f"{path}#{number}"
                if record.content_length > options.max_expanded_bytes:
                    report.record_fault(
                        path,
                        f"{path}: record {number} ({name[:200]}) holds {record.content_length}"
                        f" bytes, more than {options.max_expanded_bytes}; raise --max_expanded_mb",
                        options.on_error,
                    )
                    continue
                content = record.reader.read()
                if (record.headers.get("Content-Length") or "").strip() != str(len(content)):
                    raise _cut_short(path, number)
                read = number
                yield name, record, content
        except BrokenStreamError as error:
            raise error.at(path, f"after record {read}") from None
        except OSError as error:
            raise UserError(
                f"{path}: not a crawl file behind record {read} ({error}); fetch the file again,"
                " or choose another --reader"
            ) from None
        if not file.tell():
            report.empty_files.append(path)
        elif stream.tail != _RECORD_END:
            raise _cut_short(path, number)


def _cut_short(path: str, number: int) -> UserError:
    return UserError(f"{path}: is cut short in or behind record {number}; fetch the file again")


class _Tail:
    """Passes a stream on and remembers its last bytes."""

    def __init__(self, file: ExpandedFile) -> None:
        self._file = file
        self.tell = file.tell
        self.tail = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.tail = (self.tail + data)[-len(_RECORD_END) :]
        return data
