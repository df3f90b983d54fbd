"""A cache of embeddings, in memory and on disk: no text is embedded twice."""

import functools
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, read_array, remove_unfinished, write_array
from official_cmlm.evaluation.encoder import Encode, EncoderError, FineTune, Role, check_vectors

# Bytes of a text's hash: among a million texts, a collision has probability 1e-27.
_KEY_BYTES = 16
# Texts per call of the encoder and per worker; a killed run loses at most this much work.
_CHUNK = 2048
_ADVICE = "delete it, and its texts are embedded again"


class CachedEncoder:
    """An encoder that embeds no text twice; with a folder, not even across runs.

    The folder has a file for each call of the encoder, an array of (hash of a text, its vector),
    which is there as a whole or not at all. One process at a time uses it.

    >>> calls = []
    >>> def encode(texts):
    ...     calls.extend(texts)
    ...     return np.ones([len(texts), 2])
    >>> cached = CachedEncoder(encode)
    >>> cached(["a", "b", "a"]).shape, cached(["b", "c"]).shape, calls
    ((3, 2), (2, 2), ['a', 'b', 'c'])

    Attributes:
      seconds: time that embedding took in this process.
      fine_tune: trains a copy of the encoder with a classifier; None if it cannot be trained.
      roles: roles by name; their embeddings are kept apart, in the same store.
    """

    def __init__(
        self,
        encode: Encode,
        folder: Path | None = None,
        progress: Callable[[int], Callable[[int], None]] | None = None,
        fine_tune: FineTune | None = None,
        roles: Mapping[str, Role] | None = None,
        workers: int = 1,
    ) -> None:
        """Opens or creates the store.

        Args:
          encode: the encoder; what it returns is checked (`encoder.check_vectors`).
          folder: keeps the vectors for later runs; one folder per encoder. Vectors are
            memory-mapped from there. Default: kept in memory only.
          progress: called with the number of texts to encode; returns a function to call with the
            number just encoded. Default: silent.
          fine_tune, roles: see the class. Default: none.
          workers: number of processes among which `encode` divides its texts; a call has up to
            2,048 texts for each process. Default 1.

        Raises:
          UserError: if a file of the folder is damaged.
        """
        roles = roles or {}
        self._encode = {"": check_vectors(encode)}
        self._encode |= {name: check_vectors(role.encode) for name, role in roles.items()}
        self.roles = {
            name: Role(functools.partial(self._embed, name), role.prompt)
            for name, role in roles.items()
        }
        self._progress = progress or (lambda total: lambda done: None)
        self.fine_tune = fine_tune
        self._chunk = _CHUNK * workers
        self._folder = folder
        # Hash of a text -> its row; rows are counted over all chunks, which may share texts.
        self._rows: dict[bytes, int] = {}
        self._chunks: list[np.ndarray] = []
        self._next_number = 0
        self.seconds = 0.0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished(folder)
            # A damaged file that the user has deleted leaves a gap.
            paths = [path for path in folder.glob("*.npy") if path.stem.isdecimal()]
            for path in sorted(paths, key=lambda path: int(path.stem)):
                chunk = read_array(path, _ADVICE, mapped=True)
                if chunk.dtype.names != ("key", "vector") or chunk.ndim != 1:
                    raise UserError(f"{path}: not an array of embeddings; {_ADVICE}")
                self._extend(chunk)
                self._next_number = int(path.stem) + 1

    @property
    def constant(self) -> bool:
        """Whether there are vectors of two texts or more, and all of them are equal."""
        if len(self._rows) < 2:
            return False
        first = self._chunks[0]["vector"][0]
        return all((chunk["vector"] == first).all() for chunk in self._chunks)

    @property
    def dimension(self) -> int | None:
        """Width of the vectors; None before the first one."""
        return self._chunks[0]["vector"].shape[1] if self._chunks else None

    def prepare(self, texts_by_role: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Embeds texts that later calls will ask for, all together, so that batches are full.

        Args:
          texts_by_role: pairs of a role, "" for none, and its texts.
        """
        by_role: dict[str, dict[bytes, str]] = {}
        for role, texts in texts_by_role:
            new = by_role.setdefault(role, {})
            new |= {key: text for text in texts if (key := _key(text, role)) not in self._rows}
        total = sum(map(len, by_role.values()))
        report = self._progress(total) if total else None
        began = time.monotonic()
        for role, new in by_role.items():
            # The longest texts come first: similar lengths share a batch, and the time left is not
            # estimated too low.
            order = sorted(new, key=lambda key, new=new: -len(new[key]))
            for start in range(0, len(order), self._chunk):
                keys = order[start : start + self._chunk]
                self._add(keys, self._encode[role]([new[key] for key in keys]))
                report(len(keys))
        self.seconds += time.monotonic() - began

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts: float32 `[n, dim]` in their order."""
        return self._embed("", texts)

    def _embed(self, role: str, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts of a role; the name "" stands for none."""
        self.prepare([(role, texts)])
        width = self.dimension or self._encode[role]([""]).shape[1]
        vectors = np.zeros([len(texts), width], np.float32)
        rows = np.array([self._rows[_key(text, role)] for text in texts], np.int64)
        starts = np.cumsum([0, *map(len, self._chunks)])
        numbers = np.searchsorted(starts, rows, "right") - 1
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._chunks[number]["vector"][rows[here] - starts[number]]
        return vectors

    def _add(self, keys: list[bytes], vectors: np.ndarray) -> None:
        width = vectors.shape[1]
        if width != (self.dimension or width):
            raise EncoderError(
                f"the encoder returned vectors of width {width}, the stored ones have "
                f"{self.dimension}; delete the stored embeddings"
            )
        kind = np.dtype([("key", f"V{_KEY_BYTES}"), ("vector", np.float32, (width,))])
        chunk = np.empty(len(keys), kind)
        chunk["key"], chunk["vector"] = np.array(keys, f"V{_KEY_BYTES}"), vectors
        if self._folder is not None:
            path = self._folder / f"{self._next_number:06d}.npy"
            with atomic_write(path) as file:
                write_array(file, chunk)
            chunk = read_array(path, _ADVICE, mapped=True)
            self._next_number += 1
        self._extend(chunk)

    def _extend(self, chunk: np.ndarray) -> None:
        start = sum(map(len, self._chunks))
        self._rows.update(zip(chunk["key"].tolist(), range(start, start + len(chunk))))
        self._chunks.append(chunk)


def _key(text: str, role: str = "") -> bytes:
    # The same text has another vector in another role.
    secret = hashlib.sha256(role.encode("utf-8", "surrogatepass")).digest() if role else b""
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=_KEY_BYTES, key=secret).digest()
