"""Reads dictionaries of entity names and texts' mentions of them."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from official_cmlm.errors import UserError

DICTIONARY_HINT = "one name a line: id, tab, name; several ids of a name are joined by | or +"
MENTIONS_HINT = (
    "mentions.tsv (mention, tab, id) or test_corpus.txt (PubTator, e.g. BC5CDR of "
    "biocreative.bioinformatics.udel.edu)"
)

# Ids of mentions that are not linked to any entity.
_UNLINKED = {"", "-", "-1", "cui-less"}


@dataclasses.dataclass(frozen=True)
class Mention:
    """An occurrence of an entity's name in a text.

    Attributes:
      parts: the names to look up; one, or several for a composite mention such as "breast and
        ovarian cancer".
      ids: ids of the entities it refers to.
      kind: type of entity, or an empty string.
    """

    parts: tuple[str, ...]
    ids: frozenset[str]
    kind: str = ""


def split_ids(text: str) -> frozenset[str]:
    """The ids in a cell, separated by `|` or `+`."""
    return frozenset(part.strip() for part in re.split(r"[|+]", text)) - {""}


def parse_dictionary(
    lines: Sequence[str], source: str
) -> tuple[list[str], list[frozenset[str]], int]:
    """(names, ids of each name, number of malformed lines) of a dictionary.

    Raises:
      UserError: if no line is well-formed.
    """
    names, ids, skipped = [], [], 0
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) == 2 and cells[1] and split_ids(cells[0]):
            names.append(cells[1])
            ids.append(split_ids(cells[0]))
        elif line.strip():
            skipped += 1
    if not names:
        raise UserError(f"{source}: no names; {DICTIONARY_HINT}")
    return names, ids, skipped


def parse_pubtator(lines: Iterable[str]) -> tuple[list[Mention], Counter[str]]:
    """(mentions, number of lines left out by reason) of a file in PubTator format.

    Its lines are `pmid|t|title`, `pmid|a|abstract`, relations (four columns) and mentions: pmid,
    start, end, text, type, ids, and for composite mentions a seventh column with the parts,
    separated by `|`.
    """
    mentions, left_out = [], Counter()
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) < 5 or not (cells[1].isdigit() and cells[2].isdigit()):
            # Titles, abstracts, relations and empty lines hold no mention.
            is_text = not line.strip() or re.match(r"[^|\t]+\|[ta]\|", line)
            is_relation = len(cells) == 4 and not cells[1].isdigit()
            left_out["malformed"] += 0 if is_text or is_relation else 1
        elif not cells[3] or len(cells) > 7:
            left_out["malformed"] += 1
        else:
            cell = cells[5] if len(cells) > 5 else ""
            parts = cells[6] if len(cells) == 7 else ""
            _add(mentions, left_out, cells[3], cell, cells[4], parts)
    return mentions, left_out


def parse_table(lines: Iterable[str]) -> tuple[list[Mention], Counter[str]]:
    """(mentions, number of lines left out by reason) of a file with columns mention and ids.

    In a mention with several ids, `|` and `+` separate the parts of a composite mention; with a
    single id they belong to the name ("CD4+").
    """
    mentions, left_out = [], Counter()
    for line in lines:
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) == 2 and cells[0]:
            parts = cells[0].replace("+", "|") if len(split_ids(cells[1])) > 1 else ""
            _add(mentions, left_out, cells[0], cells[1], "", parts)
        elif line.strip():
            left_out["malformed"] += 1
    return mentions, left_out


def _add(
    mentions: list[Mention], left_out: Counter[str], text: str, ids: str, kind: str, parts: str
) -> None:
    if ids.lower() in _UNLINKED or not split_ids(ids):
        left_out["unlinked"] += 1
        return
    names = tuple(part.strip() for part in parts.split("|") if part.strip())
    mentions.append(Mention(names or (text,), split_ids(ids), kind))
