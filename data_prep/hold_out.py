"""Splits documents into a training and a held-out part: `cmlm hold-out`.

A hash of its text decides which part a document belongs to. So it stays there when other documents
are added or removed, and identical documents are always in the same part.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, check_output
from official_cmlm.common.validation import between

from . import common_flags
from .counts import Counts
from .output.report import finish
from .readers import Document
from .readers.document import cut_id
from .readers.jsonl import to_line
from .sentences import split_paragraphs
from .stages import group_pieces


@dataclasses.dataclass(frozen=True)
class Options:
    """The two parts that documents are divided into.

    Attributes:
      train_output: JSONL file for the training documents.
      held_out_output: JSONL file for the others.
      overwrite: whether to replace files of these names.
      share: share of the documents to hold out.
      sentences: whether each sentence counts as a document of its own.
    """

    train_output: str
    held_out_output: str
    overwrite: bool = False
    share: Annotated[float, between(0, 1)] = 0.05
    sentences: bool = False


def is_held_out(document: Document, share: float) -> bool:
    """Returns whether a document is held out; `share` is the size of the held-out part, 0 to 1."""
    digest = hashlib.sha256("\n".join(document.paragraphs).encode("utf-8", "replace")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def split(documents: Iterable[Document], counts: Counts) -> Iterator[Document]:
    """Yields the sentences of documents, each as a document."""
    for document in documents:
        sentences = split_paragraphs(document.paragraphs, document.language, counts.counters)
        for number, sentence in enumerate(sentences):
            name = cut_id(document.id, "sentence", number)
            yield Document(name, document.language, [sentence])


def define_flags() -> None:
    """Defines the flags of reading, of the two outputs and of the share."""
    common_flags.define_reading()
    cli.define(Options)


def main() -> int:
    """Runs the binary."""
    options, counts = cli.read(Options), Counts()
    files = common_flags.text_files()
    names = [options.train_output, options.held_out_output]
    for number, name in enumerate(names):
        check_output(name, options.overwrite, (file.path for file in files), names[:number])
    outputs = [Path(name) for name in names]
    documents = common_flags.read_text(files, counts)
    if options.sentences:
        documents = split(documents, counts)
    cli.announce(f"reading {len(files)} file(s) …")
    written, unit = [0, 0], "sentences" if options.sentences else "documents"
    with ExitStack() as stack:
        for path in outputs:
            path.parent.mkdir(parents=True, exist_ok=True)
        # The training part gets its name last: if it exists, both do.
        parts = [stack.enter_context(atomic_write(path)) for path in outputs]
        for pieces in group_pieces(documents, lambda piece: piece.continues):
            # The first piece decides for all.
            first = next(pieces)
            part = int(is_held_out(first, options.share))
            for piece in itertools.chain([first], pieces):
                parts[part].write(to_line(piece))
            written[part] += 1
        if not written[0] or not written[1]:
            hint = "give more text"
            if not options.sentences:
                hint += f", or change --documents_by (now {common_flags.FLAGS.documents_by}; "
                hint += "DOCUMENTS_BY of make demo)"
            raise UserError(
                f"too few {unit}, {sum(written)}, to train on some and hold others out; {hint}"
            )
    summary = f"{written[0]} {unit} to train on, {written[1]} held out"
    return finish(summary, counts, len(files))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
