"""Files of keys of duplicates between phases: from each element to each partition, and back.

The value of a key decides its partition, so that all members of a key meet there. Each element has
one file of keys, sorted by partition, and one of what is removed from it; so computing a partition,
or an element, takes one contiguous read of each file.
"""

import itertools
from pathlib import Path

import numpy as np

from official_cmlm.files import atomic_write, write_array

from ..stages.duplicates import REASONS, FileKeys, Losses, losers
from ..stages.duplicates_keys import (
    EXACT_DOCUMENT,
    EXACT_PARAGRAPH,
    NEAR_DOCUMENT,
    NEAR_PARAGRAPH,
    DuplicateOptions,
    Units,
)
from .context import Context
from .plan import ELEMENTS_A_GROUP

# What is compared, and the first bytes of its exact and its band keys.
_KINDS = {
    "documents": (EXACT_DOCUMENT, NEAR_DOCUMENT),
    "paragraphs": (EXACT_PARAGRAPH, NEAR_PARAGRAPH),
}
# `row` is that of the unit's signature; -1 for exact keys. 24 bytes.
_MEMBER = np.dtype(
    [("key", "<u8"), ("element", "<i4"), ("document", "<i4"), ("paragraph", "<i4"), ("row", "<i4")]
)
_LOSS = np.dtype([("element", "<i4"), ("document", "<i4"), ("paragraph", "<i4"), ("reason", "<i4")])
# By number, in alphabetical order: the smallest counts.
_REASONS = tuple(sorted(REASONS.values()))


def save_keys(context: Context, element: int, keys: FileKeys) -> None:
    """Writes the keys of an element, by partition."""
    for kind, units in (("documents", keys.documents), ("paragraphs", keys.paragraphs)):
        if kind not in context.plan.compared:
            continue
        with atomic_write(_path(context, "signatures", kind, element)) as file:
            write_array(file, units.signatures)
        # Documents that are lost take their paragraphs with them.
        first = kind == context.plan.compared[0]
        name = "keys" if first else "all-keys"
        members = np.concatenate([_exact(element, units), _near(element, units)])
        _save_members(context, name, kind, element, members)


def save_losses(context: Context, kind: str, partition: int) -> None:
    """Finds and writes what is removed by the keys of a partition, "documents" or "paragraphs"."""
    options = context.plan.options.duplicates()
    exact = _later(_members(context, kind, 0, partition))
    exact["reason"] = _REASONS.index(REASONS[_KINDS[kind][0]])
    near = _near_losses(context, kind, _members(context, kind, 1, partition), options)
    losses = _first_reasons(np.concatenate([exact, near]))
    path = _path(context, "losses", kind, partition)
    _save_by_slot(path, losses, losses["element"], len(context.plan.elements))


def save_lost(context: Context, kind: str, group: int) -> None:
    """Writes what is removed from each element of a group, collected from all partitions.

    With documents, the keys of the paragraphs of those that stay are written too: a paragraph
    is never removed in favour of one in a document that is removed itself.
    """
    first = group * ELEMENTS_A_GROUP
    stop = min(first + ELEMENTS_A_GROUP, len(context.plan.elements))
    found = [
        _load_slots(_path(context, "losses", kind, partition), first, stop)
        for partition in range(context.plan.partitions)
    ]
    losses = _first_reasons(np.concatenate(found))
    for element in range(first, stop):
        lost = losses[losses["element"] == element]
        with atomic_write(_path(context, "lost", kind, element)) as file:
            write_array(file, lost)
        if kind != context.plan.compared[-1]:
            path = _path(context, "all-keys", "paragraphs", element)
            members = np.load(path, allow_pickle=False)
            kept = members[~np.isin(members["document"], lost["document"])]
            _save_members(context, "keys", "paragraphs", element, kept)


def losses_of(context: Context, element: int) -> Losses:
    """What is removed from an element: (document, paragraph) -> alphabetically first reason."""
    found: dict[tuple[int, int], str] = {}
    for kind in context.plan.compared:
        for _, document, paragraph, reason in np.load(
            _path(context, "lost", kind, element), allow_pickle=False
        ).tolist():
            found[document, paragraph] = _REASONS[reason]
    return found


def _save_members(
    context: Context, name: str, kind: str, element: int, members: np.ndarray
) -> None:
    """Writes keys: those of a partition in two slots, exact ones first."""
    partitions = (members["key"] % np.uint64(context.plan.partitions)).astype(np.int64)
    slots = 2 * partitions + (members["row"] >= 0)
    path = _path(context, name, kind, element)
    _save_by_slot(path, members, slots, 2 * context.plan.partitions)


