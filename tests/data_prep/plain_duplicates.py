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
    for kind in options.ways:
        groups = defaultdict(list)
        for file, keys_of_file in enumerate(keys):
            for key, _, document, paragraph, row in keys_of_file[kind].members.tolist():
                # A paragraph is not removed in favour of one in a document that is removed.
                if (file, document, WHOLE) in lost:
                    continue
                signature = keys_of_file[kind].signatures[row] if row >= 0 else None
                reason = f"duplicates/{'exact' if row < 0 else 'near'}_{kind[:-1]}"
                groups[reason, key].append(((file, document, paragraph), signature))
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
