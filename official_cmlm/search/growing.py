"""Arrays and texts that grow at their end."""

from collections.abc import Iterable

import numpy as np

from official_cmlm.common.errors import UserError


class GrowingArray:
    """An array that grows at its end, in a time per row that on average does not grow with it.

    A given array, such as one that is mapped from a file, is not copied before the first append.
    """

    def __init__(self, rows: np.ndarray) -> None:
        self._buffer, self._count = rows, len(rows)

    @property
    def rows(self) -> np.ndarray:
        """All rows, as a view that does not change when rows are appended."""
        return self._buffer[: self._count]

    def reserve(self, count: int) -> None:
        """Makes room for `count` rows in total."""
        if count > len(self._buffer):
            larger = np.empty([count, *self._buffer.shape[1:]], self._buffer.dtype)
            larger[: self._count] = self.rows
            self._buffer = larger

    def append(self, rows: np.ndarray) -> None:
        """Appends rows of the array's type and width; readers see them when all are written."""
        needed = self._count + len(rows)
        if needed > len(self._buffer):
            self.reserve(max(needed, len(self._buffer) * 3 // 2))
        elif not self._buffer.flags.writeable:
            self._buffer = self._buffer.copy()
        self._buffer[self._count : needed] = rows
        self._count = needed


class Texts:
    """Strings as one array of bytes, which takes less memory than objects and can be mapped.

    Lone surrogates, which UTF-8 cannot represent, are kept.
    """

    def __init__(self, data: np.ndarray, ends: np.ndarray) -> None:
        """Takes the bytes of all texts, uint8 `[bytes]`, and the end of each, int64 `[n]`.

        Neither array is copied before texts are appended.
        """
        self._data, self._ends = GrowingArray(data), GrowingArray(ends)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Texts":
        """Makes an object with a copy of these texts."""
        made = cls(np.zeros([0], np.uint8), np.zeros([0], np.int64))
        made.append(texts)
        return made

    @property
    def data(self) -> np.ndarray:
        """The bytes of all texts, uint8 `[bytes]`."""
        return self._data.rows

    @property
    def ends(self) -> np.ndarray:
        """The position in `data` after each text, int64 `[n]`."""
        return self._ends.rows

    def append(self, texts: Iterable[str]) -> None:
        """Appends texts."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        first = len(self.data)
        # The ends are appended last, as readers take the number of texts from them.
        self._data.append(np.frombuffer(b"".join(encoded), np.uint8))
        self._ends.append(first + np.cumsum(lengths, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        index = range(len(self))[index]
        start = int(self.ends[index - 1]) if index else 0
        data = self.data[start : int(self.ends[index])].tobytes()
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise UserError(
                f"text {index} of the index is damaged (no UTF-8); build and save the index again"
            ) from None
