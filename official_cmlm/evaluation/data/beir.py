"""Retrieval data sets in BEIR's form (Thakur et al. 2021), and in NanoBEIR's as downloaded.

corpus.jsonl     {"_id": …, "title": …, "text": …} a line; or corpus/*.parquet
queries.jsonl    {"_id": …, "text": …} a line; or queries/*.parquet
qrels/test.tsv   header query-id, corpus-id, score; also dev, train; or qrels/test-*.parquet,
                 without a column score where all judged documents are relevant
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.text_files import list_columns, open_file, read_records, split_csv
from official_cmlm.evaluation.data.folder import DataFolder, finite, json_object
from official_cmlm.evaluation.scores import MissingData

HINT = (
    "a data set of BEIR (github.com/beir-cellar/beir: corpus.jsonl, queries.jsonl, qrels/test.tsv) "
    "or NanoBEIR (huggingface.co, zeta-alpha-ai: corpus, queries and qrels with parquet files) "
    "belongs into DATA_DIR/beir/<name>"
)
SPLITS = ("test", "dev", "train")
# The beginnings of the names of a split's files; Hugging Face calls development data `validation`.
_SPLIT_NAMES = {"test": ("test",), "dev": ("dev", "validation"), "train": ("train",)}
# The columns of tables that are read.
_COLUMNS = ("_id", "id", "title", "text", "query-id", "corpus-id", "score")


@dataclasses.dataclass(frozen=True)
class Collection:
    """Documents, queries and judgements.

    Attributes:
      documents: id -> title and text, joined by a space, in the order of the file.
      queries: id -> text, of the queries that have judgements.
      judgements: id of a query of `queries` -> id of a document -> score; also documents that are
        not in the corpus, as BEIR counts them.
      notes: what was left out, one line each.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, dict[str, int]]
    notes: list[str]


def collections_in(root: Path) -> dict[str, Path]:
    """Returns name -> folder of the data sets below `beir` or `nanobeir`, else below or in `root`.

    A data set with parts is a folder of their folders (CQADupStack: `cqadupstack/android` …).
    """
    bases = [root / name for name in ("beir", "nanobeir") if (root / name).is_dir()]
    if not bases and _is_collection(root):
        return {root.resolve().name: root}
    folders = {}
    for base in bases or [root]:
        for path in sorted([*base.glob("*"), *base.glob("*/*")]):
            name = path.relative_to(base).as_posix()
            # A folder inside of a data set is not a data set.
            if name.partition("/")[0] not in folders and _is_collection(path):
                folders[name] = path
    return folders


def read(data: DataFolder, folder: Path, split: str) -> Collection:
    """Reads a data set and its judgements of a split: `test`, `dev` or `train`.

    Malformed lines, and judgements of queries that are not there, are left out and counted.
    """
    reader = _Reader(data, folder)
    judgements = reader.judgements(split)
    queries = reader.texts("queries")
    unknown = judgements.keys() - queries.keys()
    if len(unknown) == len(judgements):
        raise UserError(
            f"{folder}: none of the {len(judgements)} judged queries is in queries; both must have "
            f"the same ids; {HINT}"
        )
    judged = {query: scores for query, scores in judgements.items() if query not in unknown}
    if unknown:
        reader.notes.append(
            f"{len(unknown)} of {len(judgements)} judged queries are not in queries; left out"
        )
    documents = reader.texts("corpus")
    pairs = [(query, document) for query, scores in judged.items() for document in scores]
    if absent := sum(document not in documents for _, document in pairs):
        reader.notes.append(
            f"{absent} of {len(pairs)} judged documents are not in the corpus; they count as not "
            "found"
        )
    if empty := sum(not text for text in documents.values()):
        reader.notes.append(f"{empty} of {len(documents)} documents are empty; they stay in")
    return Collection(documents, {query: queries[query] for query in judged}, judged, reader.notes)


def make_of_pairs(pairs: Iterable[tuple[str, str]]) -> Collection:
    """Returns the data set whose queries and documents are the texts of pairs.

    Equal texts are one query, of which all its documents are relevant, or one document.
    """
    queries: dict[str, str] = {}
    documents: dict[str, str] = {}
    judgements: dict[str, dict[str, int]] = {}
    for query, document in pairs:
        name = queries.setdefault(query, f"q{len(queries)}")
        judged = judgements.setdefault(name, {})
        judged[documents.setdefault(document, f"d{len(documents)}")] = 1
    by_id = ({name: text for text, name in ids.items()} for ids in (documents, queries))
    return Collection(*by_id, judgements, [])


