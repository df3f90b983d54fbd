"""The folder of evaluation data: reads its files, says what is missing, remembers what it read."""

import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from official_cmlm.errors import UserError


class DataFolder:
    """Reads evaluation files and keeps their checksums.

    Attributes:
      root: the folder.
      strict: a file that differs from the published one is an error, not a warning.
      files: path below `root` -> SHA-256 of each file that was read.
      warnings: one line for each file that is not as published.
    """

    def __init__(self, root: Path, strict: bool = False) -> None:
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; name the evaluation data's with --data_dir")
        self.root = root
        self.strict = strict
        self.files: dict[str, str] = {}
        self.warnings: list[str] = []

    def folder(self, *candidates: str, hint: str) -> Path:
        """The first of the folders below `root` that exists.

        Args:
          *candidates: paths below `root`, best first; `.` is the root itself.
          hint: where the data comes from and how it is laid out, for the error.

        Raises:
          UserError: if there is none.
        """
        for candidate in candidates:
            if (self.root / candidate).is_dir():
                return self.root / candidate
        raise UserError(f"{self.root / candidates[0]}: missing; {hint}")

    def lines(
        self,
        path: Path,
        hint: str,
        encodings: Sequence[str] = ("utf-8",),
        rows: int | None = None,
        skip_header: bool = False,
    ) -> list[str]:
        """Lines of a text file without their ends (LF, CR LF or CR) and without a BOM.

        Args:
          path: the file.
          hint: where it comes from and what is expected, for the error.
          encodings: tried in turn.
          rows: lines of the published file, header and empty last line left out; a file with
            others is warned of. Default: the table of known files.
          skip_header: leave the first line out.

        Raises:
          UserError: if it is missing or has none of the encodings, and, with `strict`, if it is
            not as published.
        """
        try:
            content = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise UserError(f"{path}: missing; {hint}") from None
        lines = _split(_decode(content, path, encodings))[1 if skip_header else 0 :]
        self._remember(path, content, len(lines), rows)
        return lines

    def _remember(self, path: Path, content: bytes, found: int, rows: int | None) -> None:
        name = path.relative_to(self.root).as_posix()
        if name in self.files:
            return
        self.files[name] = hashlib.sha256(content).hexdigest()
        known = _known(name)
        wanted = rows if rows is not None else known.get("rows")
        if wanted is not None and found != wanted:
            self._warn(f"{path}: {found} rows, published with {wanted}; fetch it anew")
        elif "sha256" in known and self.files[name] not in known["sha256"]:
            self._warn(
                f"{path}: its checksum {self.files[name][:12]}… is not that of the published file"
            )

    def _warn(self, message: str) -> None:
        if self.strict:
            raise UserError(message)
        self.warnings.append(message)


def _decode(content: bytes, path: Path, encodings: Sequence[str]) -> str:
    for encoding in encodings:
        try:
            return content.decode(encoding).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            where = content.count(b"\n", 0, error.start) + 1
    raise UserError(f"{path}: line {where} is not {' or '.join(encodings)}; fetch it anew")


def _split(text: str) -> list[str]:
    """Lines at LF, CR LF and CR only: a form feed or U+2028 may stand inside a sentence."""
    lines = re.split(r"\r\n|\n|\r", text)
    return lines[:-1] if lines[-1] == "" else lines


def _known(name: str) -> dict:
    """What is known of a published file: `rows`, `sha256` (a list); by the end of its path."""
    parts = name.split("/")
    table = _table()
    for start in range(len(parts)):
        if (entry := table.get("/".join(parts[start:]))) is not None:
            return entry
    return {}


def _table() -> dict[str, dict]:
    if not _TABLE:
        text = resources.files(__package__).joinpath("published_files.json").read_text("utf-8")
        _TABLE.update(json.loads(text))
    return _TABLE


_TABLE: dict[str, dict] = {}
