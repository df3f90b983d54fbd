"""A cache of embeddings, in memory and on disk: no text is embedded twice."""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text, locked
from official_cmlm.evaluation.encoder import Encode, EncoderError, FineTune, Role, checked

# Bytes of a text's hash: among a million texts, a collision has probability 1e-27.
_KEY_BYTES = 16
# Texts per call of the encoder and per worker; a killed run loses at most this much work.
_CHUNK = 2048


class CachedEncoder:
    """An encoder that embeds no text twice; with a folder, not even across runs.

    The store consists of two append-only files: hashes of texts, and their vectors, row by row. An
    incomplete last row, left by a killed run or a full disk, is cut off. The folder is locked: one
    run at a time uses it.

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
          encode: the encoder; what it returns is checked (`encoding.checked`).
          folder: keeps the vectors for later runs; one folder per encoder. Vectors are
            memory-mapped from there. Default: kept in memory only.
          progress: called with the number of texts to encode; returns a function to call with the
            number just encoded. Default: silent.
          fine_tune, roles: see the class. Default: none.
          workers: number of processes among which `encode` divides its texts; a call has up to
            2,048 texts for each process. Default 1.

        Raises:
          UserError: if the folder's files are invalid, or another run uses them.
        """
        roles = roles or {}
        self._encode = {"": checked(encode)}
        self._encode |= {name: checked(role.encode) for name, role in roles.items()}
        self.roles = {
            name: Role(functools.partial(self._embed, name), role.prompt)
            for name, role in roles.items()
        }
        self._progress = progress or (lambda total: lambda done: None)
        self.fine_tune = fine_tune
        self._chunk = _CHUNK * workers
        self._folder = folder
        self._lock = contextlib.ExitStack()
        self._rows: dict[bytes, int] = {}
        self._vectors = np.zeros([0, 0], np.float32)
        self.seconds = 0.0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            refusal = (
                f"{folder}: another run uses these embeddings; wait for it, or set another "
                "--output_dir"
            )
            self._lock.enter_context(locked(folder / "lock", refusal))
            self._load(folder)

    def close(self) -> None:
        """Unlocks the folder for other runs."""
        self._lock.close()

    @property
    def constant(self) -> bool:
        """Whether there are vectors of two texts or more, and all of them are equal."""
        # The first rows of most encoders differ, and then no others are compared.
        parts = (self._vectors[:64], self._vectors)
        return len(self._rows) > 1 and all((part == self._vectors[0]).all() for part in parts)

    @property
    def dimension(self) -> int | None:
        """Width of the vectors; None before the first one."""
        return self._vectors.shape[1] if self._rows else None

    def prepare(self, wanted: Iterable[tuple[str, Iterable[str]]]) -> None:
        """Embeds texts that later calls will ask for, all together, so that batches are full.

        `wanted` has pairs of a role, "" for none, and its texts.
        """
        by_role: dict[str, dict[bytes, str]] = {}
        for role, texts in wanted:
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
                chunk = order[start : start + self._chunk]
                self._add(chunk, self._encode[role]([new[key] for key in chunk]))
                report(len(chunk))
        self.seconds += time.monotonic() - began

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts: float32 `[n, dim]` in their order."""
        return self._embed("", texts)

    def _embed(self, role: str, texts: Sequence[str]) -> np.ndarray:
        """Embeds texts of a role; the name "" stands for none."""
        self.prepare([(role, texts)])
        keys = [_key(text, role) for text in texts]
        if not keys:
            width = self.dimension or self._encode[role]([""]).shape[1]
            return np.zeros([0, width], np.float32)
        return np.array(self._vectors[[self._rows[key] for key in keys]])

    def _add(self, keys: list[bytes], vectors: np.ndarray) -> None:
        rows, width = len(self._rows), vectors.shape[1]
        if rows and width != self.dimension:
            raise EncoderError(
                f"the encoder returned vectors of width {width}, the stored ones have "
                f"{self.dimension}; delete the stored embeddings"
            )
        if self._folder is None:
            vectors = np.concatenate([self._vectors, vectors]) if rows else vectors
        else:
            if not rows:
                atomic_write_text(self._folder / "width", str(width))
            # Vectors are written first: a vector without its hash is ignored, a hash without its
            # vector is not.
            for name, size, content in (
                ("vectors.f32", 4 * width, vectors.tobytes()),
                ("names.bin", _KEY_BYTES, b"".join(keys)),
            ):
                path = self._folder / name
                path.touch()
                # Bytes that an interrupted write left after the known rows are cut off.
                os.truncate(path, rows * size)
                with path.open("ab") as file:
                    file.write(content)
            vectors = np.memmap(self._folder / "vectors.f32", np.float32, "r").reshape(-1, width)
        self._extend(keys, vectors)

    def _extend(self, keys: list[bytes], vectors: np.ndarray) -> None:
        """Takes all vectors, of which the last have these keys."""
        self._vectors = vectors
        self._rows.update(zip(keys, range(len(self._rows), len(vectors))))

    def _load(self, folder: Path) -> None:
        files = width_file, vectors, names = [
            folder / name for name in ("width", "vectors.f32", "names.bin")
        ]
        if not all(path.exists() for path in files):
            for path in files:
                path.unlink(missing_ok=True)
            return
        try:
            width = int(width_file.read_text())
        except ValueError:
            width = 0
        if width < 1:
            raise UserError(f"{width_file}: not a vector width; delete the folder {folder}")
        rows = min(vectors.stat().st_size // (4 * width), names.stat().st_size // _KEY_BYTES)
        os.truncate(vectors, rows * 4 * width)
        os.truncate(names, rows * _KEY_BYTES)
        if rows:
            hashes = names.read_bytes()
            keys = [hashes[i : i + _KEY_BYTES] for i in range(0, len(hashes), _KEY_BYTES)]
            self._extend(keys, np.memmap(vectors, np.float32, "r").reshape(-1, width))


def _key(text: str, role: str = "") -> bytes:
    # The same text has another vector in another role.
    secret = hashlib.sha256(role.encode("utf-8", "surrogatepass")).digest() if role else b""
    content = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=_KEY_BYTES, key=secret).digest()
