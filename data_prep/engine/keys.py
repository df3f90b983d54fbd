"""Keys of duplicates between phases: from each element to each partition, and back.

A key belongs to the partition that its value says, so that all its members meet there. All files
are NumPy arrays; a partition's part is read without the rest.
"""

import itertools
from pathlib import Path

import numpy as np

from data_prep.engine.atomic import written
from data_prep.engine.context import Context
from data_prep.stages.duplicates import REASONS, FileKeys, Losses, losers
from data_prep.stages.duplicates_keys import (
    EXACT_DOCUMENT,
    EXACT_PARAGRAPH,
    NEAR_DOCUMENT,
    NEAR_PARAGRAPH,
    DuplicateOptions,
    Units,
)

# What is compared, and the first bytes of its exact and its band keys.
_KINDS = {
    "documents": (EXACT_DOCUMENT, NEAR_DOCUMENT),
    "paragraphs": (EXACT_PARAGRAPH, NEAR_PARAGRAPH),
}
# `row` is that of the unit's signature; -1 for exact keys.
_MEMBER = np.dtype(
    [("key", "<u8"), ("element", "<i8"), ("document", "<i8"), ("paragraph", "<i8"), ("row", "<i8")]
)
_LOSS = np.dtype([("element", "<i8"), ("document", "<i8"), ("paragraph", "<i8"), ("reason", "<i8")])
# By number, in alphabetical order: the smallest counts.
_REASONS = tuple(sorted(REASONS.values()))


def save_keys(context: Context, element: int, keys: FileKeys) -> None:
    """Writes the keys of an element, by partition."""
    arrays = {}
    for kind, units in (("documents", keys.documents), ("paragraphs", keys.paragraphs)):
        arrays[f"{kind}_signatures"] = units.signatures
        for near, rows in enumerate((_exact(element, units), _near(element, units))):
            partition = rows["key"] % np.uint64(context.plan.partitions)
            order = np.argsort(partition, kind="stable")
            bounds = np.searchsorted(partition[order], np.arange(context.plan.partitions + 1))
            for number, (start, stop) in enumerate(itertools.pairwise(bounds.tolist())):
                if start < stop:
                    arrays[f"{kind}_{near}_{number}"] = rows[order[start:stop]]
    with written(_keys_path(context, element)) as file:
        np.savez(file, **arrays)


def save_losses(context: Context, kind: str, partition: int) -> None:
    """Finds and writes what the keys of a partition lose; `kind` is "documents" or "paragraphs"."""
    options = context.plan.options.duplicates()
    parts = []
    for near in (0, 1):
        members = _members(context, kind, near, partition)
        parts.append(_near_losses(context, kind, members, options) if near else _later(members))
        if not near:
            parts[0]["reason"] = _REASONS.index(REASONS[_KINDS[kind][0]])
    losses = np.unique(np.concatenate(parts))
    with written(_losses_path(context, kind, partition)) as file:
        np.save(file, losses, allow_pickle=False)


def losses_of(context: Context, element: int, *kinds: str) -> Losses:
    """What an element loses: (document, paragraph) -> the alphabetically first reason."""
    found: dict[tuple[int, int], str] = {}
    for kind in kinds:
        for partition in range(context.plan.partitions):
            losses = np.load(_losses_path(context, kind, partition), "r", allow_pickle=False)
            start, stop = np.searchsorted(losses["element"], [element, element + 1])
            for _, document, paragraph, reason in losses[start:stop].tolist():
                place, name = (document, paragraph), _REASONS[reason]
                found[place] = min(name, found.get(place, name))
    return found


def _members(context: Context, kind: str, near: int, partition: int) -> np.ndarray:
    """Members of the keys of a partition that occur more than once, sorted by key, then place."""
    parts = [np.zeros(0, _MEMBER)]
    for element in range(len(context.plan.elements)):
        with np.load(_keys_path(context, element), allow_pickle=False) as arrays:
            name = f"{kind}_{near}_{partition}"
            if name not in arrays:
                continue
            members = arrays[name]
        if kind == "paragraphs":
            # Never removed in favour of one in a document that is removed itself.
            gone = [document for document, _ in losses_of(context, element, "documents")]
            members = members[~np.isin(members["document"], gone)]
        parts.append(members)
    members = np.concatenate(parts)
    # Elements come in order, and the units of each, so that a stable sort leaves places in order.
    members = members[np.argsort(members["key"], kind="stable")]
    same = members["key"][1:] == members["key"][:-1]
    return members[np.append(same, False) | np.append(False, same)[: len(members)]]


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
    """The signature of each member, [members, permutations]; one element's in memory at a time."""
    found: np.ndarray | None = None
    for element in np.unique(members["element"]).tolist():
        with np.load(_keys_path(context, element), allow_pickle=False) as arrays:
            signatures = arrays[f"{kind}_signatures"]
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


def _keys_path(context: Context, element: int) -> Path:
    return context.work / f"keys-{element:05d}.npz"


def _losses_path(context: Context, kind: str, partition: int) -> Path:
    return context.work / f"losses-{kind}-{partition:05d}.npy"
