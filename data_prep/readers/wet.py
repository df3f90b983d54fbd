"""WET files: the text of crawled pages, one document a page."""

from collections.abc import Iterator

from data_prep.readers import crawl
from data_prep.readers.document import Document, ReadOptions
from data_prep.readers.languages import language_code
from data_prep.readers.plain_text import split_paragraphs
from data_prep.readers.report import ReadReport


def read(path: str, options: ReadOptions, report: ReadReport) -> Iterator[Document]:
    """Yields a document for each `conversion` record, with the page's URI as its id.

    A line is a paragraph, as the text of a page is not wrapped. The language is the first that
    the crawler identified (`WARC-Identified-Content-Language`), else `options.language`.

    Raises:
      UserError: as `crawl.records` does.
    """
    from fastwarc.warc import conversion

    for name, record, content in crawl.records(path, conversion, options, report):
        text = content.decode(errors="replace")
        if "\ufffd" in text:
            report.add_not_utf8(path, text.count("\ufffd") - content.count("\ufffd".encode()))
        paragraphs = split_paragraphs(text.removeprefix("\ufeff"), "paragraphs")
        if not paragraphs:
            report.drop_empty(name)
            continue
        report.documents += 1
        language = language_code(record.headers.get("WARC-Identified-Content-Language"))
        yield Document(name, language or options.language, paragraphs)
