"""Reads dictionaries of entity names and texts' mentions of them.

The files are found by their publishers' names: see `find_dictionary` and `find_queries`.
"""

import csv
import dataclasses
import itertools
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import MissingData

DICTIONARY_HINT = (
    "names of entities are entities.txt (id, tab, name), test_dictionary.txt of BioSyn and SapBERT "
    "(id||name), or SapBERT's COMETA_id_sf_dictionary.txt, AskAPatient.dict.txt and "
    "umls_onto_*.txt (id||name); several ids of a name are joined by | or +"
)
MENTIONS_HINT = (
    "mentions are mentions.tsv (mention, tab, id), test_corpus.txt or BC5CDR's "
    "CDR_TestSet.PubTator.txt of biocreative.bioinformatics.udel.edu (PubTator), BioSyn's "
    "processed_test/*.concept (pmid||start|end||type||mention||id), XL-BEL's "
    "<language>_1k_test_query.txt (CUI||mention), COMETA's splits/*/test.csv (tab-separated, with "
    "a header), or SapBERT's AskAPatient.fold-*.test.preprocessed_query.txt (id||mention)"
)
SPLITS = ("test", "dev", "train")
# Name of the set of mentions in a raw PubTator file.
PUBTATOR = "pubtator"

# The publisher's names of BC5CDR's parts, and where its archive has them.
_CDR = {"test": "CDR_TestSet", "dev": "CDR_DevelopmentSet", "train": "CDR_TrainingSet"}
_CDR_FOLDERS = ("", "CDR.Corpus.v010516", "CDR_Data/CDR.Corpus.v010516")
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
    """Returns the ids in a cell, separated by `|` or `+`."""
    return frozenset(part.strip() for part in re.split(r"[|+]", text)) - {""}


Row = tuple[str, str, str, str]
"""A mention's text, ids, type, and the parts of a composite mention between `|`."""
Rows = Iterator[Row | None]
"""Rows of a file; None for a malformed line. Lines that never hold a mention give nothing."""


@dataclasses.dataclass(frozen=True)
class Queries:
    """Files of mentions that are scored together.

    Attributes:
      name: follows the folder's name in results, e.g. a language or `pubtator`; may be empty.
      paths: the files.
      parse: (lines, file) -> rows.
      folds: whether each file is a fold of a cross-validation: scores are means over folds.
      cased: whether SapBERT's code keeps the case of these mentions.
    """

    name: str
    paths: tuple[Path, ...]
    parse: Callable[[Sequence[str], Path], Rows]
    folds: bool = False
    cased: bool = False

    def read(self, data: DataFolder) -> tuple[list[list[Mention]], Counter[str]]:
        """Reads (mentions of each fold, lines left out by reason); one fold by default."""
        lines = [data.lines(path, MENTIONS_HINT) for path in self.paths]
        left_out: Counter[str] = Counter()
        folds = [make_mentions(self.parse(*part), left_out) for part in zip(lines, self.paths)]
        if not self.folds:
            folds = [list(itertools.chain.from_iterable(folds))]
        for path, mentions in zip(self.paths, folds):
            if not mentions:
                first = next((part[0] for part in lines if part), "")
                raise UserError(
                    f"{path}: no linked mention; line 1 is {reprlib.repr(first)}; {MENTIONS_HINT}"
                )
        return folds, left_out


def make_mentions(rows: Rows, left_out: Counter[str]) -> list[Mention]:
    """Returns the linked mentions of rows; counts the others: `malformed` or `unlinked`."""
    mentions = []
    for row in rows:
        if row is None:
            left_out["malformed"] += 1
            continue
        text, ids, kind, parts = row
        if ids.lower() in _UNLINKED or not split_ids(ids):
            left_out["unlinked"] += 1
            continue
        names = tuple(part.strip() for part in parts.split("|") if part.strip())
        mentions.append(Mention(names or (text,), split_ids(ids), kind))
    return mentions


