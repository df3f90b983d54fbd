"""`Index`: texts with their vectors, searched by meaning, saved and loaded."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from official_cmlm import progress
from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import PROBES, Encode, checked
from official_cmlm.files import (
    atomic_write,
    read_object,
    report_write_errors,
    sha256,
    staged_folder,
    write_array,
    write_json,
)
from official_cmlm.nearest import import_faiss, unit
from official_cmlm.search.growing import Texts
from official_cmlm.search.stores import FILES, STORES, Options, Store

METHODS = tuple(STORES)
_DESCRIPTION = "index.json"
_FORMAT = 2
# Texts that the encoder gets at a time, so that progress shows.
_TEXTS = 16384
# Queries that are searched together.
_QUERIES = 1024
_ADVICE = "build and save the index again"


class Hit(NamedTuple):
    """A text that was found.

    Attributes:
      position: of the text among those that were indexed, from 0.
      score: its cosine with the query, -1 to 1.
      text: the text.
    """

    position: int
    score: float
    text: str


class Index:
    """Texts that are found by meaning.

    >>> index = Index.build(encoder, texts)                 # doctest: +SKIP
    >>> index.search("Where did the cat sit?", k=3)         # doctest: +SKIP
    [Hit(position=17, score=0.71, text='The cat sat on the mat.'), …]
    >>> index.save("work/index")                            # doctest: +SKIP
    >>> index = Index.load("work/index", encoder)           # doctest: +SKIP

    Attributes:
      method: one of `METHODS`, see `build`.
      texts: all texts, in the order in which they were given.
    """

    def __init__(
        self, encoder: Any, method: str, texts: Texts, store: Store, options: Options
    ) -> None:
        """Holds the parts that `build` and `load` have made."""
        self.method, self.texts = method, texts
        self._store, self._options = store, options
        self._encode_query, self._encode_document = _functions(encoder)

    @classmethod
    def build(
        cls,
        encoder: Any,
        texts: Sequence[str],
        method: str = "float32",
        vectors: np.ndarray | None = None,
        oversample: int = Options.oversample,
        probed: int = Options.probed,
        show_progress: bool = False,
    ) -> "Index":
        """Encodes and indexes texts.

        The float32 vectors of all texts are in memory meanwhile. For texts that are too many for
        this, build the index of a random sample of them, and `add` the others in parts.

        Args:
          encoder: anything with `encode(list of str) -> [n, dim]`: a `SentenceEncoder`, what
            `open_encoder` returns, a `SentenceTransformer`. Queries and texts are encoded in ways
            of their own where it has such (`encode_query` and `encode_document`, or `roles`).
          texts: what is to be found. Equal texts are kept as they are.
          method: `float32`, exact; `int8`, a quarter of the memory, exact for the rounded vectors;
            `binary`, a bit a dimension chooses candidates, which int8 codes put into order;
            `faiss`, cells of the package faiss (the extra `search`), which miss some neighbours.
          vectors: the texts' vectors, float `[n, dim]`, if they are there already. Default: they
            are encoded.
          oversample: of `binary`, candidates a wanted neighbour, from 1. Default 64.
          probed: of `faiss`, cells that a query looks into, from 1. Default 32.
          show_progress: draw a progress bar with the time left on standard error.

        Raises:
          TypeError: if `texts` is a single string, or holds something else than strings.
          ValueError: for another method, or numbers below 1.
          UserError: no texts, vectors that do not belong to them, an encoder that fails, or a
            package that is not installed.
        """
        if method not in STORES:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        options = _checked_options(oversample, probed)
        if method == "faiss":
            # Before the long work.
            import_faiss()
        _check_texts(texts)
        if not len(texts):
            raise UserError("no texts to index; give at least one")
        if vectors is None:
            vectors = _encoded(_functions(encoder)[1], texts, show_progress)
        else:
            vectors = np.array(vectors, np.float32)
            if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
                raise UserError(
                    f"vectors of shape {list(vectors.shape)} for {len(texts)} texts; give "
                    f"[{len(texts)}, dim]"
                )
            if not np.isfinite(vectors).all():
                raise UserError("vectors hold NaN or infinity; encode the texts again")
        store = STORES[method].build(unit(vectors, in_place=True), options)
        return cls(encoder, method, Texts.of(texts), store, options)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self._store.width

    def vectors(self) -> np.ndarray:
        """Returns the texts' unit vectors, as the method keeps them: float32 `[n, dimension]`."""
        return self._store.vectors()

    def add(self, texts: Sequence[str], show_progress: bool = False) -> None:
        """Encodes and appends texts; ranges and cells stay those of `build`.

        Raises:
          TypeError, UserError: as `build`; the index is unchanged then.
        """
        _check_texts(texts)
        if not len(texts):
            return
        vectors = self._fitting(_encoded(self._encode_document, texts, show_progress))
        self._store.add(unit(vectors, in_place=True))
        self.texts.append(texts)

    def search(self, queries: str | Sequence[str], k: int = 10) -> list[Hit] | list[list[Hit]]:
        """Returns the k texts nearest to each query, best first.

        Args:
          queries: a text, or several.
          k: texts a query, from 1; fewer are found where the index has fewer, and with `faiss`
            where the cells that were looked into have.

        Returns:
          The hits of the query, or a list of hits a query.

        Raises:
          TypeError: for queries that are not strings.
          ValueError: if k is below 1.
          UserError: if the encoder fails.
        """
        single = isinstance(queries, str)
        listed = [queries] if single else list(queries)
        _check_texts(listed)
        if not listed:
            return []
        indices, scores = self.search_vectors(self._encode_query(listed), k)
        found = [
            [Hit(int(i), float(score), self.texts[int(i)]) for i, score in zip(*row) if i >= 0]
            for row in zip(indices, scores)
        ]
        return found[0] if single else found

    def search_vectors(self, queries: np.ndarray, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Searches like `search`, with vectors as queries.

        Args:
          queries: float `[n, dimension]`, of any length.
          k: texts a query, from 1; more than the index has count as all.

        Returns:
          (positions int64 `[n, k]`, cosines float32 `[n, k]`). Where `faiss` has found fewer, the
          position is -1 and the score -1 as well, which says nothing. Cosines with the rounded
          vectors of `int8` and `binary`, which may be a little longer than 1, are cut to -1 to 1.

        Raises:
          ValueError: if k is below 1.
          UserError: for vectors of another width, or with NaN or infinity.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not np.isfinite(queries := self._fitting(queries)).all():
            raise UserError("queries hold NaN or infinity; encode them again")
        queries, k = unit(queries), min(k, len(self))
        indices = np.empty([len(queries), k], np.int64)
        scores = np.empty([len(queries), k], np.float32)
        for start in range(0, len(queries), _QUERIES):
            rows = slice(start, start + _QUERIES)
            indices[rows], scores[rows] = self._store.nearest(queries[rows], k)
        return indices, np.clip(scores, -1, 1, out=scores)

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes the index as a folder, which appears when it is complete.

        Arrays are `.npy` files without pickled objects; the texts are in it as well.

        Args:
          path: the folder.
          overwrite: whether an index of that name may be replaced.

        Raises:
          UserError: the name is taken, or the folder cannot be written.
        """
        path = Path(path)
        if os.path.lexists(path) and not (overwrite and (path / _DESCRIPTION).is_file()):
            advice = "pass overwrite=True or name another folder"
            if overwrite:
                advice = "it is not an index and is not replaced; name another folder"
            raise UserError(f"{path}: exists already; {advice}")
        description: dict[str, Any] = {
            "format": _FORMAT,
            "method": self.method,
            "texts": len(self),
            "dimension": self.dimension,
            "oversample": self._options.oversample,
            "probed": self._options.probed,
            "sha256": {},
        }
        arrays = self._store.arrays() | {
            "texts": self.texts.data,
            "ends": self.texts.ends,
            "probes": self._probes(),
        }
        with report_write_errors(path), staged_folder(path) as folder:
            for name, array in arrays.items():
                with atomic_write(folder / f"{name}.npy") as file:
                    write_array(file, array)
                description["sha256"][f"{name}.npy"] = sha256(folder / f"{name}.npy")
            write_json(folder / _DESCRIPTION, description)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        encoder: Any,
        mapped: bool = True,
        oversample: int | None = None,
        probed: int | None = None,
        tolerance: float = 1e-3,
        verify: bool = True,
    ) -> "Index":
        """Loads a saved index.

        Load an index of the method `faiss` only from those whom you trust: faiss reads its own form
        in C++ that is not made for hostile files. Checksums show damage, not who wrote a folder.

        Args:
          path: the folder.
          encoder: the one that the index was built with. The folder has its vectors of some texts,
            by which another encoder, or other settings of the same one, are refused.
          mapped: read vectors and texts from the files when they are needed; else all at once.
          oversample, probed: as of `build`. Default: those that it was built with.
          tolerance: largest difference between entries of the encoder's unit vectors and those of
            the folder. Default 0.001: other processors and backends of full precision pass.
          verify: compare the files with their checksums, which reads all of them once. Without it
            a mapped index of many gigabytes opens at once, and damage inside arrays is not seen.

        Raises:
          UserError: if the folder is not an index, is damaged, or belongs to another encoder.
        """
        path = Path(path)
        if not (path / _DESCRIPTION).is_file():
            raise UserError(f"{path}: no index there (it has no {_DESCRIPTION}); check the path")
        description = read_object(path / _DESCRIPTION, _ADVICE)
        method, numbers = _described(path / _DESCRIPTION, description)
        options = _checked_options(oversample or numbers["oversample"], probed or numbers["probed"])
        names = (*FILES[method], "texts", "ends", "probes")
        if verify:
            _verify(path, [f"{name}.npy" for name in names], description.get("sha256"))
        arrays = {name: _read_array(path / f"{name}.npy", mapped) for name in names}
        data, ends, probes = (arrays[name] for name in ("texts", "ends", "probes"))
        try:
            store = STORES[method].load(arrays, options)
        except UserError as error:
            raise UserError(f"{path}: {error}; {_ADVICE}") from None
        expected = (numbers["texts"], numbers["dimension"])
        if (len(store), store.width) != expected or not _are_texts(data, ends, expected[0]):
            raise UserError(f"{path}: its files do not belong to each other; {_ADVICE}")
        made = cls(encoder, method, Texts(data, ends), store, options)
        made._check_encoder(path, probes, tolerance)
        return made

    def _fitting(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the vectors, if they have the index's width."""
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise UserError(
                f"vectors of shape {list(vectors.shape)}, the index has {self.dimension} "
                "dimensions; use the encoder that it was built with"
            )
        return vectors

    def _probes(self) -> np.ndarray:
        """Returns fixed texts' unit vectors, float32 `[2, texts, dim]`, to tell encoders apart."""
        both = (self._encode_query, self._encode_document)
        return np.stack([unit(encode(list(PROBES)), in_place=True) for encode in both])

    def _check_encoder(self, path: Path, probes: np.ndarray, tolerance: float) -> None:
        found = self._probes()
        if found.shape[2] != self.dimension:
            raise UserError(
                f"{path}: has vectors of {self.dimension} dimensions, the encoder's have "
                f"{found.shape[2]}; load it with the encoder that it was built with"
            )
        # Another number of texts is another version of this project's.
        if probes.dtype != np.float32 or probes.shape != found.shape:
            raise UserError(f"{path}: its probes.npy is damaged or of another version; {_ADVICE}")
        difference = float(np.abs(found - probes).max())
        if not difference <= tolerance:
            raise UserError(
                f"{path}: was built with another encoder, or other settings of it (entries of the "
                f"same texts' vectors differ by up to {difference:.2g}, tolerance {tolerance:g}); "
                "load it with that one, or build it again"
            )


def _functions(encoder: Any) -> tuple[Encode, Encode]:
    """Returns the functions that embed queries and documents."""
    roles = getattr(encoder, "roles", None)
    plain = getattr(encoder, "encode", encoder)
    if not callable(plain):
        raise TypeError(f"an encoder has encode(list of str), got {type(encoder).__name__}")
    found = []
    for name in ("query", "document"):
        if isinstance(roles, Mapping) and name in roles:
            found.append(checked(roles[name].encode))
        else:
            found.append(checked(getattr(encoder, f"encode_{name}", plain)))
    return found[0], found[1]


def _encoded(encode: Encode, texts: Sequence[str], show_progress: bool) -> np.ndarray:
    if not show_progress:
        return encode(list(texts))
    vectors = None
    with progress.bar(len(texts), "text", "encoding") as bar:
        for start in range(0, len(texts), _TEXTS):
            part = encode(list(texts[start : start + _TEXTS]))
            if vectors is None:
                vectors = np.empty([len(texts), part.shape[1]], np.float32)
            vectors[start : start + len(part)] = part
            bar.update(len(part))
    return vectors


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str | bytes):
        raise TypeError("expected a list of strings, got a single string; pass [text]")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"item {index} is {type(text).__name__}, not a string: {text!r:.60}")