def _members(context: Context, kind: str, near: int, partition: int) -> np.ndarray:
    """Members of the keys of a partition that occur more than once, sorted by key, then place."""
    slot = 2 * partition + near
    parts = [
        _load_slots(_path(context, "keys", kind, element), slot, slot + 1)
        for element in range(len(context.plan.elements))
    ]
    members = np.concatenate([np.zeros(0, _MEMBER), *parts])
    del parts
    # Elements come in order, and the units of each, so that a stable sort leaves places in order.
    order = np.argsort(members["key"], kind="stable")
    keys = members["key"][order]
    same = keys[1:] == keys[:-1]
    return members[order[np.append(same, False) | np.append(False, same)[: len(keys)]]]


def _first_reasons(losses: np.ndarray) -> np.ndarray:
    """Sorted by place, and each place once, with the alphabetically first of its reasons."""
    columns = [losses[name] for name in ("element", "document", "paragraph", "reason")]
    losses = losses[np.lexsort(columns[::-1])]
    if not len(losses):
        return losses
    places = np.stack([losses[name] for name in ("element", "document", "paragraph")])
    return losses[np.append(True, (places[:, 1:] != places[:, :-1]).any(axis=0))]


def _later(members: np.ndarray) -> np.ndarray:
    """The losses of exact keys: all members of a key but the first, the earliest."""
    later = members[1:][members["key"][1:] == members["key"][:-1]]
    losses = np.zeros(len(later), _LOSS)
    for name in ("element", "document", "paragraph"):
        losses[name] = later[name]
    return losses


def _near_losses(
    context: Context, kind: str, members: np.ndarray, options: DuplicateOptions
) -> np.ndarray:
    signatures = _signatures(context, kind, members)
    starts = np.flatnonzero(np.append(True, members["key"][1:] != members["key"][:-1]))
    bounds = [*starts.tolist(), len(members)] if len(members) else []
    losses = []
    for start, stop in itertools.pairwise(bounds):
        group = [
            ((element, document, paragraph), signature.tobytes())
            for (_, element, document, paragraph, _), signature in zip(
                members[start:stop].tolist(), signatures[start:stop]
            )
        ]
        key = _KINDS[kind][1] + int(members["key"][start]).to_bytes(8)
        losses += [
            (*place, _REASONS.index(reason)) for place, reason in losers(key, group, options)
        ]
    return np.array(losses, _LOSS)


def _signatures(context: Context, kind: str, members: np.ndarray) -> np.ndarray:
    """The signature of each member, [members, permutations]; of the files only these are read."""
    found: np.ndarray | None = None
    for element in np.unique(members["element"]).tolist():
        path = _path(context, "signatures", kind, element)
        signatures = np.load(path, "r", allow_pickle=False)
        if found is None:
            found = np.zeros((len(members), signatures.shape[1]), signatures.dtype)
        chosen = members["element"] == element
        found[chosen] = signatures[members["row"][chosen]]
    return np.zeros((0, 0), np.uint8) if found is None else found


def _exact(element: int, units: Units) -> np.ndarray:
    """Members of the exact keys; 0 is no key."""
    chosen = np.flatnonzero(units.exact)
    return _rows(element, units, units.exact[chosen], chosen, np.full(len(chosen), -1))


def _near(element: int, units: Units) -> np.ndarray:
    """Members of the band keys."""
    bands = units.bands.shape[1]
    rows = np.repeat(np.arange(len(units.signed)), bands)
    return _rows(element, units, units.bands.reshape(-1), units.signed[rows], rows)


def _rows(
    element: int, units: Units, keys: np.ndarray, chosen: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    members = np.zeros(len(keys), _MEMBER)
    members["key"], members["element"], members["row"] = keys, element, rows
    members["document"], members["paragraph"] = units.places[chosen].T
    return members


def _path(context: Context, name: str, kind: str, number: int) -> Path:
    """A file of an element, or for losses of a partition."""
    return context.work / f"{name}-{kind}-{number:05d}.npy"


def _save_by_slot(path: Path, rows: np.ndarray, slots: np.ndarray, count: int) -> None:
    """Writes rows by their slots, and where each slot begins.

    Args:
      path: of a `.npy` file; a `.starts.npy` file is beside it.
      rows: [rows], of any type; rows of a slot keep their order.
      slots: [rows], from 0.
      count: how many slots there are.
    """
    order = np.argsort(slots, kind="stable")
    starts = np.searchsorted(slots[order], np.arange(count + 1))
    for name, array in ((path, rows[order]), (_starts_path(path), starts)):
        with atomic_write(name) as file:
            write_array(file, array)


def _load_slots(path: Path, first: int, stop: int) -> np.ndarray:
    """The rows of the slots from `first` on, up to but without `stop`."""
    starts = np.load(_starts_path(path), "r", allow_pickle=False)
    rows = np.load(path, "r", allow_pickle=False)
    # A copy, so that the file does not stay open.
    return np.array(rows[starts[first] : starts[stop]])


def _starts_path(path: Path) -> Path:
    return path.with_suffix(".starts.npy")