def find_folders(root: Path) -> list[Path]:
    """Finds folders with names or mentions, below the data folder or its `entity_linking`.

    Of folders with the same name, the first by path is taken.
    """
    signs = ("entities.txt", "*_dictionary.txt", "AskAPatient.dict.txt", "umls_onto*.txt")
    signs += ("processed_*/*.concept", "xlbel_v*")
    signs += tuple(f"{f}/CDR_*.PubTator.txt".lstrip("/") for f in _CDR_FOLDERS)
    folders = {
        root.joinpath(*path.relative_to(root).parts[: 1 + above.count("/")])
        for above in ("", "entity_linking/")
        for sign in signs
        for path in root.glob(f"{above}*/{sign}")
    }
    # This folder usually contains the folders with names or mentions.
    own = root / "entity_linking"
    by_name = {
        folder.name: folder
        for folder in reversed(sorted(folders))
        if folder != own or (own / "entities.txt").is_file()
    }
    return [by_name[name] for name in sorted(by_name)]


def find_dictionary(folder: Path, split: str) -> Path:
    """Returns the file of a folder's names."""
    names = ("entities.txt", f"{split}_dictionary.txt", "COMETA_id_sf_dictionary.txt")
    for name in (*names, "AskAPatient.dict.txt", "umls_onto*.txt"):
        for path in sorted(folder.glob(name)):
            return path
    raise MissingData(folder / names[0], DICTIONARY_HINT)


def find_queries(folder: Path, split: str) -> list[Queries]:
    """Finds the files of a part of a folder's data: `test`, `dev` or `train`."""
    if queries := _queries(folder, split):
        return queries
    others = [other for other in SPLITS if other != split and _queries(folder, other)]
    hint = "".join(
        f"there is {', '.join(path.name for q in _queries(folder, other) for path in q.paths[:1])} "
        f"(--set=entity_linking.split={other}); "
        for other in others
    )
    raise MissingData(f"{folder}: mentions of the {split} set", hint + MENTIONS_HINT)


def _queries(folder: Path, split: str) -> list[Queries]:
    if split == "test" and (path := folder / "mentions.tsv").is_file():
        return [Queries("", (path,), read_table)]
    names = [f"{split}_corpus.txt", *(f"{f}/{_CDR[split]}.PubTator.txt" for f in _CDR_FOLDERS)]
    for name in names:
        if (path := folder / name.lstrip("/")).is_file():
            return [Queries(PUBTATOR, (path,), read_pubtator)]
    processed = folder / f"processed_{split}"
    if paths := sorted([*processed.glob("*.concept"), *processed.glob("*.txt")]):
        return [Queries("", tuple(paths), read_concepts)]
    if paths := sorted(folder.glob(f"splits/*/{split}.csv")):
        return [Queries(path.parent.name, (path,), read_cometa, cased=True) for path in paths]
    if paths := sorted(folder.glob(f"AskAPatient.fold-*.{split}.preprocessed_query.txt")):
        return [Queries("", tuple(paths), read_ids_first, folds=True, cased=True)]
    if split == "test":
        # The first version is the one of XL-BEL's published figures; the second adds sentences.
        for place in ("", "xlbel_v0.0/", "xlbel_v1.0/"):
            paths = {*folder.glob(f"{place}*_query*.txt"), *folder.glob(f"{place}xlbel_*.txt")}
            named = {re.sub(r"^xlbel_", "", path.stem).partition("_")[0]: path for path in paths}
            # The file of all languages repeats the other files.
            languages = sorted(named.keys() - {"all"}) or sorted(named)
            if languages:
                return [Queries(n, (named[n],), read_ids_first, cased=True) for n in languages]
    return []


def parse_dictionary(
    lines: Sequence[str], source: str
) -> tuple[list[str], list[frozenset[str]], int]:
    """Parses a dictionary: (names, ids of each name, number of malformed lines)."""
    names, ids, skipped = [], [], 0
    first = next((line for line in lines if line.strip()), "")
    separator = "||" if "||" in first and "\t" not in first else "\t"
    for line in lines:
        cells = [cell.strip() for cell in line.split(separator)]
        if len(cells) == 2 and cells[1] and split_ids(cells[0]):
            # SapBERT's `DictionaryDataset` leaves these out too.
            if separator == "||" and cells[0].lower() == "cui-less":
                continue
            names.append(cells[1])
            ids.append(split_ids(cells[0]))
        elif line.strip():
            skipped += 1
    if not names:
        raise UserError(f"{source}: no names; line 1 is {reprlib.repr(first)}; {DICTIONARY_HINT}")
    return names, ids, skipped


