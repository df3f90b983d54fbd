"""Reads files of the evaluation data folder, with their checksums and the published row counts."""

import functools
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import refuse_special, sha256, split_lines
from official_cmlm.common.prepared_datasets import PreparedDataset
from official_cmlm.evaluation.scores import MissingData


class DataFolder:
    """A folder of evaluation files that keeps the checksums of the files read.

    Attributes:
      root: the folder.
      strict: whether a file that differs from the published one is an error instead of a warning.
      files: path below `root` -> SHA-256, of each file read.
      warnings: one line for each file that differs from the published one.
    """

    def __init__(self, root: Path, strict: bool = False) -> None:
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; set --data_dir to the evaluation data")
        self.root = root
        self.strict = strict
        self.files: dict[str, str] = {}
        self.warnings: list[str] = []
        self._verdicts: dict[str, str | None] = {}

    def folder(self, *candidates: str, hint: str, holding: Sequence[str] = ()) -> Path:
        """Returns the first of the folders below `root` that exists; `.` is the root itself.

        The root is taken only if `holding` is empty or it contains one of these names.

        Raises:
          MissingData: if none of them exists; it has `hint`, source and layout of the data.
        """
        for candidate in candidates:
            folder = self.root / candidate
            if candidate == "." and holding and not any((folder / n).exists() for n in holding):
                continue
            if folder.is_dir():
                return folder
        raise MissingData(self.root / candidates[0], hint)

    def lines(
        self,
        path: Path,
        hint: str,
        encodings: Sequence[str] = ("utf-8",),
        header: str = "",
    ) -> list[str]:
        """Reads lines of a text file without line ends (LF, CR LF or CR) and without a BOM.

        If the number of lines, without header and empty last line, differs from that in
        `published_files.json`, there is a warning. `encodings` are tried in turn. A first line that
        starts with `header` is left out; by default files have no header.

        Raises:
          MissingData: if the file is missing; it has `hint`, the file's source and format.
          UserError: if it is in none of the encodings; with `strict` also if it differs from the
            published one.
        """
        return self.table(path, hint, lambda line: header and line.startswith(header), encodings)[1]

    def table(
        self,
        path: Path,
        hint: str,
        is_header: Callable[[str], bool],
        encodings: Sequence[str] = ("utf-8",),
    ) -> tuple[str, list[str]]:
        """Returns the header of a file, "" if it has none, and its other lines; see `lines`.

        `is_header` says whether a first line names the columns.
        """
        refuse_special(path)
        try:
            content = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise MissingData(path, hint) from None
        lines = split_lines(_decode(content, path, encodings))
        header = lines.pop(0) if lines and is_header(lines[0]) else ""
        self._remember(path, hashlib.sha256(content).hexdigest(), len(lines))
        return header, lines

    def pairs(self, path: Path, hint: str, what: str, notes: list[str]) -> list[tuple[str, str]]:
        """Reads lines of two cells separated by a tab; other lines are skipped, a note counts them.

        Raises:
          MissingData, UserError: as in `lines`.
          UserError: also without any pair; the message calls pairs `what`.
        """
        lines = self.lines(path, hint)
        rows = [tuple(cell.strip() for cell in line.split("\t")) for line in lines]
        pairs = [row for row in rows if len(row) == 2 and all(row)]
        if not pairs:
            raise UserError(f"{path}: no {what} in it; {hint}")
        if skipped := len(lines) - len(pairs):
            notes.append(f"{skipped} of {len(lines)} lines of {path.name} skipped: not two columns")
        return pairs

    def dataset(
        self, name: str, split: str, features: Sequence[str], missing: MissingData
    ) -> list[list[Any]]:
        """Returns features of a data set of TensorFlow Datasets, in place of missing files.

        It must have been prepared in the folder `tfds` below `root`, or in `root` itself; nothing
        is downloaded. Values are those of `PreparedDataset.read`, with texts as `str`.

        Raises:
          MissingData: `missing` itself, if the data set is not there.
          UserError: if it lacks the split or a feature, or is damaged.
        """
        parent = next((p for p in self._dataset_folders() if _is_prepared(p / name)), None)
        if parent is None:
            raise missing
        data = PreparedDataset(name, str(parent), split)
        if split not in data.builder.info.splits:
            splits = ", ".join(sorted(data.builder.info.splits)) or "none"
            raise UserError(f"{parent / name}: no split {split!r}; it has {splits}")
        for file in data.files:
            self.file(Path(file.filename), missing.hint)
        rows = data.read(features)
        return [[v.decode() if isinstance(v, bytes) else v for v in row] for row in rows]

    def dataset_names(self, name: str) -> list[str]:
        """Returns the prepared configurations of a data set, e.g. `de` of `paws_x_wiki/de`."""
        folders = [path for p in self._dataset_folders() for path in sorted((p / name).glob("*"))]
        return list(dict.fromkeys(path.name for path in folders if _is_prepared(path)))

    def _dataset_folders(self) -> tuple[Path, Path]:
        return self.root / "tfds", self.root

    def file(self, path: Path, hint: str) -> Path:
        """Returns `path` itself, for a reader that does not need a whole file in memory.

        Its checksum is kept as by `lines`.

        Raises:
          MissingData: if the file is missing.
          UserError: with `strict`, if it differs from the published one.
        """
        try:
            digest = sha256(path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise MissingData(path, hint) from None
        self._remember(path, digest)
        return path

    def _remember(self, path: Path, digest: str, rows: int | None = None) -> None:
        name = path.relative_to(self.root).as_posix()
        self.files[name] = digest
        is_first = name not in self._verdicts
        verdict = self._verdicts.setdefault(name, _verdict(path, name, digest, rows))
        if verdict and self.strict:
            raise UserError(verdict)
        if verdict and is_first:
            self.warnings.append(verdict)


def json_object(line: str | bytes) -> dict[str, Any]:
    """Returns the object of a line of JSON; an empty one for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def finite(value: Any) -> float | None:
    """Returns a finite number, also one in a text; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _is_prepared(folder: Path) -> bool:
    """Returns whether a folder holds a version of a data set that tfds has prepared."""
    return any(folder.glob("*.*.*/dataset_info.json"))


def _verdict(path: Path, name: str, digest: str, rows: int | None) -> str | None:
    """Returns how a file differs from the published one; None if it does not, or is not known."""
    published = _find_published(name)
    if rows is not None and rows != published.get("rows", rows):
        return f"{path}: {rows} rows, published with {published['rows']}; download it again"
    if "sha256" in published and digest not in published["sha256"]:
        return f"{path}: its checksum {digest[:12]}… differs from the published file's"
    return None


def _decode(content: bytes, path: Path, encodings: Sequence[str]) -> str:
    content = content.removeprefix(b"\xef\xbb\xbf")
    for encoding in encodings:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError as error:
            where = len(re.findall(rb"\r\n|\n|\r", content[: error.start])) + 1
    raise UserError(f"{path}: line {where} is not {' or '.join(encodings)}; download it again")


# The table's names lack the folders `_ABOVE` and have those of `_ROOTS`; names of users' files may
# differ in both.
_ABOVE = ("senteval/downstream/", "downstream/", "senteval/probing/", "probing/", "lareqa/")
_ROOTS = ("", "tatoeba/v1/", "pawsx/", "qnli/", "stsb_multi_mt/")


def _find_published(name: str) -> dict:
    """Returns the published file's `rows` and, if known, `sha256` (a list); empty if unknown."""
    table = _table()
    for above in _ABOVE:
        name = name.removeprefix(above)
    for root in _ROOTS:
        if (entry := table["files"].get(root + name)) is not None:
            return entry
        path = PurePosixPath(root + name)
        for pattern, rows in table["rows"].items():
            # Unlike in `fnmatch`, a `*` does not match a `/`.
            if path.match(pattern):
                return {"rows": rows}
    return {}


@functools.cache
def _table() -> dict[str, dict]:
    file = resources.files(__package__).joinpath("published_files.json")
    return json.loads(file.read_text("utf-8"))
