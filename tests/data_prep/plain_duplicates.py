"""Removal of duplicates as plain loops over all files in memory, to compare the pipeline with."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from data_prep.counts import DropCounter
from data_prep.readers import Document
from data_prep.stages.duplicates import WHOLE, DuplicateOptions, drop, file_keys

Place = tuple[int, int, int]


def find_losses(
    files: Sequence[Sequence[Document]], options: DuplicateOptions
) -> list[dict[tuple[int, int], str]]:
    """Returns for each file the places that are removed, with the reason."""
    keys = [file_keys(iter(file), options) for file in files]
    lost: dict[Place, str] = {}
    for kind in (each.removesuffix("s") for each in options.compared):
        groups = defaultdict(list)
        for file, keys_of_file in enumerate(keys):
            units = keys_of_file[f"{kind}s"]
            places = [(file, *place) for place in units.places.tolist()]
            # A paragraph is not removed in favour of one in a document that is removed.
            stays = [(*place[:2], WHOLE) not in lost for place in places]
            for place, key, there in zip(places, units.exact.tolist(), stays):
                if key and there:
                    groups[f"duplicates/exact_{kind}", key].append((place, None))
            for unit, bands, signature in zip(units.signed, units.bands, units.signatures):
                for key in bands.tolist() if stays[unit] else ():
                    groups[f"duplicates/near_{kind}", key].append((places[unit], signature))
        for (reason, _), members in groups.items():
            for place in _later(sorted(members, key=lambda member: member[0]), options.minhash):
                lost[place] = min(reason, lost.get(place, reason))
    return [
        {place[1:]: reason for place, reason in lost.items() if place[0] == file}
        for file in range(len(files))
    ]


def _later(members, near) -> Iterator[Place]:
    """Yields the members of a key that are removed: those like an earlier one that stays."""
    staying = []
    for place, signature in members:
        if signature is None:
            alike = bool(staying)
        else:
            shares = [(signature == other).mean() for other in staying]
            alike = any((share - 1 / 256) / (1 - 1 / 256) >= near.threshold for share in shares)
        if alike:
            yield place
        else:
            staying.append(signature)


def remove_duplicates(
    files: Sequence[Sequence[Document]], options: DuplicateOptions, counters: DropCounter
) -> Iterator[Document]:
    """Yields the documents of all files that stay, in order."""
    for file, losses in zip(files, find_losses(files, options)):
        yield from drop(file, losses, counters)
