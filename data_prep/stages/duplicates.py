"""Duplicates of documents and paragraphs, equal or similar, over all files: the earliest stays.

The work is a combine by key: no machine needs to see all text, and the result depends neither on
the order of processing nor on how the input is divided among machines.

1. `file_keys` finds the keys of a file's documents and paragraphs. All units with the same key are
   then compared, and all but the earliest are removed; `pipeline.key_files` does that.
2. The same is done with the paragraphs of the documents that stay, so that a paragraph is never
   removed in favour of one in a document that is removed itself.
3. `drop` takes what is to be removed out of a file.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import numpy as np

from official_cmlm.common.extras import check_extra
from official_cmlm.common.hashing import GOLDEN_GAMMA, mix

from ..counts import DropCounter
from ..readers.document import Document, cut_id
from . import batches, letters

# Characters whose documents are looked at together; bounds the memory.
_BATCH_CHARACTERS = 1 << 20
# The `paragraph` of a place that stands for a whole document.
WHOLE = -1
# The places of one file that are removed: (document number, paragraph number or `WHOLE`) -> reason.
Duplicates = Mapping[tuple[int, int], str]


@dataclasses.dataclass(frozen=True)
class MinHash:
    """Signatures of texts, and how they are compared.

    Two texts are candidates if all rows of one band agree, which for texts of Jaccard similarity s
    happens with probability 1 − (1 − s^rows)^bands, one half near s = (1/bands)^(1/rows).

    Attributes:
      bands: default 20. Lee et al. 2022, "Deduplicating Training Data Makes Language Models
        Better", appendix A, take 450 bands of 20 rows (one half at 0.72), some 9,000 hashes a text;
        160 hashes are nearly as good for texts well above the threshold.
      rows: hashes of a band; default 8. With 20 bands texts of similarity 0.6, 0.7, 0.8, 0.9 are
        candidates with probability 0.29, 0.69, 0.975, 0.99999; one half at 0.66.
      threshold: estimated Jaccard similarity from which candidates are duplicates; default 0.75,
        so that of texts at 0.8 (Lee et al.'s definition) few are missed: the estimate's standard
        deviation there is 0.03.
      shingle_words: words of a shingle; default 5, as Lee et al. A character of a script without
        spaces is a word.
      min_shingles: a text with fewer has no signature, as it is too short to tell an edited copy
        from another text. Default 10.
      seed: seed of the hash functions.
    """

    bands: int = 20
    rows: int = 8
    threshold: float = 0.75
    shingle_words: int = 5
    min_shingles: int = 10
    seed: int = 1
    # More bands would find pairs of a similarity of 0.5 too, and take gigabytes for a batch.
    MAX_BANDS: ClassVar[int] = 256

    @property
    def permutations(self) -> int:
        """Number of hashes of a signature."""
        return self.bands * self.rows


def minima(shingles: np.ndarray, splits: np.ndarray, options: MinHash) -> np.ndarray:
    """Returns the least value of each hash function over each text's shingles.

    Args:
      shingles: 64-bit hashes of all texts' shingles; repetitions do not count.
      splits: row splits, [texts + 1].
      options: decides the hash functions.

    Returns:
      [texts, permutations], uint32.
    """
    check_extra("data", "rensa")
    from rensa import RMinHash

    if len(splits) == 1:
        return np.zeros((0, options.permutations), np.uint32)
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(
        np.ascontiguousarray(shingles),
        np.asarray(splits, np.uint64),
        options.permutations,
        options.seed,
    )
    return np.array(matrix.to_rows(), np.uint32)


def band_keys(minima: np.ndarray, options: MinHash) -> np.ndarray:
    """Returns a hash of each band's rows and of the band's number; [texts, bands], uint64."""
    rows = minima.reshape(-1, options.bands, options.rows).astype(np.uint64)
    keys = np.broadcast_to(np.arange(options.bands, dtype=np.uint64), rows.shape[:2])
    for at in range(options.rows):
        keys = mix(keys + rows[:, :, at] + np.uint64(GOLDEN_GAMMA))
    return keys


def similarities(signature: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Estimates the Jaccard similarities of one text and others.

    Args:
      signature: [permutations], uint8.
      others: [texts, permutations], uint8.

    Returns:
      [texts], float64. The estimate has no bias, so it may be a little below 0 for unlike texts.
    """
    chance = 1 / 256
    return ((signature == others).mean(axis=1) - chance) / (1 - chance)


def find_near_duplicates(rows: np.ndarray, threshold: float) -> np.ndarray:
    """Returns which of the texts with the same band key resemble an earlier one that stays.

    The earlier text may be removed by another key, but only because of a still earlier similar one,
    so one of several similar texts always stays.

    Args:
      rows: signatures in the order of the texts' places, [texts, permutations], uint8.
      threshold: estimated similarity from which a text is a duplicate.

    Returns:
      [texts], bool.
    """
    is_duplicate = np.zeros(len(rows), bool)
    left = np.arange(len(rows))
    while len(left) > 1:
        alike = similarities(rows[left[0]], rows[left[1:]]) >= threshold
        is_duplicate[left[1:][alike]] = True
        left = left[1:][~alike]
    return is_duplicate


@dataclasses.dataclass(frozen=True)
class DuplicateOptions:
    """The definition of a duplicate.

    Attributes:
      documents: which documents are removed: none ("off"), documents with the same bytes as an
        earlier one ("exact"), with the same letters ("normalised", see `letters`), or also similar
        ones ("near", default).
      paragraphs: the same for paragraphs that occurred anywhere before. Default "normalised": a
        signature and its bands take 320 bytes in the first pass, as much as a short paragraph.
      minhash: how similar texts are found.
      min_paragraph_letters: a paragraph with fewer letters is never a duplicate, such as "Chapter
        1" or a short answer. Default 100, some 20 words of English (our choice). Documents that
        equal another are removed however short they are.
    """

    documents: str = "near"
    paragraphs: str = "normalised"
    minhash: MinHash = dataclasses.field(default_factory=MinHash)
    min_paragraph_letters: int = 100

    @property
    def compared(self) -> tuple[str, ...]:
        """The units whose duplicates are removed, in order: "documents", "paragraphs"."""
        return tuple(kind for kind in ("documents", "paragraphs") if getattr(self, kind) != "off")


@dataclasses.dataclass(frozen=True)
class Units:
    """Keys of all documents, or of all paragraphs, of a file.

    Attributes:
      places: document number and paragraph number (or `WHOLE`), [units, 2], int64.
      exact: exact keys, [units], uint64; 0: never a duplicate.
      signed: indices of the units that have a signature, [signed], int64.
      bands: their band keys, [signed, bands], uint64.
      signatures: [signed, permutations], uint8.
    """

    places: np.ndarray
    exact: np.ndarray
    signed: np.ndarray
    bands: np.ndarray
    signatures: np.ndarray


def file_keys(documents: Iterable[Document], options: DuplicateOptions) -> dict[str, Units]:
    """Finds the keys of the "documents" and "paragraphs" of a file; all else takes bounded memory.

    Args:
      documents: all of the file, each numbered by its position from 0; a piece of a long document
        counts as a document.
      options: the definition of a duplicate.
    """
    units: dict[str, list[Units]] = {"documents": [], "paragraphs": []}
    near = {kind: options.minhash if getattr(options, kind) == "near" else None for kind in units}
    first = 0
    for batch in batches(documents, lambda one: sum(map(len, one.paragraphs)), _BATCH_CHARACTERS):
        splits = np.cumsum([0, *(len(document.paragraphs) for document in batch)])
        paragraphs = [p for document in batch for p in document.paragraphs]
        analysis = letters.analyse(paragraphs)
        numbers = np.arange(len(batch)) + first
        places = np.stack([numbers, np.full(len(batch), WHOLE)], 1)
        if options.documents == "exact":
            # No paragraph holds a line end.
            keys = letters.byte_keys(["\n".join(document.paragraphs) for document in batch])
        else:
            keys = letters.letter_keys(analysis, splits)
        units["documents"].append(_units(places, keys, analysis, splits, near["documents"]))
        if options.paragraphs != "off":
            owners = np.repeat(numbers, np.diff(splits))
            within = np.arange(len(owners)) - np.repeat(splits[:-1], np.diff(splits))
            is_exact = options.paragraphs == "exact"
            keys = letters.byte_keys(paragraphs) if is_exact else letters.letter_keys(analysis)
            keys[np.diff(analysis.letter_splits) < options.min_paragraph_letters] = 0
            places = np.stack([owners, within], 1)
            units["paragraphs"].append(_units(places, keys, analysis, None, near["paragraphs"]))
        first += len(batch)
    return {kind: _join_units(parts, near[kind]) for kind, parts in units.items()}


def _units(
    places: np.ndarray,
    exact: np.ndarray,
    analysis: letters.Letters,
    splits: np.ndarray | None,
    near: MinHash | None,
) -> Units:
    if near is None:
        return dataclasses.replace(_join_units([], None), places=places, exact=exact)
    hashes, bounds = letters.shingles(analysis, near.shingle_words, splits)
    # A text without an exact key is too short to be a duplicate at all.
    signed = np.flatnonzero((np.diff(bounds) >= near.min_shingles) & (exact != 0))
    lengths = np.diff(bounds)[signed]
    own = np.append(0, np.cumsum(lengths))
    chosen = np.repeat(bounds[signed] - own[:-1], lengths) + np.arange(own[-1])
    least = minima(hashes[chosen], own, near)
    # The lowest byte takes a quarter of the memory for hardly less precision: Li and König 2010,
    # "b-Bit Minwise Hashing".
    return Units(places, exact, signed, band_keys(least, near), least.astype(np.uint8))


def _join_units(parts: list[Units], near: MinHash | None) -> Units:
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


def drop(
    documents: Iterable[Document], duplicates: Duplicates, counters: DropCounter
) -> Iterator[Document]:
    """Yields the documents of a file without what is removed.

    Where paragraphs are removed, the document is cut into pieces named by `cut_id`, so that
    sentences that were not adjacent do not become so; a piece after a removed one does not continue
    anything.

    Args:
      documents: all of the file, as `file_keys` saw them.
      duplicates: the places of the file that are removed.
      counters: counts them by reason, and as `duplicates/no_paragraph_left` documents of which
        nothing is left.
    """
    whole = True
    for number, document in enumerate(documents):
        if reason := duplicates.get((number, WHOLE)):
            counters.drop(reason, document.language)
            whole = False
            continue
        pieces: list[list[str]] = [[]]
        for place, paragraph in enumerate(document.paragraphs):
            if reason := duplicates.get((number, place)):
                counters.drop(reason, document.language)
                pieces.append([])
            else:
                pieces[-1].append(paragraph)
        joins = document.continues and whole
        whole = bool(pieces[-1])
        if not any(pieces):
            counters.drop("duplicates/no_paragraph_left", document.language)
        if len(pieces) == 1 and joins == document.continues:
            yield document
            continue
        for piece, paragraphs in enumerate(pieces):
            if paragraphs:
                name = cut_id(document.id, "duplicates", piece)
                continues = joins and not piece
                yield Document(name, document.language, paragraphs, continues)
