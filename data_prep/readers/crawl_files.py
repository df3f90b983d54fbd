"""Crawl files: WARC (pages of HTML, of which the main text is kept) and WET (text of pages)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.languages import language_code
from official_cmlm.common.text_files import BrokenStreamError

from ..counts import Counts
from .document import Document, ReadOptions
from .plain_text import CountedFile, decode_text, split_paragraphs

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord, WarcRecordType


# The end of each record by the standard (ISO 28500, section 4).
_RECORD_END = b"\r\n\r\n"


def records(
    path: str, kind: "WarcRecordType", options: ReadOptions, counts: Counts
) -> Iterator[tuple[str, "WarcRecord", bytes]]:
    """Yields (the URI of the record, or `path#NUMBER`; the record, for its headers; its content).

    A record of more than `options.max_expanded_bytes` is a fault, reported before it is read.

    Args:
      path: plain, gzip or zstd, compressed as a whole or record by record.
      kind: the type of record to yield; others are passed over.
      options: `max_expanded_bytes`, and `on_error` for such a record.
      counts: counts the file, its bytes and its faults.

    Raises:
      UserError: not a crawl file, a broken one, or one cut short.
    """
    check_extra("data", "fastwarc")
    from fastwarc.warc import ArchiveIterator

    number = read = 0
    with CountedFile(path, counts, options) as file:
        stream = _Tail(file)
        try:
            # HTTP is parsed later, as the record's own length shows whether it was cut short.
            for record in ArchiveIterator(
                stream, record_types=kind, parse_http=False, stream_detect=False, fsspec_args=False
            ):
                number += 1
                name = record.headers.get("WARC-Target-URI") or f"{path}#{number}"
                if record.content_length > options.max_expanded_bytes:
                    counts.record_fault(
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
                f"{path}: not a crawl file after record {read} ({error}); fetch the file again,"
                " or choose another --reader"
            ) from None
        if not file.tell():
            counts.empty_files.append(path)
        elif stream.tail != _RECORD_END:
            raise _cut_short(path, number)


def _cut_short(path: str, number: int) -> UserError:
    return UserError(f"{path}: is cut short in or after record {number}; fetch the file again")


class _Tail:
    """A stream that remembers the last bytes that were read."""

    def __init__(self, file: CountedFile) -> None:
        self._file = file
        self.tell = file.tell
        self.tail = b""

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.tail = (self.tail + data)[-len(_RECORD_END) :]
        return data


# Blink, for one, builds no deeper trees. The time that the extraction takes grows with the square
# of the depth: 2 s at 10,000.
MAX_DEPTH = 512
_TOO_DEEP = ">".join("*" * (MAX_DEPTH + 1))
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class UnreadablePageError(Exception):
    """A page that would take too much time or memory, or is not HTML; the message says why."""


def main_text(content: bytes, charset: str | None = None) -> tuple[str, str | None]:
    """Returns the main text of a page, a line a block, and the language that the page declares.

    Args:
      content: HTML, in any encoding.
      charset: the encoding that the server names, if any; a byte order mark counts more, a
        `<meta charset>` and the look of the bytes count less.

    Raises:
      UnreadablePageError: tags nested deeper than `MAX_DEPTH`, or not HTML at all.
    """
    check_extra("data", "resiliparse")
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5
    from resiliparse.parse.html import HTMLParserException, HTMLTree

    encoding = next((name for mark, name in _BOMS.items() if content.startswith(mark)), None)
    # The charset is mapped to one of HTML5; otherwise a page could ask for any of Python's codecs.
    encoding = encoding or (charset and map_encoding_to_html5(charset, fallback_utf8=False))
    encoding = encoding or detect_encoding(content, from_html_meta=True)
    try:
        tree = HTMLTree.parse(bytes_to_str(content, encoding))
    except HTMLParserException as error:
        raise UnreadablePageError(f"not HTML: {error}") from None
    if tree.document.query_selector(_TOO_DEEP) is not None:
        raise UnreadablePageError(f"tags are nested more than {MAX_DEPTH} deep")
    root = tree.document.query_selector("html")
    language = root and (root.getattr("lang") or root.getattr("xml:lang"))
    text = extract_plain_text(tree, main_content=True, list_bullets=False, alt_texts=False)
    return text, language or None


def read_wet(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields a document for each `conversion` record, with the page's URI as its id.

    A line is a paragraph, as the text of a page is not wrapped. The language is the first that
    the crawler identified (`WARC-Identified-Content-Language`), else `options.language`.

    Raises:
      UserError: as `records` does.
    """
    check_extra("data", "fastwarc")
    from fastwarc.warc import conversion

    for name, record, content in records(path, conversion, options, counts):
        text = decode_text(content, path, counts).removeprefix("\ufeff")
        language = language_code(record.headers.get("WARC-Identified-Content-Language"))
        paragraphs = split_paragraphs(text, "paragraphs")
        yield Document(name, language or options.language, paragraphs)


_HTML_TYPES = ("text/html", "application/xhtml+xml")


def read_warc(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields a document for each page that was fetched, with its URI as its id.

    Pages are `response` records of HTML with status 200; others are counted and dropped. The
    language is the first of: what the crawler identified (`WARC-Identified-Content-Language`),
    what the page declares, what the server declares (`Content-Language`), `options.language`.

    A page that expands (chunked, gzip, …) to more than `options.max_expanded_bytes`, whose
    encoding is broken, or whose tags are nested too deeply is a fault.

    Raises:
      UserError: as `records` does.
    """
    check_extra("data", "fastwarc")
    from fastwarc.warc import response

    for name, record, content in records(path, response, options, counts):
        try:
            answer = _parse(content)
            if reason := _judge_response(record, answer):
                counts.counters.drop(reason)
                continue
            text, own_language = main_text(
                _body(answer, options.max_expanded_bytes), answer.http_charset
            )
        # The library raises an OSError that says what is wrong with the headers or the encoding.
        except (OSError, UnreadablePageError) as error:
            counts.record_fault(
                path,
                f"{path}: the page {name[:200]} cannot be read ({error}); leave it out with"
                " --on_error=skip",
                options.on_error,
            )
            continue
        paragraphs = split_paragraphs(text, "paragraphs")
        declared = (
            record.headers.get("WARC-Identified-Content-Language"),
            own_language,
            answer.http_headers.get("Content-Language"),
            options.language,
        )
        yield Document(name, next(filter(None, map(language_code, declared)), "und"), paragraphs)


def _parse(content: bytes) -> "WarcRecord":
    """Returns the server's answer in a record of its own; the file's record is still being read."""
    from fastwarc.warc import WarcRecord

    answer = WarcRecord()
    answer.is_http = True
    answer.set_bytes_content(content)
    answer.parse_http(auto_decode="all")
    return answer


def _judge_response(record: "WarcRecord", answer: "WarcRecord") -> str:
    """Returns the reason why a response is not a page of text; empty if it is one."""
    if not record.is_http or answer.http_headers is None:
        return "read/not_http"
    if answer.http_headers.status_code != 200:
        return "read/other_http_status"
    kind = record.headers.get("WARC-Identified-Payload-Type") or answer.http_content_type or ""
    return "" if kind.lower().startswith(_HTML_TYPES) else "read/not_html"


def _body(answer: "WarcRecord", max_bytes: int) -> bytes:
    body = answer.reader.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise UnreadablePageError(
            f"it expands to more than {max_bytes} bytes, see --max_expanded_mb"
        )
    return body
