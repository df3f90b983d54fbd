"""The text of PDF and Word files."""

import html
import io
import logging
import zipfile
from collections.abc import Mapping

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import read_bytes

_ADVICE = "save it again, without a password"
# Characters of a PDF, and bytes of a Word file's markup; the Bible has 4 million characters.
_MOST = 1 << 26


def read_pdf(path: str) -> list[str]:
    """Returns the text of each page; raises `UserError` if it cannot be read or no page has any."""
    check_extra("documents", "pypdf")
    import pypdf

    # The package logs each fault that it mends in a file.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    pages, left = list[str](), _MOST
    with guard_reading(path, _ADVICE):
        for page in pypdf.PdfReader(io.BytesIO(read_bytes(path))).pages:
            pages.append(page.extract_text())
            left -= len(pages[-1])
            if left < 0:
                raise UserError(f"more than {_MOST} characters; split it")
    if not any(map(str.strip, pages)):
        raise UserError(f"{path}: {len(pages)} pages without text; are they scanned? OCR adds it")
    return pages


def read_docx(path: str) -> str:
    """Returns the paragraphs of a Word file that have text, as lines of HTML."""
    from lxml import etree

    parser = etree.XMLParser(target=_Paragraphs(), resolve_entities=False, huge_tree=True)
    with guard_reading(path, _ADVICE), zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
        part = archive.getinfo("word/document.xml")
        # No more than this size is expanded.
        if part.file_size > _MOST:
            raise UserError(f"its text expands to {part.file_size} bytes, at most {_MOST} are read")
        with archive.open(part) as file:
            return etree.parse(file, parser)


class _Paragraphs:
    """The lines of `read_docx`, as lxml's parser meets the elements."""

    def __init__(self) -> None:
        self._lines, self._texts, self._tag = list[str](), list[str](), "p"
        self._is_text, self._fallbacks = False, 0

    def doctype(self, *names: str) -> None:
        raise UserError("declares entities, as Word never does")

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        name = name.rpartition("}")[2]
        # A drawing is stored once more for old programs.
        self._fallbacks += name == "Fallback"
        self._is_text = name == "t" and not self._fallbacks
        if name in ("tab", "br", "cr"):
            self._texts.append(" ")
        elif name == "pStyle":
            is_heading = "".join(attributes.values()).startswith(("Heading", "Title"))
            self._tag = "h1" if is_heading else "p"

    def end(self, name: str) -> None:
        name = name.rpartition("}")[2]
        self._fallbacks -= name == "Fallback"
        self._is_text = False
        if name == "p":
            if text := " ".join("".join(self._texts).split()):
                self._lines.append(f"<{self._tag}>{html.escape(text)}</{self._tag}>")
            self._texts, self._tag = [], "p"

    def data(self, data: str) -> None:
        if self._is_text:
            self._texts.append(data)

    def close(self) -> str:
        return "\n".join(self._lines)
