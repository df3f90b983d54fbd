"""Ids, texts and metadata of an index, a JSON object each."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, read_array, write_array
from official_cmlm.search.vectors import ADVICE

# The bytes of all objects, and the position after each.
_DATA, _ENDS = "texts.npy", "ends.npy"
_NO_BYTES, _NO_ENDS = np.empty([0], np.uint8), np.empty([0], np.int64)


def encode_texts(
    ids: Iterable[str], texts: Iterable[str], metadata: Iterable[Mapping[str, Any]]
) -> list[bytes]:
    """Returns a line for each text.

    Lone surrogates, which UTF-8 cannot represent, are kept.

    Raises:
      UserError: for metadata that JSON cannot represent.
    """
    try:
        values = [
            {"id": name, "text": text, "metadata": dict(facts)}
            for name, text, facts in zip(ids, texts, metadata, strict=True)
        ]
        lines = [json.dumps(value, ensure_ascii=False) for value in values]
    except (TypeError, ValueError) as error:
        raise UserError(f"metadata must be JSON objects ({error})") from None
    return [line.encode("utf-8", "surrogatepass") for line in lines]


class Texts:
    """Dicts with `id`, `text` and `metadata`: first those of a file, then those in memory."""

    def __init__(self, data: np.ndarray = _NO_BYTES, ends: np.ndarray = _NO_ENDS) -> None:
        """Takes the bytes of all lines, uint8 `[bytes]`, and the end of each, int64 `[n]`.

        Neither array is copied, so both may be mapped from files. Default: no texts.
        """
        self._data, self._ends, self._added = data, ends, list[bytes]()

    def __len__(self) -> int:
        return len(self._ends) + len(self._added)

    def __getitem__(self, row: int) -> dict[str, Any]:
        try:
            # JSON's reader decodes bytes with lone surrogates.
            return json.loads(self._read_line(row))
        except ValueError:
            raise UserError(f"text {row} of the index is damaged; {ADVICE}") from None

    def _read_line(self, row: int) -> bytes:
        if row >= len(self._ends):
            return self._added[row - len(self._ends)]
        start = int(self._ends[row - 1]) if row else 0
        return self._data[start : int(self._ends[row])].tobytes()

    def add(self, lines: Iterable[bytes]) -> None:
        """Appends lines of `encode_texts`."""
        self._added += lines

    def remove(self, rows: Iterable[int]) -> None:
        """Removes rows; the rows after them move up."""
        left = sorted(set(range(len(self))).difference(rows))
        lines = [self._read_line(row) for row in left]
        self._data, self._ends, self._added = _NO_BYTES, _NO_ENDS, lines

    def save(self, folder: Path) -> None:
        """Writes the files."""
        lines = [self._read_line(row) for row in range(len(self))]
        data = np.frombuffer(b"".join(lines), np.uint8)
        ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
        for name, array in ((_DATA, data), (_ENDS, ends)):
            with atomic_write(folder / name) as file:
                write_array(file, array)

    @classmethod
    def load(cls, folder: Path, count: int, mapped: bool) -> "Texts":
        """Reads or maps the files; raises `UserError` if they do not hold `count` lines."""
        data, ends = (read_array(folder / name, ADVICE, mapped) for name in (_DATA, _ENDS))
        is_right = (data.dtype, data.ndim, ends.dtype) == (np.uint8, 1, np.int64)
        if not (
            is_right
            and ends.shape == (count,)
            and (np.diff(ends, prepend=0) >= 0).all()
            and (ends[-1] if count else 0) == len(data)
        ):
            raise UserError(f"{folder}: its texts are not {count} texts; {ADVICE}")
        return cls(data, ends)