class _Reader:
    """Reads the files of one data set and collects what was left out."""

    def __init__(self, data: DataFolder, folder: Path) -> None:
        self._data, self._folder = data, folder
        self.notes: list[str] = []

    def texts(self, part: str) -> dict[str, str]:
        """Returns id -> text of `corpus` or `queries`; of equal ids the last counts, as in BEIR."""
        by_id: dict[str, str] = {}
        malformed = repeated = total = 0
        for path, row in self._rows(self._text_files(part)):
            total += 1
            name, text = _id(row.get("_id", row.get("id"))), row.get("text")
            title = row.get("title") or ""
            if name is None or not isinstance(text, str) or not isinstance(title, str):
                malformed += 1
                keys = ", ".join(map(str, row)) or "no object"
                example = f"{path}: {keys}"
                continue
            repeated += name in by_id
            by_id[name] = f"{title} {text}".strip() if part == "corpus" else text
        if not by_id:
            seen = f"found {example}" if malformed else f"{self._folder / part} is empty"
            raise UserError(
                f"{self._folder}: no entry of {part} with _id and text ({seen}); {HINT}"
            )
        self._note(malformed, total, f"entries of {part} are malformed; left out")
        self._note(repeated, total, f"entries of {part} repeat an id; the last one counts")
        return by_id

    def judgements(self, split: str) -> dict[str, dict[str, int]]:
        """Returns id of a query -> id of a document -> score."""
        by_query: dict[str, dict[str, int]] = collections.defaultdict(dict)
        malformed = total = 0
        for _, row in self._rows(self._judgement_files(split)):
            total += 1
            query, document = _id(row.get("query-id")), _id(row.get("corpus-id"))
            score = _whole(row.get("score", 1))
            if query is None or document is None or score is None:
                malformed += 1
                continue
            by_query[query][document] = score
        if not by_query:
            raise UserError(
                f"{self._folder}/qrels: no judgement of {split} with query-id, corpus-id and a "
                f"whole score among {total} lines; {HINT}"
            )
        self._note(malformed, total, "judgements are malformed; left out")
        return dict(by_query)

    def _note(self, count: int, total: int, what: str) -> None:
        if count:
            self.notes.append(f"{count} of {total} {what}")

    def _text_files(self, part: str) -> list[Path]:
        lines = self._folder / f"{part}.jsonl"
        tables = sorted((self._folder / part).glob("*.parquet"))
        return tables if tables and not lines.is_file() else [lines]

    def _judgement_files(self, split: str) -> list[Path]:
        by_name = collections.defaultdict(list)
        for path in sorted((self._folder / "qrels").glob("*.*")):
            if path.suffix in _ROWS:
                by_name[path.stem.partition("-")[0]].append(path)
        for name in _SPLIT_NAMES[split]:
            if name in by_name:
                return by_name[name]
        if (
            split == "test"
            and list(by_name) == ["train"]
            and by_name["train"][0].suffix == ".parquet"
        ):
            self.notes.append("judgements are those of train, the only ones, as in NanoBEIR")
            return by_name["train"]
        have = (
            f"there are judgements of {', '.join(by_name)} (retrieval.split)" if by_name else HINT
        )
        raise MissingData(self._folder / "qrels" / f"{split}.tsv", have)

    def _rows(self, paths: Sequence[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """Yields (file, row) of all files; an empty mapping for a line without a row."""
        for path in paths:
            for row in _ROWS[path.suffix](self._data.file(path, HINT)):
                yield path, row


def _is_collection(folder: Path) -> bool:
    return (folder / "corpus.jsonl").is_file() or any((folder / "corpus").glob("*.parquet"))


def _json_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        yield from map(json_object, filter(bytes.strip, file))


def _table_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        header = _cells(file.readline().removeprefix(b"\xef\xbb\xbf"))
        if header is None or not {"query-id", "corpus-id", "score"} <= set(header):
            raise UserError(
                f"{path}: begins with {'|'.join(header or [])[:80]!r}; known is a header query-id, "
                f"corpus-id, score, tab-separated; {HINT}"
            )
        for line in file:
            if line.strip():
                cells = _cells(line)
                yield dict(zip(header, cells)) if cells and len(cells) == len(header) else {}


def _cells(line: bytes) -> list[str] | None:
    """Splits a line into cells; None if it is not UTF-8."""
    try:
        return split_csv(line.decode().rstrip("\r\n"), "\t")
    except UnicodeDecodeError:
        return None


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    def choose_columns(columns: list[str], where: str, table: bool) -> list[str]:
        if not (names := [name for name in _COLUMNS if name in columns]):
            raise UserError(
                f"{where}: no column of {list_columns(_COLUMNS)}, it has {list_columns(columns)}"
            )
        return names

    with open_file(str(path)) as file:
        for _, _, row in read_records(str(path), "parquet", file, choose_columns):
            yield row


def _id(value: object) -> str | None:
    """Returns an id as text; numbers are accepted, other values give None."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    try:
        return str(value) or None
    except ValueError:
        # A number of thousands of digits.
        return None


def _whole(value: object) -> int | None:
    """Returns a whole number of at most 32 bits, as trec_eval's relevance; else None."""
    number = finite(value)
    whole = number is not None and number.is_integer() and abs(number) < 2**31
    return int(number) if whole else None


_ROWS = {".jsonl": _json_rows, ".tsv": _table_rows, ".parquet": _parquet_rows}
