"""Duplicates found across elements: files of keys, from each element to each partition and back.

The value of a key decides its partition, so that all members of a key meet there. Each element has
one file of keys, sorted by partition, and one of the places that are removed from it; so computing
a partition, or an element, takes one contiguous read of each file.
"""

import dataclasses
import itertools
from pathlib import Path

import numpy as np

from official_cmlm.common.files import atomic_write, write_array

from ..stages.duplicates import (
    MEMBER,
    DuplicateOptions,
    Duplicates,
    Keys,
    MinHash,
    find_near_duplicates,
)

_DUPLICATE = np.dtype(
    [("element", "<i4"), ("document", "<i4"), ("paragraph", "<i4"), ("reason", "<i4")]
)
_PLACE = ["element", "document", "paragraph"]
# Numbered in alphabetical order: of several reasons for a place the smallest number counts.
# "exact" counts equal keys, of bytes or of letters.
_REASONS = (
    "duplicates/exact_document",
    "duplicates/exact_paragraph",
    "duplicates/near_document",
    "duplicates/near_paragraph",
)
# Kind of the units that are compared -> indices in `_REASONS`, exact and near.
_KINDS = {"documents": (0, 2), "paragraphs": (1, 3)}


@dataclasses.dataclass(frozen=True)
class KeyFiles:
    """The files of keys, and of the duplicates among them, of a run.

    Attributes:
      folder: holds the files.
      options: the definition of a duplicate.
      elements: number of elements.
      partitions: number of partitions.
    """

    folder: Path
    options: DuplicateOptions
    elements: int
    partitions: int

    def save_keys(self, element: int, keys: dict[str, Keys]) -> None:
        """Writes the keys of an element, by partition."""
        first = next(iter(keys))
        for kind, keys_of_kind in keys.items():
            with atomic_write(self._path("signatures", kind, element)) as file:
                write_array(file, keys_of_kind.signatures)
            members = keys_of_kind.members
            members["element"] = element
            # Keys of paragraphs are not final yet: a removed document takes its paragraphs with it.
            self._save_members("keys" if kind == first else "all-keys", kind, element, members)

    def find_duplicates(self, kind: str, partition: int) -> None:
        """Finds and writes the duplicate "documents" or "paragraphs" among a partition's keys."""
        exact_reason, near_reason = _KINDS[kind]
        exact = _drop_first(self._find_repeated(kind, 0, partition))
        near = self._find_near(kind, self._find_repeated(kind, 1, partition))
        duplicates = np.concatenate(
            [_give_reason(exact, exact_reason), _give_reason(near, near_reason)]
        )
        duplicates = _keep_first_reasons(duplicates)
        path = self._path("removed", kind, partition)
        _save_by_slot(path, duplicates, duplicates["element"], self.elements)

    def collect_duplicates(self, kind: str, elements: range) -> None:
        """Writes the duplicates of each of these elements, collected from all partitions.

        For documents, the keys of the paragraphs of documents that stay are written too: a
        paragraph is never removed in favour of one in a document that is removed itself.
        """
        parts = [
            _load_slots(self._path("removed", kind, partition), elements.start, elements.stop)
            for partition in range(self.partitions)
        ]
        all_duplicates = _keep_first_reasons(np.concatenate(parts))
        for element in elements:
            duplicates = all_duplicates[all_duplicates["element"] == element]
            with atomic_write(self._path("duplicates", kind, element)) as file:
                write_array(file, duplicates)
            if kind == "documents" and "paragraphs" in self.options.ways:
                path = self._path("all-keys", "paragraphs", element)
                members = np.load(path, allow_pickle=False)
                stay = ~np.isin(members["document"], duplicates["document"])
                self._save_members("keys", "paragraphs", element, members[stay])

    def read_duplicates(self, element: int) -> Duplicates:
        """Returns the places that are removed from an element, each with its first reason."""
        reasons: dict[tuple[int, int], str] = {}
        for kind in self.options.ways:
            duplicates = np.load(self._path("duplicates", kind, element), allow_pickle=False)
            for _, document, paragraph, reason in duplicates.tolist():
                reasons[document, paragraph] = _REASONS[reason]
        return reasons

    def _save_members(self, name: str, kind: str, element: int, members: np.ndarray) -> None:
        """Writes keys: the keys of a partition in two slots, exact ones first."""
        partitions = (members["key"] % np.uint64(self.partitions)).astype(np.int64)
        slots = 2 * partitions + (members["row"] >= 0)
        _save_by_slot(self._path(name, kind, element), members, slots, 2 * self.partitions)

    def _find_repeated(self, kind: str, near: int, partition: int) -> np.ndarray:
        """Returns members of a partition's keys that occur more than once, by key, then place."""
        slot = 2 * partition + near
        parts = [
            _load_slots(self._path("keys", kind, element), slot, slot + 1)
            for element in range(self.elements)
        ]
        members = np.concatenate([np.zeros(0, MEMBER), *parts])
        del parts
        # Elements come in order, and so do the units of each; so a stable sort keeps places in
        # order.
        order = np.argsort(members["key"], kind="stable")
        keys = members["key"][order]
        same = keys[1:] == keys[:-1]
        return members[order[np.append(same, False) | np.append(False, same)[: len(keys)]]]

    def _find_near(self, kind: str, members: np.ndarray) -> np.ndarray:
        """Returns the members that are similar to an earlier one with the same band key."""
        near = self.options.minhash
        if not len(members):
            return members
        is_near = np.zeros(len(members), bool)
        signatures = self._read_signatures(kind, members, near)
        starts = np.flatnonzero(np.append(True, members["key"][1:] != members["key"][:-1]))
        for start, stop in itertools.pairwise([*starts.tolist(), len(members)]):
            is_near[start:stop] = find_near_duplicates(signatures[start:stop], near.threshold)
        return members[is_near]

    def _read_signatures(self, kind: str, members: np.ndarray, near: MinHash) -> np.ndarray:
        """Reads the signature of each member, and no others; [members, permutations]."""
        chosen_rows = np.zeros((len(members), near.permutations), np.uint8)
        for element in np.unique(members["element"]).tolist():
            path = self._path("signatures", kind, element)
            signatures = np.load(path, "r", allow_pickle=False)
            chosen = members["element"] == element
            chosen_rows[chosen] = signatures[members["row"][chosen]]
        return chosen_rows

    def _path(self, name: str, kind: str, number: int) -> Path:
        """Returns a file of an element, or, for "removed", of a partition."""
        return self.folder / f"{name}-{kind}-{number:05d}.npy"


