"""Removes exact and near duplicates, documents and paragraphs, over all files: the earliest stays.

A combine by key: no machine needs to see all text, and the result depends neither on the order of
processing nor on how the input is divided among machines.

1. For each file: `file_keys`, and from them the `members` of its documents. For each key: `losers`,
   the members to remove. Grouped by file: `losses_by_file`.
2. The same for the paragraphs of the documents that stay (`Units.without`), so that a paragraph is
   never removed in favour of one in a document that is removed itself.
3. For each file: `drop`.

`remove_duplicates` does all of it on one machine.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ..output.dropped import DropCounter, drop_document
from ..readers.document import Document, cut_id
from .duplicates_keys import (
    EXACT_DOCUMENT,
    EXACT_PARAGRAPH,
    NEAR_DOCUMENT,
    NEAR_PARAGRAPH,
    WHOLE,
    DuplicateOptions,
    FileKeys,
    Member,
    Place,
    Units,
    file_keys,
    members,
    repeated_members,
)
from .duplicates_signatures import MinHash, similarities

__all__ = [
    "REASONS",
    "DuplicateOptions",
    "FileKeys",
    "Loss",
    "Losses",
    "MinHash",
    "drop",
    "file_keys",
    "find_losses",
    "losers",
    "losses_by_file",
    "members",
    "merge",
    "remove_duplicates",
]

# By the first byte of the key. Where several apply, the alphabetically first is counted.
REASONS = {
    EXACT_DOCUMENT: "duplicates/exact_document",
    EXACT_PARAGRAPH: "duplicates/exact_paragraph",
    NEAR_DOCUMENT: "duplicates/near_document",
    NEAR_PARAGRAPH: "duplicates/near_paragraph",
}
# A place that is removed, and the reason.
Loss = tuple[Place, str]
# Of one file: (document number, paragraph number or `WHOLE`) -> reason.
Losses = Mapping[tuple[int, int], str]


def merge(one: Collection[Member], other: Collection[Member]) -> tuple[Member, ...]:
    """Two groups of members of one key as one: associative, commutative and idempotent."""
    return tuple(sorted({*one, *other}))


def losers(key: bytes, group: Iterable[Member], options: DuplicateOptions) -> Iterator[Loss]:
    """Yields the members of a key that are removed; the order of `group` does not matter.

    Of an exact key all but the earliest place, in memory that does not grow with the group. Of a
    band key those whose estimated similarity to an earlier member that stays in this group is at
    least `threshold`. That earlier member may be removed by another key, but only because of a
    still earlier similar one, so one of several similar texts always stays.

    Args:
      key: as `members` yields it.
      group: all members of the key.
      options: those of `file_keys`.
    """
    near, reason = options.near(key), REASONS[key[:1]]
    if near is None:
        yield from ((place, reason) for place in _all_but_the_first(group))
        return
    ordered = sorted(set(group))
    places = [place for place, _ in ordered]
    rows = np.frombuffer(b"".join(signature for _, signature in ordered), np.uint8)
    rows = rows.reshape(len(places), near.permutations)
    left = np.arange(len(places))
    while len(left) > 1:
        alike = similarities(rows[left[0]], rows[left[1:]]) >= near.threshold
        yield from ((places[at], reason) for at in left[1:][alike])
        left = left[1:][~alike]


def _all_but_the_first(group: Iterable[Member]) -> Iterator[Place]:
    first: Place | None = None
    for place, _ in group:
        if first is None or place < first:
            first, place = place, first
        if place is not None and place != first:
            yield place


def losses_by_file(losses: Iterable[Loss]) -> dict[int, Losses]:
    """What is removed from each file; of several reasons the alphabetically first counts."""
    files: dict[int, dict[tuple[int, int], str]] = defaultdict(dict)
    for (file, *place), reason in losses:
        found = files[file]
        found[tuple(place)] = min(reason, found.get(tuple(place), reason))
    return files


def find_losses(files: Sequence[FileKeys], options: DuplicateOptions) -> dict[int, Losses]:
    """What is removed from each file, computed on one machine.

    Args:
      files: keys of all files; their order decides which place is the earliest.
      options: those of `file_keys`.
    """

    def lost(units: list[Units]) -> list[Loss]:
        groups = repeated_members(units)
        return [loss for key, group in groups for loss in losers(key, group, options)]

    documents = lost([keys.documents for keys in files])
    gone = losses_by_file(documents)
    rest = [
        keys.paragraphs.without([document for document, _ in gone.get(file, ())])
        for file, keys in enumerate(files)
    ]
    return losses_by_file(documents + lost(rest))


def drop(
    documents: Iterable[Document], losses: Losses, counters: DropCounter
) -> Iterator[Document]:
    """Yields what is left of a file's documents.

    Where paragraphs are removed, the document is cut into pieces named by `cut_id`, so that
    sentences that were not adjacent do not become so; a piece behind a removed one does not
    continue it.

    Args:
      documents: all of the file, as `file_keys` saw them.
      losses: what is removed from the file.
      counters: counts what is removed by its reason, and as `duplicates/no_paragraph_left`
        documents of which nothing is left.
    """
    whole = True
    for number, document in enumerate(documents):
        if reason := losses.get((number, WHOLE)):
            drop_document(counters, reason, document)
            whole = False
            continue
        pieces: list[list[str]] = [[]]
        for place, paragraph in enumerate(document.paragraphs):
            if reason := losses.get((number, place)):
                drop_document(counters, reason, document, paragraph)
                pieces.append([])
            else:
                pieces[-1].append(paragraph)
        joins = document.continues and whole
        whole = bool(pieces[-1])
        if not any(pieces):
            drop_document(counters, "duplicates/no_paragraph_left", document)
        if len(pieces) == 1 and joins == document.continues:
            yield document
            continue
        for piece, paragraphs in enumerate(pieces):
            if paragraphs:
                name = cut_id(document.id, "duplicates", piece)
                continues = joins and not piece
                yield Document(name, document.language, paragraphs, continues)


def remove_duplicates(
    files: Sequence[Callable[[], Iterable[Document]]],
    options: DuplicateOptions,
    counters: DropCounter,
) -> Iterator[Document]:
    """Yields the documents of all files without duplicates, in their order.

    Each file is read twice. In memory are keys and signatures, not texts: with the default options
    about 350 bytes a document and 24 bytes a paragraph.

    Args:
      files: each opens a file anew and yields its documents.
      options: what is a duplicate.
      counters: as for `drop`.
    """
    losses = find_losses([file_keys(read(), options) for read in files], options)
    for file, read in enumerate(files):
        yield from drop(read(), losses.get(file, {}), counters)
