"""How many near duplicates are found: `python -m benchmarks.duplicates`.

Of the English books below CMLM_DATA_DIR (runs of ten paragraphs are a document) 1 % are inserted
twice more, each copy with small edits of its own: typos, dropped words, changed punctuation. Recall
is the share of the copies that the near-duplicate step removes. What it removes is right if it is a
copy, or if its Jaccard similarity to an earlier document, counted and not estimated, reaches the
threshold: books have near duplicates of their own.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import flags

from data_prep.output.dropped import DropCounter
from data_prep.readers import Document, ReadOptions, ReadReport, expand_inputs, read_documents
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
_PARAGRAPHS = 10


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string("text", "", "Books to read. Default: text/en below CMLM_DATA_DIR.")
    flags.DEFINE_float("share", 0.01, "Share of the documents to insert twice.", 0, 1)
    flags.DEFINE_float("edits", 0.015, "Share of the words to edit in each copy.", 0, 1)
    flags.DEFINE_integer("seed", 0, "Of the choice and of the edits.")
    flags.DEFINE_string("output", "", "Markdown file for the figures. Default: print only.")


def read_books(paths: Sequence[str]) -> Iterator[list[Document]]:
    """A list of documents a book: runs of ten paragraphs."""
    options = ReadOptions(documents_by="file")
    for path in paths:
        paragraphs = [
            p for d in read_documents([path], options, ReadReport()) for p in d.paragraphs
        ]
        yield [
            Document(f"{path}#{at}", "en", paragraphs[at : at + _PARAGRAPHS])
            for at in range(0, len(paragraphs), _PARAGRAPHS)
        ]


def edited(document: Document, name: str, share: float, rng: random.Random) -> Document:
    """A copy with about `share` of its words edited, in the ways of scans and of other editions."""

    def edit(word: str) -> str:
        kind = rng.randrange(3)
        if kind == 0 and len(word) > 3:
            at = rng.randrange(len(word) - 1)
            return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        if kind == 1:
            return ""
        return word[:-1] if word[-1] in ".,;:!?" else word + rng.choice(",;")

    paragraphs = [
        " ".join(filter(None, (edit(w) if rng.random() < share else w for w in text.split())))
        for text in document.paragraphs
    ]
    return Document(name, document.language, [text for text in paragraphs if text])


def largest_similarities(documents: Sequence[Document], numbers: Sequence[int]) -> list[float]:
    """The exact Jaccard similarity of documents to the earlier one that is most like each.

    Args:
      documents: all, in order.
      numbers: which to compare with those before them.
    """
    import numpy as np

    from data_prep.stages.duplicates_signatures import MinHash
    from data_prep.stages.duplicates_text import analyse, shingles

    sets = [
        np.unique(shingles(analyse([" ".join(d.paragraphs)]), MinHash().shingle_words)[0])
        for d in documents
    ]
    sizes = np.array([len(own) for own in sets])
    every, owner = np.concatenate(sets), np.repeat(np.arange(len(sets)), sizes)
    order = np.argsort(every, kind="stable")
    every, owner = every[order], owner[order]
    found = []
    for number in numbers:
        starts = np.searchsorted(every, sets[number], "left")
        stops = np.searchsorted(every, sets[number], "right")
        shared = Counter(other for at, to in zip(starts, stops) for other in owner[at:to].tolist())
        values = [
            n / (sizes[number] + sizes[other] - n) for other, n in shared.items() if other < number
        ]
        found.append(max(values, default=0.0))
    return found


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    from data_prep.stages import duplicates

    books = FLAGS.text or str(Path(os.environ.get("CMLM_DATA_DIR", "")) / "text" / "en")
    if not FLAGS.text and not os.environ.get("CMLM_DATA_DIR"):
        raise UserError("no text: set CMLM_DATA_DIR, or name books with --text")
    near = duplicates.MinHash()
    documents = [document for book in read_books(expand_inputs([books])) for document in book]
    counters = DropCounter()
    exact = duplicates.DuplicateOptions(near_documents=None, paragraphs=False)
    own = list(duplicates.remove_duplicates([lambda: documents], exact, counters))
    lines = [f"{len(documents)} documents, {counters.total()} of them exact duplicates, removed"]

    rng = random.Random(FLAGS.seed)  # noqa: S311 - a sample, not a secret
    # What has no signature cannot be found by it: too short to tell an edit from another text.
    keys = duplicates.file_keys(own, duplicates.DuplicateOptions(near, paragraphs=False))
    signed = [own[number] for number in keys.documents.signed.tolist()]
    chosen = rng.sample(signed, round(FLAGS.share * len(signed)))
    copies = [
        edited(document, f"copy {copy} of {document.id}", FLAGS.edits, rng)
        for copy in range(2)
        for document in chosen
    ]
    # Anywhere, but behind what they are copies of.
    files = [own, rng.sample(copies, len(copies))]
    documents = [document for file in files for document in file]
    megabytes = sum(len(p.encode()) for d in documents for p in d.paragraphs) / 1e6
    counters = DropCounter()
    began = time.process_time()
    # With everything on, as it is used; of what is removed only documents are looked at.
    reads = [lambda file=file: file for file in files]
    options = duplicates.DuplicateOptions(near)
    losses = duplicates.find_losses(
        [duplicates.file_keys(read(), options) for read in reads], options
    )
    left = [
        document
        for number, read in enumerate(reads)
        for document in duplicates.drop(read(), losses.get(number, {}), counters)
    ]
    seconds = time.process_time() - began
    starts = (0, len(own))
    removed = sorted(
        starts[file] + document
        for file, lost in losses.items()
        for (document, _), reason in lost.items()
        # A copy of which only the punctuation was edited has the same letters as its original.
        if reason in ("duplicates/near_document", "duplicates/exact_document")
    )
    found = sum(number >= len(own) for number in removed)
    others = [number for number in removed if number < len(own)]
    alike = sum(value >= near.threshold for value in largest_similarities(documents, others))
    recall = found / max(1, len(copies))
    precision = (found + alike) / max(1, len(removed))
    lines += [
        f"{len(copies)} copies inserted, {100 * FLAGS.edits:g} % of their words edited;"
        f" {found} removed, and {len(others)} other documents, of which {alike} have a similarity"
        f" of at least {near.threshold:g} to an earlier one",
        f"signatures of {near.bands} bands of {near.rows}: recall {recall:.4f},"
        f" precision {precision:.4f}",
        f"all steps, {megabytes:.1f} MB to {len(left)} documents in {seconds:.1f} CPU-s, reading"
        f" excluded: {megabytes / seconds:.1f} MB per CPU-second",
    ]
    print("\n".join(lines))
    if FLAGS.output:
        Path(FLAGS.output).write_text("".join(f"- {line}\n" for line in lines), encoding="utf-8")
    print(f"figure near_duplicate_recall {recall:.4f}")
    print(f"figure near_duplicate_precision {precision:.4f}")
    print(f"figure duplicates_MB_per_CPU_second {megabytes / seconds:.1f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
