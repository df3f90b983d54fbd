"""Trains the main-content classifier: `python -m data_prep.train_quality_classifier`.

Learns from text that is to be kept and text that is to be dropped, each a document of its own or,
with --level=sentence, each of its sentences, to tell one from the other by logistic regression;
states precision and recall on documents that it did not learn from, and writes one file for
`data_prep.stages.quality_classifier`.
"""

import hashlib
import heapq
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError, one_line
from official_cmlm.files import check_output

from .documents.sentences import split_paragraphs
from .hold_out import is_held_out, whole_documents
from .output.dropped import DropCounter
from .readers import Document, ReadOptions, ReadReport, expand_inputs, read_documents
from .readers.document import DOCUMENTS_BY, LINES, cut_id
from .stages.normalise import Normalise
from .stages.quality_classifier import SIGNALS, Features, QualityModel
from .stages.quality_training import (
    Training,
    format_table,
    precision_recall,
    scores,
    train,
)

FLAGS = flags.FLAGS


def sample(documents: Iterable[Document], count: int, seed: int) -> list[Document]:
    """Those `count` documents with the smallest hash of seed and text, in the order of the hash.

    Neither the order of the documents nor other documents' ids matter; of equal texts one stays.
    """
    # The largest hash on top; a number for each, as documents have no order.
    heap: list[tuple[int, int, Document]] = []
    kept: set[int] = set()
    for number, document in enumerate(documents):
        text = "\n".join([str(seed), *document.paragraphs]).encode("utf-8", "replace")
        key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())
        if key in kept or (len(heap) == count and key > -heap[0][0]):
            continue
        heapq.heappush(heap, (-key, number, document))
        kept.add(key)
        if len(heap) > count:
            kept.remove(-heapq.heappop(heap)[0])
    return [document for _, _, document in sorted(heap, reverse=True)]


def define_flags() -> None:
    """Defines the flags of the binary."""
    what = "text or .jsonl, plain or gzip; files, directories or patterns separated by commas"
    flags.DEFINE_list("kept", None, f"Text to keep: {what}. Required.")
    flags.DEFINE_list("dropped", None, f"Text to drop: {what}. Required.")
    flags.DEFINE_string("output", None, "JSON file to write. Required.")
    flags.DEFINE_bool("overwrite", False, "Whether to replace a file of that name.")
    flags.DEFINE_string(
        "language", "en", "Language code of the documents that do not name their own."
    )
    flags.DEFINE_enum(
        "documents_by",
        "blank_line",
        DOCUMENTS_BY,
        "Where an example of plain text ends: at a blank_line, or at the end of the file.",
    )
    flags.DEFINE_enum(
        "level",
        "document",
        ("document", "sentence"),
        "What an example is, and what the classifier judges best: a document, or each sentence of"
        " the documents (prepare --quality_level=sentence, CMLM §3).",
    )
    flags.DEFINE_enum("lines", "paragraphs", LINES, "What a line of text is; see create_documents.")
    flags.DEFINE_float(
        "held_out", 0.1, "Share of the documents to measure on.", lower_bound=0, upper_bound=0.9
    )
    flags.DEFINE_integer(
        "max_examples",
        20000,
        "Examples of either kind at most; bounds the memory.",
        lower_bound=1,
        upper_bound=100_000_000,
    )
    flags.DEFINE_integer("seed", 0, "Decides which documents are taken where there are more.")
    flags.DEFINE_float(
        "l2",
        Training.l2,
        "Cost of large weights; more helps with phrases that no example has.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "bits", Features.bits, "Weights of n-grams, as a power of 2.", lower_bound=8, upper_bound=22
    )
    cli.required("kept", "dropped", "output")


def _examples(name: str, files: list[str]) -> tuple[list[Document], list[Document]]:
    """(those to learn from, those to measure on) of the files of the flag `name`."""
    options = ReadOptions(FLAGS.documents_by, FLAGS.lines, FLAGS.language)
    report = ReadReport()
    held_out: set[str] = set()
    documents = read_documents(files, options, report)
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in sample(_normal_form(documents, held_out), FLAGS.max_examples, FLAGS.seed):
        parts[document.id in held_out].append(document)
    for warning in report.warnings():
        cli.warn(f"--{name}: {warning}")
    if not parts[0] or (FLAGS.held_out and not parts[1]):
        raise UserError(
            f"--{name}: {sum(map(len, parts))} {FLAGS.level}(s) are too few to learn from some and "
            "measure on others; give more text, or change --documents_by or --held_out"
        )
    return parts


def _normal_form(documents: Iterator[Document], held_out: set[str]) -> Iterator[Document]:
    """The documents as the classifier will see them; adds the ids of those to measure on.

    All pieces of a long document go where its beginning goes.
    """
    normalise = Normalise()
    for first, pieces in whole_documents(documents):
        measured = is_held_out(first, FLAGS.held_out)
        for piece in pieces:
            document = normalise(piece, DropCounter())
            if document is None:
                continue
            for example in _at_level(document):
                if measured:
                    held_out.add(example.id)
                yield example


def _at_level(document: Document) -> Iterator[Document]:
    """The examples of a document: itself, or with --level=sentence each of its sentences."""
    if FLAGS.level == "document":
        yield document
        return
    if FLAGS.lines == "sentences":
        sentences = document.paragraphs
    else:
        sentences = split_paragraphs(document.paragraphs, document.language, DropCounter())
    for number, sentence in enumerate(sentences):
        yield Document(cut_id(document.id, "sentence", number), document.language, [sentence])


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    output = Path(FLAGS.output)
    if not output.parent.is_dir():
        raise UserError(f"{output.parent}: no such directory; make it or change --output")
    files = {name: expand_inputs(FLAGS[name].value) for name in ("kept", "dropped")}
    check_output(FLAGS.output, FLAGS.overwrite, itertools.chain(*files.values()))
    cli.announce("reading examples …")
    kept, held_out_kept = _examples("kept", files["kept"])
    dropped, held_out_dropped = _examples("dropped", files["dropped"])
    cli.announce(f"training on {len(kept) + len(dropped)} {FLAGS.level}s …")
    model = train(kept, dropped, Features(bits=FLAGS.bits), Training(l2=FLAGS.l2))
    report: dict[str, Any] = {
        "kept": {"learned_from": len(kept), "held_out": len(held_out_kept)},
        "dropped": {"learned_from": len(dropped), "held_out": len(held_out_dropped)},
        "level": FLAGS.level,
        "l2": FLAGS.l2,
        "seed": FLAGS.seed,
    }
    if FLAGS.held_out:
        table = precision_recall(scores(model, held_out_kept), scores(model, held_out_dropped))
        report["held_out"] = table
        print(format_table(table))
    QualityModel(**(vars(model) | {"report": report})).save(output)
    strongest = sorted(zip(model.signal_weights, SIGNALS), key=lambda row: -abs(row[0]))
    print(f"signals by weight: {', '.join(f'{name} {w:+.2f}' for w, name in strongest[:6])}")
    print(
        f"{one_line(output)}: learned from {len(kept)} {FLAGS.level}s to keep and {len(dropped)}"
        f" to drop, measured on {len(held_out_kept)} and {len(held_out_dropped)}"
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
