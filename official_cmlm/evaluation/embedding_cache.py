"""An encoder's memory: no text is embedded twice."""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import Encode, EncoderError, FineTune, checked

# Bytes of a text's name in the store: of a million texts, two share one with chance 1e-27.
_KEY_BYTES = 16
# Texts handed to the encoder at once; what they cost is lost when a run is killed.
_CHUNK = 2048


class CachedEncoder:
    """An encoder that embeds no text twice, nor in the next run where a folder is given.

    The store is two files that only grow: names of texts and their vectors, row by row. What a
    killed run, or a full disk, left unfinished behind them is cut off. One run at a time has it.

    >>> calls = []
    >>> def encode(texts):
    ...     calls.extend(texts)
    ...     return np.ones([len(texts), 2])
    >>> cached = CachedEncoder(encode)
    >>> cached(["a", "b", "a"]).shape, cached(["b", "c"]).shape, calls
    ((3, 2), (2, 2), ['a', 'b', 'c'])

    Attributes:
      encoded: texts that were handed to the encoder.
      asked: texts that were asked for.
      fine_tune: trains a copy of the encoder with a classifier on it, or None where the encoder
        cannot be trained here.
    """

    def __init__(
        self,
        encode: Encode,
        folder: Path | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
        fine_tune: FineTune | None = None,
    ) -> None:
        """Opens or makes the store.

        Args:
          encode: the encoder; its answers are checked.
          folder: where vectors outlive the run; must belong to this one encoder. They are read from
            there, so that memory holds what is in use only. Default: nowhere.
          progress: called with the number of texts to encode, returns what is called with the
            number that are done. Default: silent.
          fine_tune: see the class. Default: none.

        Raises:
          UserError: if the folder's files are none of these, or another run uses them.
        """
        self._encode = checked(encode)
        self._progress = progress or (lambda total: lambda done: None)
        self.fine_tune = fine_tune
        self._folder = folder
        self._rows: dict[bytes, int] = {}
        self._blocks: list[np.ndarray] = []
        self._starts: list[int] = []
        self.encoded = 0
        self.asked = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"{folder}: another run uses these embeddings; wait for it, or name another "
                    "--output_dir"
                ) from None
            self._load(folder)

    def close(self) -> None:
        """Lets other runs use the folder."""
        if self._folder is not None:
            self._lock.close()

    @property
    def dimension(self) -> int | None:
        """Width of the vectors; None before the first."""
        return self._blocks[0].shape[1] if self._blocks else None

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts: float32 `[n, dim]` in their order."""
        keys = [_key(text) for text in texts]
        new = {key: text for key, text in zip(keys, texts) if key not in self._rows}
        self.asked += len(keys)
        report = self._progress(len(new)) if new else None
        # The longest first, so that texts of a length meet and the time left is not too hopeful.
        order = sorted(new, key=lambda key: -len(new[key]))
        for start in range(0, len(order), _CHUNK):
            chunk = order[start : start + _CHUNK]
            self._add(chunk, self._encode([new[key] for key in chunk]))
            report(len(chunk))
        if not keys:
            width = self.dimension or self._encode([""]).shape[1]
            return np.zeros([0, width], np.float32)
        return self._gather(np.array([self._rows[key] for key in keys]))

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        found = np.empty([len(rows), self._blocks[0].shape[1]], np.float32)
        owner = np.searchsorted(self._starts, rows, side="right") - 1
        for block in np.unique(owner):
            mine = owner == block
            found[mine] = self._blocks[block][rows[mine] - self._starts[block]]
        return found

    def _add(self, keys: list[bytes], vectors: np.ndarray) -> None:
        if self._blocks and vectors.shape[1] != self._blocks[0].shape[1]:
            raise EncoderError(
                f"the encoder returned vectors of {vectors.shape[1]} values, but its stored ones "
                f"have {self._blocks[0].shape[1]}; give it an empty cache"
            )
        if self._folder is not None:
            vectors = self._store(keys, vectors)
        self._extend(keys, vectors)
        self.encoded += len(keys)

    def _store(self, keys: list[bytes], vectors: np.ndarray) -> np.ndarray:
        """Appends to the files; returns the vectors as they lie there."""
        rows, width = len(self._rows), vectors.shape[1]
        if not rows:
            partial = self._folder / "width.partial"
            partial.write_text(str(width))
            partial.replace(self._folder / "width")
        # Vectors first: a name without its vector would be an error, the reverse is waste.
        for name, size, content in (
            ("vectors.f32", 4 * width, vectors.tobytes()),
            ("names.bin", _KEY_BYTES, b"".join(keys)),
        ):
            path = self._folder / name
            path.touch()
            # Behind the known rows there is at most what an earlier write could not finish.
            os.truncate(path, rows * size)
            with path.open("ab") as file:
                file.write(content)
        return _mapped(self._folder / "vectors.f32", rows, len(keys), width)

    def _extend(self, keys: list[bytes], vectors: np.ndarray) -> None:
        start = len(self._rows)
        self._starts.append(start)
        self._blocks.append(vectors)
        self._rows.update(zip(keys, range(start, start + len(keys))))

    def _load(self, folder: Path) -> None:
        width_file = folder / "width"
        vectors, names = folder / "vectors.f32", folder / "names.bin"
        if not all(path.exists() for path in (width_file, vectors, names)):
            for path in (width_file, vectors, names):
                path.unlink(missing_ok=True)
            return
        try:
            width = int(width_file.read_text())
        except ValueError:
            width = 0
        if width < 1:
            raise UserError(f"{width_file}: no width of vectors; delete the folder {folder}")
        rows = min(vectors.stat().st_size // (4 * width), names.stat().st_size // _KEY_BYTES)
        os.truncate(vectors, rows * 4 * width)
        os.truncate(names, rows * _KEY_BYTES)
        if rows:
            self._extend(list(_split(names.read_bytes())), _mapped(vectors, 0, rows, width))


def _mapped(path: Path, start: int, rows: int, width: int) -> np.ndarray:
    offset = 4 * width * start
    return np.memmap(path, np.float32, mode="r", offset=offset, shape=(rows, width))


def _split(names: bytes) -> Iterator[bytes]:
    for start in range(0, len(names), _KEY_BYTES):
        yield names[start : start + _KEY_BYTES]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()
