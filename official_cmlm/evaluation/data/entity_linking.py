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

# What corpora write where a mention stands for nothing in the dictionary.
_UNLINKED = {"", "-", "-1", "cui-less"}


@dataclasses.dataclass(frozen=True)
class Mention:
    """A name in a text.

    Attributes:
      parts: what is looked up; several for a composite mention such as "breast and ovarian
        cancer", one name each.
      ids: the entities it stands for.
      kind: type of entity, or an empty string.
    """

    parts: tuple[str, ...]
    ids: frozenset[str]
    kind: str = ""


def split_ids(text: str) -> frozenset[str]:
    """The ids of a cell; `|` and `+` join several."""
    return frozenset(part.strip() for part in re.split(r"[|+]", text)) - {""}


def parse_dictionary(
    lines: Sequence[str], source: str
) -> tuple[list[str], list[frozenset[str]], int]:
    """Names, the ids of each, and how many lines were malformed.

    Raises:
      UserError: if no name is left.
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
    """Mentions of a file in PubTator's form and how many lines were left out, by reason.

    Its lines are `pmid|t|title`, `pmid|a|abstract`, relations (four columns) and mentions: pmid,
    start, end, text, type, ids, and for composite mentions a seventh column with their parts,
    joined by `|`.
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
    """Mentions of a file of two columns (mention, ids) and how many were left out, by reason.

    A mention with several ids whose text holds `|` or `+` is composite, its parts stand between
    them; with one id these are letters of the name ("CD4+").
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
