"""The folder of evaluation data: reads its files, says what is missing, remembers what it read."""

import fnmatch
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
        self._verdicts: dict[str, str] = {}

    def folder(self, *candidates: str, hint: str, holding: Sequence[str] = ()) -> Path:
        """The first of the folders below `root` that exists.

        Args:
          *candidates: paths below `root`, best first; `.` is the root itself.
          hint: where the data comes from and how it is laid out, for the error.
          holding: names of which the root itself must hold one to be taken.

        Raises:
          UserError: if there is none.
        """
        for candidate in candidates:
            folder = self.root / candidate
            if candidate == "." and holding and not any((folder / n).exists() for n in holding):
                continue
            if folder.is_dir():
                return folder
        raise UserError(f"{self.root / candidates[0]}: missing; {hint}")

    def lines(
        self,
        path: Path,
        hint: str,
        encodings: Sequence[str] = ("utf-8",),
        rows: int | None = None,
        header: str = "",
    ) -> list[str]:
        """Lines of a text file without their ends (LF, CR LF or CR) and without a BOM.

        Args:
          path: the file.
          hint: where it comes from and what is expected, for the error.
          encodings: tried in turn.
          rows: lines of the published file, header and empty last line left out; a file with
            others is warned of. Default: the table of known files.
          header: how the first line begins where it is one of headings; it is left out then.
            Default: there is none.

        Raises:
          UserError: if it is missing or has none of the encodings, and, with `strict`, if it is
            not as published.
        """
        try:
            content = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise UserError(f"{path}: missing; {hint}") from None
        lines = _split(_decode(content, path, encodings))
        if header and lines and lines[0].startswith(header):
            del lines[0]
        self._remember(path, content, len(lines), rows)
        return lines

    def _remember(self, path: Path, content: bytes, found: int, rows: int | None) -> None:
        name = path.relative_to(self.root).as_posix()
        if name not in self.files:
            self.files[name] = hashlib.sha256(content).hexdigest()
            if verdict := _verdict(path, name, self.files[name], found, rows):
                self._verdicts[name] = verdict
                if not self.strict:
                    self.warnings.append(verdict)
        if self.strict and name in self._verdicts:
            raise UserError(self._verdicts[name])


def _verdict(path: Path, name: str, digest: str, found: int, rows: int | None) -> str | None:
    """What is wrong with a file that differs from the published one."""
    known = _known(name)
    wanted = rows if rows is not None else known.get("rows")
    if wanted is not None and found != wanted:
        return f"{path}: {found} rows, published with {wanted}; fetch it anew"
    if "sha256" in known and digest not in known["sha256"]:
        return f"{path}: its checksum {digest[:12]}… is not that of the published file"
    return None


def _decode(content: bytes, path: Path, encodings: Sequence[str]) -> str:
    content = content.removeprefix(b"\xef\xbb\xbf")
    for encoding in encodings:
        try:
            return content.decode(encoding)
        except UnicodeDecodeError as error:
            where = len(re.findall(rb"\r\n|\n|\r", content[: error.start])) + 1
    raise UserError(f"{path}: line {where} is not {' or '.join(encodings)}; fetch it anew")


def _split(text: str) -> list[str]:
    """Lines at LF, CR LF and CR only: a form feed or U+2028 may stand inside a sentence."""
    lines = re.split(r"\r\n|\n|\r", text)
    return lines[:-1] if lines[-1] == "" else lines


# Folders that may stand before a name of the table, or be the data folder itself.
_ABOVE = ("senteval/downstream/", "downstream/", "senteval/probing/", "probing/")
_ROOTS = ("", "tatoeba/v1/", "pawsx/", "multi_simlex/", "qnli/", "stsb_multi_mt/")


def _known(name: str) -> dict:
    """What is known of a published file: `rows`, and `sha256`, a list, where it is at hand."""
    table = _table()
    for above in _ABOVE:
        name = name.removeprefix(above)
    for root in _ROOTS:
        if (entry := table["files"].get(root + name)) is not None:
            return entry
        for pattern, rows in table["rows"].items():
            if fnmatch.fnmatchcase(root + name, pattern):
                return {"rows": rows}
    return {}


def _table() -> dict[str, dict]:
    if not _TABLE:
        text = resources.files(__package__).joinpath("published_files.json").read_text("utf-8")
        _TABLE.update(json.loads(text))
    return _TABLE


_TABLE: dict[str, dict] = {}
