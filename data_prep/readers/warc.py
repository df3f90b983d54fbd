"""WARC files: crawled pages, of which the main text is kept, one document a page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from data_prep.readers import crawl, html
from data_prep.readers.document import Document, ReadOptions
from data_prep.readers.languages import language_code
from data_prep.readers.plain_text import split_paragraphs
from data_prep.readers.report import ReadReport
from data_prep.samples import SAMPLE_CHARACTERS

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

_HTML_TYPES = ("text/html", "application/xhtml+xml")


def read(path: str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """Yields a document for each page that was fetched, with its URI as its id.

    Pages are `response` records of HTML with status 200; others are counted and dropped. The
    language is the first of: what the crawler identified (`WARC-Identified-Content-Language`),
    what the page declares, what the server declares (`Content-Language`), `options.language`.

    A page that expands (chunked, gzip, …) to more than `options.max_expanded_bytes`, whose
    encoding is broken, or whose tags are nested too deeply is a fault.

    Raises:
      UserError: as `crawl.records` does.
    """
    from fastwarc.warc import response

    for name, record, content in crawl.records(path, response, options, report):
        try:
            answer = _parse(content)
            if reason := _unwanted(record, answer):
                opening = content[:SAMPLE_CHARACTERS].decode(errors="replace")
                report.drop_record(reason, name, opening)
                continue
            page = html.main_text(_body(answer, options.max_expanded_bytes), answer.http_charset)
        # Of the library an OSError, with what was wrong with the headers or the encoding.
        except (OSError, html.UnreadablePageError) as error:
            report.record_fault(
                path,
                f"{path}: the page {name[:200]} cannot be read ({error}); leave it out with"
                " --on_error=skip",
                options.on_error,
            )
            continue
        paragraphs = split_paragraphs(page.text, "paragraphs")
        if not paragraphs:
            report.drop_empty(name)
            continue
        report.documents += 1
        declared = (
            record.headers.get("WARC-Identified-Content-Language"),
            page.language,
            answer.http_headers.get("Content-Language"),
            options.language,
        )
        yield Document(name, next(filter(None, map(language_code, declared)), "und"), paragraphs)


def _parse(content: bytes) -> "WarcRecord":
    """What the server answered, in a record of its own: that of the file is still being read."""
    from fastwarc.warc import WarcRecord

    answer = WarcRecord()
    answer.is_http = True
    answer.set_bytes_content(content)
    answer.parse_http(auto_decode="all")
    return answer


def _unwanted(record: "WarcRecord", answer: "WarcRecord") -> str:
    """Why a response is no page of text; empty if it is one."""
    if not record.is_http or answer.http_headers is None:
        return "not_http"
    if answer.http_headers.status_code != 200:
        return "other_http_status"
    kind = record.headers.get("WARC-Identified-Payload-Type") or answer.http_content_type or ""
    return "" if kind.lower().startswith(_HTML_TYPES) else "not_html"


def _body(answer: "WarcRecord", max_bytes: int) -> bytes:
    body = answer.reader.read(max_bytes + 1)
    if len(body) > max_bytes:
        raise html.UnreadablePageError(
            f"it expands to more than {max_bytes} bytes, see --max_expanded_mb"
        )
    return body
