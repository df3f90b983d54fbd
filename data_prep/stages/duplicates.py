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
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

import numpy as np

from official_cmlm.common.extras import check_extra
from official_cmlm.common.hashing import GOLDEN_GAMMA, mix
from official_cmlm.common.validation import SEED, Flag, OneOf, between

from ..counts import DropCounter
from ..readers.document import Document, cut_id
from . import batches, letters

# Characters whose documents are looked at together; bounds the memory.
_BATCH_CHARACTERS = 1 << 20
# The `paragraph` of a place that stands for a whole document.
WHOLE = -1
# The places of one file that are removed: (document number, paragraph number or `WHOLE`) -> reason.
Duplicates = Mapping[tuple[int, int], str]
# A key of a document or a paragraph, 24 bytes: an exact one, of bytes or letters, has the row -1,
# one of a band has the row of the unit's signature.
MEMBER = np.dtype(
    [("key", "<u8"), ("element", "<i4"), ("document", "<i4"), ("paragraph", "<i4"), ("row", "<i4")]
)
_WAYS = ("off", "exact", "normalised", "near")


@dataclasses.dataclass(frozen=True)
class MinHash:
    """Signatures of texts, and how they are compared.

    Two texts are candidates if all rows of one band agree, which for texts of Jaccard similarity s
    happens with probability 1 − (1 − s^rows)^bands, one half near s = (1/bands)^(1/rows).

    Attributes:
      bands: bands of 8 hashes, of which near duplicates must share one to be compared. With 20
        bands 69% of those at a similarity of 0.7 are, 97.5% at 0.8; more bands find more, at 32
        bytes of each text. Lee et al. 2022, "Deduplicating Training Data Makes Language Models
        Better", appendix A, take 450 bands of 20 hashes, one half at 0.72.
      rows: hashes of a band; default 8. With 20 bands texts of similarity 0.6, 0.7, 0.8, 0.9 are
        candidates with probability 0.29, 0.69, 0.975, 0.99999; one half at 0.66.
      threshold: share of all runs of five words that two texts have in common (Jaccard similarity,
        as estimated) from which they are near duplicates. With 0.75 few texts at 0.8, Lee et al.'s
        definition, are missed: the estimate's standard deviation there is 0.03.
      shingle_words: words of a shingle; default 5, as Lee et al. A character of a script without
        spaces is a word.
      min_shingles: a text with fewer has no signature, as it is too short to tell an edited copy
        from another text. Default 10.
      seed: seed of the hash functions.
    """

    # More bands would find pairs of a similarity of 0.5 too, and take gigabytes for a batch.
    bands: Annotated[int, between(1, 256), Flag("near_bands")] = 20
    rows: int = 8
    threshold: Annotated[float, between(0, 1, above_low=True), Flag("near_threshold")] = 0.75
    shingle_words: int = 5
    min_shingles: int = 10
    seed: Annotated[int, SEED] = 1

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
      documents: which documents to remove as duplicates of earlier ones in the whole input: none
        (off), those of the same bytes (exact; runs of white space are one space, but for
        --documents_by=line), those of the same letters, whatever their case, spaces and punctuation
        (normalised), or also those that share most runs of five words (near). Documents that equal
        another go however short they are.
      paragraphs: the same for paragraphs of the documents that stay, which are cut there; auto: as
        --deduplicate says, but normalised if that is near, as a signature and its bands take 320
        bytes, as much as a short paragraph. Without either the input is read in one pass.
      minhash: how similar texts are found.
      min_paragraph_letters: letters that a paragraph must have to be removed as a duplicate;
        shorter ones stay, such as "Chapter 1" or a short answer. Default 100, some 20 words of
        English (our choice).
    """

    documents: Annotated[str, OneOf(_WAYS), Flag("deduplicate")] = "off"
    paragraphs: Annotated[str, OneOf(("auto", *_WAYS)), Flag("deduplicate_paragraphs")] = "auto"
    minhash: MinHash = dataclasses.field(default_factory=MinHash)
    min_paragraph_letters: Annotated[int, between(0, 10**9)] = 100

    @property
    def ways(self) -> dict[str, str]:
        """The units whose duplicates are removed, documents first -> the way to find these."""
        auto = "normalised" if self.documents == "near" else self.documents
        paragraphs = auto if self.paragraphs == "auto" else self.paragraphs
        ways = {"documents": self.documents, "paragraphs": paragraphs}
        return {kind: way for kind, way in ways.items() if way != "off"}


@dataclasses.dataclass(frozen=True)
class Keys:
    """The keys of all documents, or of all paragraphs, of a file.

    Attributes:
      members: the keys, those of each kind in the order of the units, [keys], `MEMBER`. A unit
        that is never a duplicate has none.
      signatures: signatures of the units that have one, [signed, permutations], uint8.
    """

    members: np.ndarray
    signatures: np.ndarray


def file_keys(documents: Iterable[Document], options: DuplicateOptions) -> dict[str, Keys]:
    """Finds the keys of the units of a file that are compared; all else takes bounded memory.

    Args:
      documents: all of the file, each numbered by its position from 0; a piece of a long document
        counts as a document.
      options: the definition of a duplicate.
    """
    ways, near = options.ways, options.minhash
    nothing = Keys(np.zeros(0, MEMBER), np.zeros((0, near.permutations), np.uint8))
    parts = {kind: [nothing] for kind in ways}
    first = 0
    for batch in batches(documents, lambda one: sum(map(len, one.paragraphs)), _BATCH_CHARACTERS):
        splits = np.cumsum([0, *(len(document.paragraphs) for document in batch)])
        paragraphs = [p for document in batch for p in document.paragraphs]
        # A line as it is written is one paragraph, so the borders are the same.
        written = [[each.line] if each.line else each.paragraphs for each in batch]
        analysis = letters.analyse(paragraphs)
        numbers = np.arange(len(batch)) + first
        units = {}
        if "documents" in ways:
            # No paragraph holds a line end.
            texts = ["\n".join(each) for each in written]
            places = np.stack([numbers, np.full(len(batch), WHOLE)], 1)
            units["documents"] = places, texts, splits, np.ones(len(batch), bool)
        if "paragraphs" in ways:
            owners = np.repeat(numbers, np.diff(splits))
            places = np.stack([owners, np.arange(len(owners)) - splits[owners - first]], 1)
            is_long = np.diff(analysis.letter_splits) >= options.min_paragraph_letters
            units["paragraphs"] = places, [*itertools.chain(*written)], None, is_long
        for kind, (places, texts, groups, may_go) in units.items():
            is_exact = ways[kind] == "exact"
            exact = letters.byte_keys(texts) if is_exact else letters.letter_keys(analysis, groups)
            shingles = None
            if ways[kind] == "near":
                shingles = letters.shingles(analysis, near.shingle_words, groups)
            row = sum(len(part.signatures) for part in parts[kind])
            parts[kind].append(_make_keys(places, exact * may_go, shingles, near, row))
        first += len(batch)
    columns = {
        kind: zip(*((part.members, part.signatures) for part in parts[kind])) for kind in ways
    }
    return {kind: Keys(*map(np.concatenate, columns[kind])) for kind in ways}


def _make_keys(
    places: np.ndarray,
    exact: np.ndarray,
    shingles: tuple[np.ndarray, np.ndarray] | None,
    near: MinHash,
    row: int,
) -> Keys:
    """Returns the keys of the units of a batch.

    Args:
      places: document number and paragraph number (or `WHOLE`), [units, 2], int64.
      exact: exact keys, [units], uint64; 0: the unit is never a duplicate.
      shingles: see `letters.shingles`; None: similar units are not looked for.
      near: how these are found.
      row: number of signatures of the batches before.
    """
    units = np.flatnonzero(exact)
    keys, rows = exact[units], np.full(len(units), -1)
    signatures = np.zeros((0, near.permutations), np.uint8)
    if shingles:
        hashes, bounds = shingles
        signed = np.flatnonzero((np.diff(bounds) >= near.min_shingles) & (exact != 0))
        lengths = np.diff(bounds)[signed]
        own = np.append(0, np.cumsum(lengths))
        chosen = np.repeat(bounds[signed] - own[:-1], lengths) + np.arange(own[-1])
        least = minima(hashes[chosen], own, near)
        # The lowest byte takes a quarter of the memory for hardly less precision: Li and König
        # 2010, "b-Bit Minwise Hashing".
        signatures = least.astype(np.uint8)
        keys = np.append(keys, band_keys(least, near))
        units = np.append(units, np.repeat(signed, near.bands))
        rows = np.append(rows, np.repeat(np.arange(len(signed)) + row, near.bands))
    members = np.zeros(len(keys), MEMBER)
    members["key"], members["row"] = keys, rows
    members["document"], members["paragraph"] = places[units].T
    return Keys(members, signatures)


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
