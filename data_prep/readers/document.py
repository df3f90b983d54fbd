"""Documents and pairs, which readers yield, and the options of reading."""

from dataclasses import dataclass

# Values of `ReadOptions.on_error`.
ON_ERROR = ("fail", "skip")
DOCUMENTS_BY = ("blank_line", "file", "line")
LINES = ("wrapped", "paragraphs", "sentences")
DEFAULT_MAX_EXPANDED_BYTES = 8 << 20


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
    """

    id: str
    language: str
    paragraphs: list[str]
    continues: bool = False


def cut_id(document_id: str, stage: str, number: int) -> str:
    """Returns the id of a piece of a document from which a stage has removed a part.

    The first piece, number 0, keeps the name; each stage has its own, so that cuts of cuts stay
    unique.
    """
    return f"{document_id}#{stage}-{number}" if number else document_id


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reading text; the flags check the values.

    Attributes:
      documents_by: "blank_line" (a blank line ends a document), "file" (a file is one) or "line" (a
        line is one: lists of words, names or single sentences).
      lines: "wrapped" (lines are joined up to the next blank line), "paragraphs" (a line is a
        paragraph) or "sentences" (a line is exactly one sentence, kept as its own paragraph).
      language: the language tag of documents that do not name their own.
      max_line_bytes: a longer line is an error, in bytes.
      max_document_bytes: plain text without a document's end for this many bytes of UTF-8 is
        yielded in pieces; bounds the memory.
      max_expanded_bytes: a larger record of a crawl file (as stored or decompressed) is a fault,
        and so is a compressed file that expands to more than this and to a hundred times its own
        size. A page of HTML takes up to 150 times its size in memory.
      on_error: what a fault does: "fail" ends the run, "skip" leaves out the rest of the file, or
        the record where the file can be read on.
      tfds_data_dir: folder of data sets that TensorFlow Datasets prepared; None for its own.
      tfds_split: the split of them to read, as tfds writes it, e.g. `train[:10%]`.
      text_feature: the feature of them that holds the text.
      directory: the directory that relative paths of files start from; "": the current one.
    """

    documents_by: str = "blank_line"
    lines: str = "wrapped"
    language: str = "en"
    max_line_bytes: int = 16 << 20
    max_document_bytes: int = 8 << 20
    max_expanded_bytes: int = DEFAULT_MAX_EXPANDED_BYTES
    on_error: str = "fail"
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
    """

    texts: tuple[str, str]
    languages: tuple[str, str]
    label: str | None
    where: str
    negative: str | None = None

    @property
    def all_texts(self) -> tuple[tuple[str, str], ...]:
        """Each text with its language, the hard negative last."""
        third = () if self.negative is None else ((self.negative, self.languages[1]),)
        return (*zip(self.texts, self.languages), *third)


def one_space(text: str) -> str:
    """Returns the text with every run of white space made one space, and none at its ends."""
    return " ".join(text.split())