def _drop_first(members: np.ndarray) -> np.ndarray:
    """Returns all members of each key but the first, the earliest."""
    return members[1:][members["key"][1:] == members["key"][:-1]]


def _give_reason(members: np.ndarray, reason: int) -> np.ndarray:
    duplicates = np.zeros(len(members), _DUPLICATE)
    duplicates[_PLACE] = members[_PLACE]
    duplicates["reason"] = reason
    return duplicates


def _keep_first_reasons(duplicates: np.ndarray) -> np.ndarray:
    """Sorts duplicates by place; each place stays once, with its alphabetically first reason."""
    columns = [duplicates[name] for name in (*_PLACE, "reason")]
    duplicates = duplicates[np.lexsort(columns[::-1])]
    if not len(duplicates):
        return duplicates
    places = np.stack([duplicates[name] for name in _PLACE])
    return duplicates[np.append(True, (places[:, 1:] != places[:, :-1]).any(axis=0))]


def _save_by_slot(path: Path, rows: np.ndarray, slots: np.ndarray, count: int) -> None:
    """Writes rows in the order of their slots, and a second file with the start of each slot.

    Rows of a slot keep their order. There are `count` slots.
    """
    order = np.argsort(slots, kind="stable")
    starts = np.searchsorted(slots[order], np.arange(count + 1))
    for name, array in ((path, rows[order]), (_starts_path(path), starts)):
        with atomic_write(name) as file:
            write_array(file, array)


def _load_slots(path: Path, first: int, stop: int) -> np.ndarray:
    """Reads the rows of the slots `first` … `stop` − 1."""
    starts = np.load(_starts_path(path), "r", allow_pickle=False)
    rows = np.load(path, "r", allow_pickle=False)
    # The rows are copied, so that the file does not stay open.
    return np.array(rows[starts[first] : starts[stop]])


def _starts_path(path: Path) -> Path:
    return path.with_suffix(".starts.npy")
