"""What an encoder is here, the checks of what it returns, and its memory of what it has seen."""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.errors import UserError

Encode = Callable[[list[str]], np.ndarray]
"""n strings -> float array `[n, dim]`, row i for string i; `dim` never changes."""

# Bytes of a text's name in the store: of a million texts, two share one with chance 1e-27.
_KEY_BYTES = 16
# Texts handed to the encoder at once; what they cost is lost when a run is killed.
_CHUNK = 2048


# (texts, int labels [n], number of classes, seed) -> a function from texts to int labels.
FineTune = Callable[[list[str], np.ndarray, int, int], Callable[[list[str]], np.ndarray]]


class EncoderError(UserError):
    """The encoder returned something that is no matrix of embeddings of what it was given."""


def checked(encode: Encode) -> Encode:
    """`encode` with its answers checked.

    Raises (the returned function):
      EncoderError: for another number of rows, a width that changes, or values that are no numbers.
    """
    width: list[int] = []

    def encode_checked(texts: list[str]) -> np.ndarray:
        try:
            vectors = np.asarray(encode(texts))
        except UserError:
            raise
        except Exception as error:
            # Anybody's code: whatever it raises concerns the encoder, not the suite.
            raise EncoderError(
                f"the encoder failed on {len(texts)} texts, the first of them {texts[0]!r:.80}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise EncoderError(
                f"the encoder returned an array of shape {list(vectors.shape)} for {len(texts)} "
                f"texts; expected [{len(texts)}, dim]"
            )
        if not np.issubdtype(vectors.dtype, np.number) or np.iscomplexobj(vectors):
            raise EncoderError(f"the encoder returned {vectors.dtype}; expected real numbers")
        width[:] = width or [vectors.shape[1]]
        if vectors.shape[1] != width[0]:
            raise EncoderError(
                f"the encoder returned vectors of {vectors.shape[1]} values after vectors of "
                f"{width[0]}; all must have one width"
            )
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            raise EncoderError(
                f"the encoder returned NaN or infinity for {int(bad.sum())} of {len(texts)} texts, "
                f"the first of them {texts[int(np.argmax(bad))]!r:.80}"
            )
        return vectors.astype(np.float32, copy=False)

    return encode_checked


def fingerprint(encode: Encode, probes: Sequence[str] = ("", "One.", "Zwei Wörter.")) -> str:
    """Sixteen hexadecimal digits that name an encoder by what it makes of a few texts.

    For encoders that are known only as Python objects; a folder is better named by its files.
    """
    vectors = np.ascontiguousarray(checked(encode)(list(probes)), dtype=np.float32)
    return hashlib.sha256(vectors.tobytes() + str(vectors.shape).encode()).hexdigest()[:16]


class CachedEncoder:
    """An encoder that embeds no text twice, nor in the next run where a folder is given.

    The store is two files that only grow: names of texts and their vectors, row by row. A run that
    is killed leaves at most one row too many in one of them, which the next one cuts off.

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
          folder: where vectors outlive the run; must belong to this one encoder. Default: nowhere.
          progress: called with the number of texts to encode, returns what is called with the
            number that are done. Default: silent.
          fine_tune: see the class. Default: none.

        Raises:
          UserError: if the folder's files are none of these or fit no encoder of this width.
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
            self._load(folder)

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
            if not self._rows:
                partial = self._folder / "width.partial"
                partial.write_text(str(vectors.shape[1]))
                partial.replace(self._folder / "width")
            # Vectors first: a name without its vector would be an error, the reverse is waste.
            with (self._folder / "vectors.f32").open("ab") as file:
                file.write(vectors.tobytes())
            with (self._folder / "names.bin").open("ab") as file:
                file.write(b"".join(keys))
        self._extend(keys, vectors)
        self.encoded += len(keys)

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
            raise UserError(f"{width_file}: no number; delete the folder {folder}") from None
        rows = min(vectors.stat().st_size // (4 * width), names.stat().st_size // _KEY_BYTES)
        os.truncate(vectors, rows * 4 * width)
        os.truncate(names, rows * _KEY_BYTES)
        if rows:
            stored = np.memmap(vectors, np.float32, mode="r", shape=(rows, width))
            self._extend(list(_split(names.read_bytes())), stored)


def _split(names: bytes) -> Iterator[bytes]:
    for start in range(0, len(names), _KEY_BYTES):
        yield names[start : start + _KEY_BYTES]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()
