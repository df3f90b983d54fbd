"""Documents and pairs, which readers yield, and the options of reading."""

from dataclasses import dataclass
from typing import Annotated

from official_cmlm.common.validation import Flag, OneOf, between

# Values of `ReadOptions.on_error`.
ON_ERROR = ("fail", "skip")
DOCUMENTS_BY = ("blank_line", "file", "line")
LINES = ("wrapped", "paragraphs", "sentences")


@dataclass(frozen=True, slots=True)
class Document:
    """One document, or one piece of a document too long to hold in memory at once.

    Attributes:
      id: the input's own name of the document; else `path#N`, where N is the byte of the file,
        decompressed, at which the document begins, or the number of a record or an example. Unique
        within one run if the input's own names are; the URIs of a crawl that fetched a page twice
        are not. The pieces of a document that was cut have the names of `cut_id`.
      language: a language code, as the input or the options give it.
      paragraphs: non-empty texts in reading order, runs of white space made one space.
      continues: this piece directly follows the previous `Document` of the same file, so the
        last sentence of that one and the first of this one are neighbours.
      line: the line of the input that the only paragraph is, with its own white space; empty where
        a document is not one line, or a stage has changed it.
    """

    id: str
    language: str
    paragraphs: list[str]
    continues: bool = False
    line: str = ""


def cut_id(document_id: str, stage: str, number: int) -> str:
    """Returns the id of a piece of a document from which a stage has removed a part.

    The first piece, number 0, keeps the name; each stage has its own, so that cuts of cuts stay
    unique.
    """
    return f"{document_id}#{stage}-{number}" if number else document_id


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading text.

    Attributes:
      documents_by: where a document of plain text ends: at a blank_line, at the end of the file, or
        of each line, as in lists of words or single sentences, whose duplicates data_prep.prepare
        --deduplicate removes.
      lines: meaning of a line of text: a part of a paragraph that ends at a blank line (wrapped), a
        whole paragraph (paragraphs), or exactly one sentence (sentences).
      language: language code of the documents that do not name their own.
      max_line_bytes: longest line allowed, in MiB (2^20 bytes); a longer one is an error. Bounds
        the memory.
      max_document_bytes: plain text without a document's end for this many bytes of UTF-8 is
        yielded in pieces; bounds the memory.
      max_expanded_bytes: largest record of a crawl file, in MiB (2^20 bytes), as stored or
        decompressed; and most content of a compressed file that expands a hundredfold (a zip bomb).
        More is a fault. A page of HTML takes up to 150 times its size in memory.
      on_error: effect of a file that cannot be read (cut short, corrupt, UTF-16, a line too long,
        broken JSON, …): fail stops; skip names and counts it, leaves out the rest of it, or only
        the record where the file can be read on, and goes on. If anything was skipped the exit
        status is 3, or 1 if nothing could be read at all.
      tfds_data_dir: folder in which the data sets were prepared. Default: tfds's own.
      tfds_split: split of the data sets to read, as tfds writes it, e.g. `train[:10%]`.
      text_feature: feature of the data sets that holds the text.
      directory: the directory that relative paths of files start from; "": the current one.
    """

    documents_by: Annotated[str, OneOf(DOCUMENTS_BY)] = "blank_line"
    lines: Annotated[str, OneOf(LINES)] = "wrapped"
    language: str = "en"
    # A line is in memory several times.
    max_line_bytes: Annotated[int, between(1, 2 << 30), Flag("max_line_mb", 1 << 20)] = 16 << 20
    max_document_bytes: int = 8 << 20
    max_expanded_bytes: Annotated[int, between(1, 1 << 40), Flag("max_expanded_mb", 1 << 20)] = (
        8 << 20
    )
    on_error: Annotated[str, OneOf(ON_ERROR)] = "fail"
    tfds_data_dir: str | None = None
    tfds_split: str = "train"
    text_feature: str = "text"
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that belong together, perhaps with a third that does not.

    Attributes:
      texts: both, runs of white space made one space; either may be empty.
      languages: language of each.
      label: name of the pair's class, or None.
      where: `path:line` of the pair, for messages.
      negative: a hard negative, a text that might be taken for the second but is not a match of the
        first; in the second's language, not empty. None: the pair has none.
      score: how similar both texts are, from 0 to 1, or None.
    """

    texts: tuple[str, str]
    languages: tuple[str, str]
    label: str | None
    where: str
    negative: str | None = None
    score: float | None = None

    @property
    def all_texts(self) -> tuple[tuple[str, str], ...]:
        """Each text with its language, the hard negative last."""
        third = () if self.negative is None else ((self.negative, self.languages[1]),)
        return (*zip(self.texts, self.languages), *third)


def one_space(text: str) -> str:
    """Returns the text with every run of white space made one space, and none at its ends."""
    return " ".join(text.split())
