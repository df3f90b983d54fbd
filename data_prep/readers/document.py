"""What a reader yields, and what it needs to be told about the text it reads."""

from dataclasses import dataclass

from official_cmlm.errors import UserError

DOCUMENTS_BY = ("blank_line", "file")
LINES = ("wrapped", "paragraphs", "sentences")
DEFAULT_MAX_LINE_BYTES = 16 << 20
DEFAULT_MAX_DOCUMENT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """One document, or one piece of a document too long to hold in memory at once.

    Attributes:
      id: unique within one run; `path#N` unless the input names its documents.
      language: a language code, as the input or the options give it.
      paragraphs: non-empty texts in reading order, runs of white space made one space.
      continues: this piece directly follows the previous `Document` of the same file, so the
        last sentence of that one and the first of this one are neighbours.
    """

    id: str
    language: str
    paragraphs: list[str]
    continues: bool = False


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read text.

    Attributes:
      documents_by: "blank_line" (a blank line ends a document) or "file" (a file is one).
      lines: "wrapped" (lines are joined up to the next blank line), "paragraphs" (a line is a
        paragraph) or "sentences" (a line is exactly one sentence, kept as its own paragraph).
      language: the language of documents that do not name their own.
      max_line_bytes: a longer line is an error, in bytes.
      max_document_bytes: plain text without a document's end for so many bytes of UTF-8 is
        yielded in pieces; bounds the memory.

    Raises:
      UserError: a value is not one of those above.
    """

    documents_by: str = "blank_line"
    lines: str = "wrapped"
    language: str = "en"
    max_line_bytes: int = DEFAULT_MAX_LINE_BYTES
    max_document_bytes: int = DEFAULT_MAX_DOCUMENT_BYTES

    def __post_init__(self) -> None:
        for name, allowed in (("documents_by", DOCUMENTS_BY), ("lines", LINES)):
            value = getattr(self, name)
            if value not in allowed:
                raise UserError(f"{name} is {value!r}; choose one of {', '.join(allowed)}")
        for name in ("max_line_bytes", "max_document_bytes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; give a positive number of bytes")