def _cells(lines: Iterable[str], separator: str = "||") -> Iterator[list[str]]:
    """Yields the cells of each line that is not blank."""
    for line in lines:
        cells = [cell.strip() for cell in line.split(separator)]
        if any(cells):
            yield cells


def _parts_by_ids(text: str, ids: str) -> str:
    """Returns a mention with several ids, its parts separated by `|` alone; empty for one id.

    In a mention with one id, `|` and `+` belong to the name.
    """
    return text.replace("+", "|") if len(split_ids(ids)) > 1 else ""


def read_pubtator(lines: Iterable[str], path: Path) -> Rows:
    """Reads a file in PubTator format.

    Its lines are `pmid|t|title`, `pmid|a|abstract`, relations (four columns) and mentions: pmid,
    start, end, text, type, ids, and for composite mentions a seventh column with the parts,
    separated by `|`.
    """
    for cells in _cells(lines, "\t"):
        is_relation = len(cells) == 4 and not cells[1].isdigit()
        if is_relation or re.match(r"[^|]+\|[ta]\|", cells[0]):
            continue
        if 5 <= len(cells) <= 7 and cells[1].isdigit() and cells[2].isdigit() and cells[3]:
            text, kind, ids, parts = [*cells, "", ""][3:7]
            yield text, ids, kind, parts
        else:
            yield None


def read_table(lines: Iterable[str], path: Path) -> Rows:
    """Reads the columns mention and ids.

    In a mention with several ids, `|` and `+` separate the parts of a composite mention; with a
    single id they belong to the name ("CD4+").
    """
    for cells in _cells(lines, "\t"):
        yield (*cells, "", _parts_by_ids(*cells)) if len(cells) == 2 and cells[0] else None


def read_concepts(lines: Iterable[str], path: Path) -> Rows:
    """Reads BioSyn's `*.concept` files, `pmid||start|end||type||mention||ids`.

    The parts of a composite mention are separated by `|`, and punctuation is gone from all of them,
    so that `|` and `+` are separators only.
    """
    for cells in _cells(lines):
        if len(cells) == 5 and cells[3]:
            yield cells[3], cells[4], cells[2], cells[3].replace("+", "|")
        else:
            yield None


def read_ids_first(lines: Iterable[str], path: Path) -> Rows:
    """Reads `id||mention`, or with a third column, a sentence.

    XL-BEL's ids are joined by `|`; its second version has the sentences.
    """
    for cells in _cells(lines):
        ids, text, *sentence = cells if len(cells) > 1 else ("", "")
        is_known = not sentence or "<tgt>" in "".join(sentence)
        yield (text, ids, "", _parts_by_ids(text, ids)) if text and is_known else None


def read_cometa(lines: Iterable[str], path: Path) -> Rows:
    """Reads COMETA's tab-separated table.

    The header tells where the columns are. These are read: `Term`, and `General SNOMED ID`, or for
    splits whose folder ends with `_specific` the column `Specific SNOMED ID`.
    """
    kind = "Specific" if path.parent.name.endswith("_specific") else "General"
    needed = ("Term", f"{kind} SNOMED ID")
    rows = csv.reader(lines, delimiter="\t")
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if not set(needed) <= set(header):
            raise UserError(
                f"{path}: the header is {', '.join(header) or 'empty'}; COMETA's has "
                f"{' and '.join(needed)}, separated by tabs; download it again"
            )
        term, identity = map(header.index, needed)
        for row in rows:
            cells = [cell.strip() for cell in row]
            if len(cells) == len(header) and cells[term]:
                yield cells[term], cells[identity], "", ""
            elif any(cells):
                yield None
    except csv.Error as error:
        raise UserError(f"{path}: line {rows.line_num}: {error}; download it again") from None
