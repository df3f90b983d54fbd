"""The first pass over a file: keys and signatures of its documents and paragraphs, no text."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from ..readers.document import Document
from . import duplicates_signatures as signatures_of
from . import duplicates_text as text
from .duplicates_signatures import MinHash

# Characters whose documents are looked at together; bounds the memory.
_BATCH_CHARACTERS = 1 << 20
# The `paragraph` of a place that stands for a whole document.
WHOLE = -1
# First byte of a key: what it is a key of, and whether all letters must be equal or most shingles.
EXACT_DOCUMENT, NEAR_DOCUMENT, EXACT_PARAGRAPH, NEAR_PARAGRAPH = b"D", b"d", b"P", b"p"

# (file number, document number in the file, paragraph number in the document or `WHOLE`). The
# smallest is the earliest.
Place = tuple[int, int, int]
# A place and its signature; empty for exact keys.
Member = tuple[Place, bytes]


@dataclasses.dataclass(frozen=True)
class DuplicateOptions:
    """What is a duplicate.

    Attributes:
      near_documents: how near duplicates among documents are found; None: only exact ones are.
      paragraphs: whether a paragraph that stood anywhere before is removed too; default true.
      near_paragraphs: as `near_documents`, for paragraphs. Default None: a signature and its
        bands take 320 bytes in the first pass, as much as a short paragraph.
      min_paragraph_letters: a paragraph with fewer letters is never a duplicate, as "Chapter 1" or
        a short answer is none. Default 100, some 20 words of English (our choice). Documents that
        equal another are removed however short they are.
    """

    near_documents: MinHash | None = dataclasses.field(default_factory=MinHash)
    paragraphs: bool = True
    near_paragraphs: MinHash | None = None
    min_paragraph_letters: int = 100

    def near(self, key: bytes) -> MinHash | None:
        """How the texts of a key are compared; None: they are equal."""
        kind = key[:1]
        if kind == NEAR_DOCUMENT:
            return self.near_documents
        return self.near_paragraphs if kind == NEAR_PARAGRAPH else None


@dataclasses.dataclass(frozen=True)
class Units:
    """Keys of all documents, or of all paragraphs, of a file.

    Attributes:
      places: document number and paragraph number (or `WHOLE`), [units, 2], int64.
      exact: exact keys, [units], uint64; 0: never a duplicate.
      signed: which units have a signature, [signed], int64.
      bands: their band keys, [signed, bands], uint64.
      signatures: [signed, permutations], uint8.
    """

    places: np.ndarray
    exact: np.ndarray
    signed: np.ndarray
    bands: np.ndarray
    signatures: np.ndarray

    def without(self, documents: Collection[int]) -> "Units":
        """The same without the units of some documents."""
        kept = ~np.isin(self.places[:, 0], list(documents))
        rows = kept[self.signed]
        renumbered = np.cumsum(kept) - 1
        return Units(
            self.places[kept],
            self.exact[kept],
            renumbered[self.signed[rows]],
            self.bands[rows],
            self.signatures[rows],
        )


@dataclasses.dataclass(frozen=True)
class FileKeys:
    """The result of the first pass over a file."""

    documents: Units
    paragraphs: Units


def file_keys(documents: Iterable[Document], options: DuplicateOptions) -> FileKeys:
    """Keys of all documents of a file, in their order, in bounded memory but for the keys.

    Args:
      documents: all of the file, each numbered by its position from 0; a piece of a long document
        counts as a document.
      options: what is a duplicate.
    """
    whole: list[Units] = []
    parts: list[Units] = []
    first = 0
    for batch in _batches(documents):
        splits = np.cumsum([0, *(len(document.paragraphs) for document in batch)])
        found = text.analyse([p for document in batch for p in document.paragraphs])
        numbers = np.arange(len(batch)) + first
        places = np.stack([numbers, np.full(len(batch), WHOLE)], 1)
        keys = text.exact_keys(found, splits)
        whole.append(_units(places, keys, found, splits, options.near_documents))
        if options.paragraphs:
            owners = np.repeat(numbers, np.diff(splits))
            within = np.arange(len(owners)) - np.repeat(splits[:-1], np.diff(splits))
            keys = text.exact_keys(found)
            keys[np.diff(found.letter_splits) < options.min_paragraph_letters] = 0
            places = np.stack([owners, within], 1)
            parts.append(_units(places, keys, found, None, options.near_paragraphs))
        first += len(batch)
    return FileKeys(_joined(whole, options.near_documents), _joined(parts, options.near_paragraphs))


def members(file: int, units: Units) -> Iterator[tuple[bytes, Member]]:
    """(key, member) of all units of a file, in no particular order: what a keyed combine takes.

    Args:
      file: the file's number among all files, in the order in which the earliest is kept.
      units: documents or paragraphs of the file.
    """
    kinds = _kinds(units)
    places = [(file, *place) for place in units.places.tolist()]
    for place, key in zip(places, units.exact.tolist()):
        if key:
            yield kinds[0] + key.to_bytes(8), (place, b"")
    for unit, bands, signature in zip(units.signed.tolist(), units.bands, units.signatures):
        for key in bands.tolist():
            yield kinds[1] + key.to_bytes(8), (places[unit], signature.tobytes())


def repeated_members(files: list[Units]) -> Iterator[tuple[bytes, list[Member]]]:
    """What `members` of all files yield, grouped by key; only keys with several members.

    By sorting arrays: on one machine a dictionary of all keys would take many times the memory.
    """
    if not files:
        return
    kinds = _kinds(*files)
    numbers = np.repeat(np.arange(len(files)), [len(units.places) for units in files])
    places = np.concatenate([units.places for units in files])

    def place(unit: int) -> Place:
        return (int(numbers[unit]), int(places[unit, 0]), int(places[unit, 1]))

    for key, units in _repeated(np.concatenate([units.exact for units in files])):
        if key:
            yield kinds[0] + key.to_bytes(8), [(place(unit), b"") for unit in units]
    starts = np.cumsum([0, *(len(units.places) for units in files[:-1])])
    signed = np.concatenate([units.signed + start for units, start in zip(files, starts)])
    bands = np.concatenate([units.bands for units in files])
    signatures = np.concatenate([units.signatures for units in files])
    for band in range(bands.shape[1]):
        for key, rows in _repeated(bands[:, band]):
            found = [(place(signed[row]), signatures[row].tobytes()) for row in rows]
            yield kinds[1] + key.to_bytes(8), found


def _kinds(*files: Units) -> tuple[bytes, bytes]:
    whole = any(len(units.places) and units.places[0, 1] == WHOLE for units in files)
    return (EXACT_DOCUMENT, NEAR_DOCUMENT) if whole else (EXACT_PARAGRAPH, NEAR_PARAGRAPH)


def _repeated(keys: np.ndarray) -> Iterator[tuple[int, list[int]]]:
    """(key, positions) of each key that stands at several positions."""
    order = np.argsort(keys, kind="stable")
    values = keys[order]
    bounds = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    ends = np.append(bounds[1:], len(values))
    for group in np.flatnonzero(ends - bounds > 1).tolist():
        start, end = bounds[group], ends[group]
        yield int(values[start]), order[start:end].tolist()


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    held = 0
    for document in documents:
        batch.append(document)
        held += sum(map(len, document.paragraphs))
        if held >= _BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _units(
    places: np.ndarray,
    exact: np.ndarray,
    found: text.Letters,
    splits: np.ndarray | None,
    near: MinHash | None,
) -> Units:
    if near is None:
        return dataclasses.replace(_joined([], None), places=places, exact=exact)
    hashes, bounds = text.shingles(found, near.shingle_words, splits)
    # What has no exact key is too short to be a duplicate at all.
    signed = np.flatnonzero((np.diff(bounds) >= near.min_shingles) & (exact != 0))
    lengths = np.diff(bounds)[signed]
    own = np.append(0, np.cumsum(lengths))
    chosen = np.repeat(bounds[signed] - own[:-1], lengths) + np.arange(own[-1])
    minima = signatures_of.minima(hashes[chosen], own, near)
    bands = signatures_of.band_keys(minima, near)
    return Units(places, exact, signed, bands, signatures_of.signatures(minima))


def _joined(parts: list[Units], near: MinHash | None) -> Units:
    bands, permutations = (near.bands, near.permutations) if near else (0, 0)
    starts = np.cumsum([0, *(len(part.places) for part in parts)])
    signed = [part.signed + start for part, start in zip(parts, starts)]
    return Units(
        np.concatenate([np.zeros((0, 2), np.int64), *(part.places for part in parts)]),
        np.concatenate([np.zeros(0, np.uint64), *(part.exact for part in parts)]),
        np.concatenate([np.zeros(0, np.int64), *signed]),
        np.concatenate([np.zeros((0, bands), np.uint64), *(part.bands for part in parts)]),
        np.concatenate(
            [np.zeros((0, permutations), np.uint8), *(part.signatures for part in parts)]
        ),
    )