def _checked_options(oversample: int, probed: int) -> Options:
    for name, value in (("oversample", oversample), ("probed", probed)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    return Options(oversample, probed)


def _described(path: Path, description: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    """Returns the method and the numbers of `index.json`."""
    if description.get("format") != _FORMAT:
        raise UserError(
            f"{path}: of format {description.get('format')!r:.40}, this version reads {_FORMAT}; "
            f"{_ADVICE}"
        )
    method = description.get("method")
    if method not in METHODS:
        raise UserError(f"{path}: method is {method!r:.40}, not of {', '.join(METHODS)}; {_ADVICE}")
    numbers = {}
    for name in ("texts", "dimension", "oversample", "probed"):
        value = description.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{path}: {name} is {value!r:.40}, not a number from 1; {_ADVICE}")
        numbers[name] = value
    return method, numbers


def _verify(folder: Path, names: Sequence[str], expected: Any) -> None:
    """Raises `UserError` unless the files are those that were saved."""
    if not isinstance(expected, Mapping):
        raise UserError(f"{folder / _DESCRIPTION}: has no checksums (sha256); {_ADVICE}")
    for name in names:
        try:
            found = sha256(folder / name)
        except OSError as error:
            raise UserError(f"{folder / name}: {error.strerror or error}; {_ADVICE}") from None
        if found != expected.get(name):
            raise UserError(
                f"{folder / name}: is not as it was saved (another SHA-256); copy the index again, "
                f"or {_ADVICE}"
            )


def _read_array(path: Path, mapped: bool) -> np.ndarray:
    try:
        # Mapped in any case, as a damaged header may promise more than there is.
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        return found if mapped else np.array(found)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {_ADVICE}") from None
    except (ValueError, EOFError, OSError) as error:
        raise UserError(f"{path}: damaged ({error}); {_ADVICE}") from None


def _are_texts(data: np.ndarray, ends: np.ndarray, count: int) -> bool:
    """Whether the arrays of `Texts` are whole."""
    if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype != np.int64:
        return False
    rising = ends.shape == (count,) and (np.diff(ends, prepend=0) >= 0).all()
    return bool(rising and ends[-1] == len(data))
