"""`Index`: texts with their vectors, searched by meaning, saved and loaded."""

import contextlib
import dataclasses
import functools
import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import (
    atomic_write,
    inside,
    output_folder,
    read_array,
    read_object,
    report_write_errors,
    sha256,
    staged_folder,
    write_array,
    write_json,
)
from official_cmlm.common.validation import OneOf, Range, at_least, read_dataclass
from official_cmlm.evaluation.encoder import PROBES, Encode, checked
from official_cmlm.search.growing import Texts
from official_cmlm.search.shards import Embeddings
from official_cmlm.search.stores import ADVICE, FORMS, Codes, Graph, Rows, Store, rescored
from official_cmlm.vectors.nearest import unit

PRECISIONS = tuple(FORMS)
_DESCRIPTION = "index.json"
_FORMAT, _VERSION = "official_cmlm.search.Index", 3
# The strings that are kept for each text besides its vector.
_TABLES = ("texts", "ids", "metadata")
# With a filter: the largest number of candidates that a search asks for, and the share of texts
# up to which it compares all allowed texts instead.
_MOST_CANDIDATES, _FEW = 10_000, 0.05
# Texts that the encoder gets at a time; the progress bar moves after each part.
_TEXTS = 16384
# Queries that are searched together.
_QUERIES = 1024
# The names of the files of an index.
_OWN_FILES = r"index\.json|graph\.usearch|(vectors|keys|probes|(texts|ids|metadata)(_ends)?)\.npy"
# Attempts to load a folder that is saved again meanwhile, and the seconds between them.
_ATTEMPTS, _PAUSE = 5, 0.01


class Hit(NamedTuple):
    """A text that was found.

    Attributes:
      id: the text's id; by default its number among the texts that were given, from 0.
      score: its cosine with the query, -1 to 1.
      text: the text; empty where the index has vectors only.
      metadata: what was given with the text, e.g. its file and line.
    """

    id: str
    score: float
    text: str
    metadata: Mapping[str, Any]


Filter = Callable[[Hit], bool] | Collection[str]
"""Says which texts may be found: ids, or a function of a `Hit`, whose score is 0 there."""


class Index:
    """Texts that are found by meaning.

    Searches may run while another thread calls `add` or `remove`: each search sees the index before
    or after a change.

    >>> index = Index.build(encoder, texts)                 # doctest: +SKIP
    >>> index.search("Where did the cat sit?", k=3)         # doctest: +SKIP
    [Hit(id='17', score=0.71, text='The cat sat on the mat.', metadata={}), …]
    >>> index.save("work/index")                            # doctest: +SKIP
    >>> index = Index.load("work/index", encoder)           # doctest: +SKIP

    Attributes:
      precision: one of `PRECISIONS`, see `build`.
      approximate: whether a graph is searched.
      settings: a JSON object that a program keeps with the index.
    """

    def __init__(self, encoder: Any, store: Store, tables: Mapping[str, Texts], count: int) -> None:
        """Holds the parts that `build` and `load` have made."""
        self._encode_query, self._encode_document = _functions(encoder)
        self._store, self._tables = store, dict(tables)
        self.settings: dict[str, Any] = {}
        # Readers see this number of rows, except the rows that are marked as removed.
        self._visible = (count, np.zeros([count], bool))
        self._rows_of: dict[str, int] | None = None
        # As long as the index itself numbers all texts, ids need no check.
        self._numbered = count == 0
        self._writing = threading.RLock()

    @property
    def precision(self) -> str:
        return self._store.codes.precision

    @property
    def approximate(self) -> bool:
        return isinstance(self._store, Graph)

    @classmethod
    def build(
        cls,
        encoder: Any,
        texts: Sequence[str],
        precision: str = "float32",
        approximate: bool = False,
        vectors: np.ndarray | None = None,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        show_progress: bool = False,
    ) -> "Index":
        """Encodes and indexes texts.

        Texts are encoded and added in parts, so that only the index and a part are in memory.

        Args:
          encoder: anything with `encode(list of str) -> [n, dim]`: a `SentenceEncoder`, the result
            of `open_encoder`, a `SentenceTransformer`. If it has separate functions for queries and
            texts (`encode_query` and `encode_document`, or `roles`), these are used.
          texts: the texts that searches can find. Each of several equal texts is kept.
          precision: `float32`; `float16`, half of the memory; `int8`, a quarter; `bits`, a
            thirty-second, which misses some neighbours.
          approximate: search a graph (HNSW of the package usearch), which is far faster among many
            texts, misses a few, and takes longer to build.
          vectors: the texts' vectors, float `[n, dim]`, if they are already computed. Default: the
            texts are encoded.
          ids: a string for each text, all different. Default: the text's number.
          metadata: a JSON object for each text, which hits return. Default: empty ones.
          show_progress: draw a progress bar with the time left on standard error.

        Raises:
          TypeError: if `texts` is a single string, or holds something other than strings.
          ValueError: for another precision.
          UserError: if `texts` is empty, an id occurs twice, the vectors do not belong to the
            texts, or the encoder fails.
        """
        _check_precision(precision)
        _check_texts(texts)
        if not len(texts):
            raise UserError("no texts to index; give at least one")
        made = cls._empty(encoder, precision, approximate)
        made.add(texts, ids, vectors, metadata, show_progress)
        return made

    @classmethod
    def _empty(cls, encoder: Any, precision: str, approximate: bool) -> "Index":
        """Returns an index without texts, whose width the first vectors decide."""
        store = (Graph if approximate else Rows)(Codes(precision, 0))
        return cls(encoder, store, {name: Texts.of([]) for name in _TABLES}, 0)

    @classmethod
    def from_embeddings(
        cls,
        folder: str | os.PathLike,
        encoder: Any,
        precision: str = "float32",
        approximate: bool = False,
        show_progress: bool = False,
    ) -> "Index":
        """Indexes the embeddings that `export.embedding.embed` has written.

        Besides the index, one shard at a time is in memory. The ids are those of the embeddings.
        Parquet files with a column of texts give the texts too; the other columns become metadata.

        Args:
          folder: the output folder of `export.embedding.embed`, in either format.
          encoder: the encoder that made the embeddings, for queries.
          precision, approximate, show_progress: see `build`.

        Raises:
          ValueError: for another precision.
          UserError: if the embeddings are unfinished, damaged or of another width than the
            encoder's, if an id occurs twice, or for embeddings of bits with another precision than
            `bits`.
        """
        _check_precision(precision)
        made = cls._empty(encoder, precision, approximate)
        source = Embeddings.open(Path(folder))
        width = made._probes().shape[2]
        source.check(precision, width)
        with progress.bar(source.rows, "text", "indexing", disable=not show_progress) as bar:
            for shard in source.shards(width):
                if not made.dimension:
                    made._fit(shard.vectors)
                    made._store.reserve(source.rows)
                made._append(shard.vectors, shard.texts, shard.ids, shard.metadata)
                bar.update(len(shard.vectors))
        return made

    def __len__(self) -> int:
        count, removed = self._visible
        return count - int(removed.sum())

    @property
    def texts(self) -> Sequence[str]:
        """All texts, in the order in which they were added."""
        return self._strings("texts")

    @property
    def ids(self) -> Sequence[str]:
        """The ids of `texts`."""
        return self._strings("ids")

    def _strings(self, table: str) -> list[str]:
        return [self._tables[table][int(row)] for row in self._kept()]

    def _kept(self) -> np.ndarray:
        return np.flatnonzero(~self._visible[1])

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self._store.codes.width

    def vectors(self) -> np.ndarray:
        """Returns the texts' vectors, decoded from their precision: float32 `[n, dimension]`."""
        return self._store.vectors(self._kept())

    def add(
        self,
        texts: Sequence[str],
        ids: Sequence[str] | None = None,
        vectors: np.ndarray | None = None,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        show_progress: bool = False,
    ) -> None:
        """Encodes and appends texts.

        Args:
          texts, ids, vectors, metadata, show_progress: see `build`.

        Raises:
          TypeError, UserError: see `build`. The index is then unchanged, except that parts of
            16,384 texts remain if they were added before the encoder failed.
        """
        _check_texts(texts)
        if vectors is not None:
            vectors = _checked_vectors(vectors, len(texts))
        for name, values in (("ids", ids), ("metadata", metadata)):
            if values is not None and len(values) != len(texts):
                raise UserError(f"{len(values)} {name} for {len(texts)} texts; give one each")
        with self._writing:
            if ids is not None:
                self._check_ids(ids)
            lines = _lines_of(metadata)
            with progress.bar(len(texts), "text", "encoding", disable=not show_progress) as bar:
                for start in range(0, len(texts), _TEXTS):
                    part = slice(start, start + _TEXTS)
                    some = list(texts[part])
                    found = vectors[part] if vectors is not None else self._encode_document(some)
                    if not self.dimension:
                        self._fit(found)
                        self._store.reserve(len(texts))
                    self._append(found, some, ids and ids[part], lines and lines[part])
                    bar.update(len(some))

    def _fit(self, vectors: np.ndarray) -> None:
        """Sets the width and the scale of an index without texts from its first vectors."""
        self._store = type(self._store)(Codes.of(self.precision, unit(vectors)))

    def _append(
        self,
        vectors: np.ndarray,
        texts: Sequence[str] | None,
        ids: Sequence[str] | None,
        metadata: Sequence[str] | None,
    ) -> None:
        """Appends some texts; readers see them after all parts of the index have grown."""
        vectors = unit(self._fitting(vectors))
        with self._writing:
            count, removed = self._visible
            if ids is None:
                # The numbers continue after the last text's number.
                last = self._tables["ids"][count - 1] if count else "-1"
                first = int(last) + 1 if last.removeprefix("-").isdecimal() else count
                ids = [str(first + i) for i in range(len(vectors))]
            else:
                self._numbered = False
            if not self._numbered:
                self._check_ids(ids)
            self._store.add(vectors)
            self._tables["texts"].append([""] * len(vectors) if texts is None else texts)
            self._tables["ids"].append(ids)
            self._tables["metadata"].append([""] * len(vectors) if metadata is None else metadata)
            if self._rows_of is not None:
                self._rows_of.update((one, count + i) for i, one in enumerate(ids))
            grown = np.append(removed, np.zeros([len(vectors)], bool))
            self._visible = (count + len(vectors), grown)

    def _check_ids(self, ids: Sequence[str]) -> None:
        if isinstance(ids, str | bytes) or not all(isinstance(one, str) for one in ids):
            raise TypeError("ids are a list of strings")
        known = self._by_id()
        seen: set[str] = set()
        for one in ids:
            if one in seen or one in known:
                raise UserError(f"id {one!r:.80} is there twice; give each text an id of its own")
            seen.add(one)

    def _by_id(self) -> dict[str, int]:
        """Returns id -> row of the texts that are not removed."""
        with self._writing:
            if self._rows_of is None:
                ids = self._tables["ids"]
                self._rows_of = {ids[int(row)]: int(row) for row in self._kept()}
            return self._rows_of

    def remove(self, ids: Iterable[str]) -> None:
        """Removes texts; an index that is saved afterwards does not hold them.

        Raises:
          TypeError: for a single string.
          UserError: if an id is not in the index; then nothing is removed.
        """
        if isinstance(ids, str | bytes):
            raise TypeError("expected a list of ids, got a single string; pass [id]")
        with self._writing:
            known, wanted = self._by_id(), list(dict.fromkeys(ids))
            for one in wanted:
                if one not in known:
                    raise UserError(f"id {one!r:.80} is not in the index; check the id")
            count, removed = self._visible
            removed = removed.copy()
            removed[[known.pop(one) for one in wanted]] = True
            self._visible = (count, removed)

    def search(
        self, queries: str | Sequence[str], k: int = 10, filter: Filter | None = None
    ) -> list[Hit] | list[list[Hit]]:
        """Returns the k texts nearest to each query, best first.

        Args:
          queries: a text, or several.
          k: texts per query, at least 1; fewer are found if the index has fewer.
          filter: which texts may be found: ids, or a function of a `Hit`, which is asked about the
            nearest texts first.

        Returns:
          The hits of a single query, or a list with the hits of each query.

        Raises:
          TypeError: for queries that are not strings, a k that is not a whole number, or a filter
            that is a single string.
          ValueError: if k is below 1.
          UserError: if the encoder fails.
        """
        single = isinstance(queries, str)
        listed = [queries] if single else list(queries)
        _check_texts(listed)
        if not listed:
            return []
        rows, scores = self._found(self._encode_query(listed), k, filter)
        found = [self.hits(*pair) for pair in zip(rows, scores)]
        return found[0] if single else found

    def hits(self, rows: np.ndarray, scores: np.ndarray) -> list[Hit]:
        """Returns the hits of one query from its rows and scores, int and float `[k]`.

        The rows and scores are those that `search_vectors` returns.
        """
        return [self._hit(int(row), float(score)) for row, score in zip(rows, scores) if row >= 0]

    def _hit(self, row: int, score: float = 0.0) -> Hit:
        ids, texts, lines = (self._tables[name] for name in ("ids", "texts", "metadata"))
        line = lines[row]
        return Hit(ids[row], score, texts[row], json.loads(line) if line else {})

    def search_vectors(self, queries: np.ndarray, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
        """Searches like `search`, with vectors as queries.

        Args:
          queries: float `[n, dimension]`, of any length.
          k: texts per query, at least 1; cut to the number of texts in the index.

        Returns:
          (rows int64 `[n, k]`, cosines float32 `[n, k]`). A row is the number of a text in the
          order in which texts were added; removed texts count. If a graph finds fewer than k, the
          last rows and scores are -1. Cosines with rounded vectors are clipped to -1 … 1.

        Raises:
          TypeError: if k is not a whole number.
          ValueError: if k is below 1.
          UserError: for vectors of another width, or with NaN or infinity.
        """
        return self._found(queries, k, None)

    def _found(
        self, queries: np.ndarray, k: int, wanted: Filter | None
    ) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(k, bool) or not isinstance(k, int | np.integer):
            raise TypeError(f"k must be a whole number, got {k!r:.40}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not np.isfinite(queries := self._fitting(queries)).all():
            raise UserError("queries hold NaN or infinity; encode them again")
        count, removed = self._visible
        queries, allowed = unit(queries), ~removed
        passes: Callable[[int], bool] | None = None
        if callable(wanted):
            passes = functools.cache(lambda row: bool(wanted(self._hit(row))))
        elif wanted is not None:
            allowed &= self._mask(wanted, count)
        k = min(k, int(allowed.sum()))
        rows = np.full([len(queries), k], -1, np.int64)
        scores = np.full([len(queries), k], -1, np.float32)
        for start in range(0, len(queries) if k else 0, _QUERIES):
            part = slice(start, start + _QUERIES)
            rows[part], scores[part] = self._nearest(queries[part], k, count, allowed, passes)
        return rows, np.clip(scores, -1, 1, out=scores)

    def _mask(self, wanted: Collection[str], count: int) -> np.ndarray:
        if isinstance(wanted, str | bytes):
            raise TypeError("filter is a function or a set of ids, got a single string")
        known, mask = self._by_id(), np.zeros([count], bool)
        rows = [known[one] for one in wanted if one in known]
        mask[[row for row in rows if row < count]] = True
        return mask

    def _nearest(
        self,
        queries: np.ndarray,
        k: int,
        count: int,
        allowed: np.ndarray,
        passes: Callable[[int], bool] | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows and scores of the k nearest texts that are allowed and pass.

        The search asks for more and more candidates until enough of them pass. If few texts are
        allowed, or too many candidates would be needed, all texts that pass are compared.
        """
        store = self._store
        asked = k * store.codes.form.oversample
        plain = passes is None and allowed.all()
        while (
            asked < count
            and (plain or asked <= _MOST_CANDIDATES)
            and (plain or allowed.mean() > _FEW)
        ):
            chosen = store.candidates(queries, min(asked, count), count)
            if plain:
                return rescored(queries, chosen, store.vectors, k)
            good = (chosen >= 0) & allowed[chosen]
            if passes is not None:
                for place in zip(*np.nonzero(good)):
                    good[place] = passes(int(chosen[place]))
            if good.sum(axis=1).min() >= min(k * store.codes.form.oversample, asked):
                return rescored(queries, np.where(good, chosen, -1), store.vectors, k)
            asked *= 4
        rows = np.flatnonzero(allowed)
        if passes is not None:
            rows = np.array([row for row in rows.tolist() if passes(row)], np.int64)
        if not len(rows):
            empty = np.full([len(queries), k], -1)
            return empty, empty.astype(np.float32)
        asked = min(len(rows), k * store.codes.form.oversample)
        return rescored(queries, store.nearest_of(queries, asked, rows), store.vectors, k)

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes the index as a folder, which appears when it is complete.

        Nothing in the folder is pickled. It holds the texts too, but no removed ones.

        Args:
          path: the folder.
          overwrite: whether an index of that name may be replaced; its hand-written README.md,
            licences and notices stay. A folder with other files is never replaced.

        Raises:
          UserError: if the name is taken, or the folder cannot be written.
        """
        path = _named(path)
        with _write_errors(path):
            path = output_folder(path, overwrite, _is_replaceable, _OWN_FILES, "index", "")
        with self._writing, _write_errors(path), staged_folder(path) as folder:
            kept = self._kept()
            self._store.save(folder, kept)
            arrays = {"probes": self._probes()}
            for name, table in self._tables.items():
                if len(kept) != len(table):
                    table = Texts.of(table[int(row)] for row in kept)
                arrays |= {name: table.data, f"{name}_ends": table.ends}
            for name, array in arrays.items():
                with atomic_write(folder / f"{name}.npy") as file:
                    write_array(file, array)
            description = _Description(
                precision=self.precision,
                approximate=self.approximate,
                texts=len(kept),
                dimension=self.dimension,
                scale=self._store.codes.scale,
                settings=self.settings,
                sha256={file.name: sha256(file) for file in sorted(folder.iterdir())},
            )
            write_json(folder / _DESCRIPTION, dataclasses.asdict(description))

    @staticmethod
    def is_at(path: str | os.PathLike) -> bool:
        """Returns whether a folder holds an index, perhaps a damaged one."""
        return os.path.isfile(os.path.join(path, _DESCRIPTION))

    @staticmethod
    def read_settings(path: str | os.PathLike) -> dict[str, Any]:
        """Returns the `settings` of a saved index, before it is loaded.

        Raises:
          UserError: if the folder is not an index.
        """
        return _described(_named(path)).settings

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        encoder: Any,
        mapped: bool = True,
        tolerance: float = 1e-3,
        verify: bool = True,
    ) -> "Index":
        """Loads a saved index.

        Load an approximate index only from sources that you trust: usearch reads the graph's file
        by C++ code that is not made for hostile files. Checksums show damage, not who wrote a
        folder.

        Args:
          path: the folder.
          encoder: the encoder that the index was built with. The folder has this encoder's vectors
            of some texts, by which another encoder, or the same with other settings, is refused.
          mapped: read vectors and texts from the files when they are needed; else all at once.
          tolerance: largest difference between entries of the encoder's unit vectors and those of
            the folder. Default 0.001: other processors and backends of full precision pass.
          verify: compare the files with their checksums, which reads all of them once. Without it
            a mapped index of many gigabytes opens at once, and damage inside arrays is not seen.

        Raises:
          UserError: if the folder is not an index, is damaged, belongs to another encoder, or is
            saved again and again meanwhile.
        """
        path = _named(path)
        for _ in range(_ATTEMPTS):
            before, fault = _saved(path), None
            try:
                made, probes = cls._read(path, encoder, mapped, verify)
            except UserError as error:
                fault = error
            if before is not None and before == _saved(path):
                break
            # The folder was replaced meanwhile: the files that were read may belong to two indices,
            # or the folder may have been missing during the rename.
            time.sleep(_PAUSE)
        else:
            if before is None and fault is not None:
                raise fault
            raise UserError(f"{path}: was saved meanwhile; load it again")
        if fault is not None:
            raise fault
        made._check_encoder(path, probes, tolerance)
        return made

    @classmethod
    def _read(
        cls, path: Path, encoder: Any, mapped: bool, verify: bool
    ) -> tuple["Index", np.ndarray]:
        """Returns the index of a folder, and the vectors by which its encoder is recognised."""
        found = _described(path)
        count = found.texts
        codes = Codes(found.precision, found.dimension, found.scale)
        if verify:
            _verify(path, found.sha256)
        store = (Graph if found.approximate else Rows).load(path, codes, count, mapped)
        tables = {}
        for name in _TABLES:
            data = read_array(path / f"{name}.npy", ADVICE, mapped)
            ends = read_array(path / f"{name}_ends.npy", ADVICE, mapped)
            if not _are_texts(data, ends, count):
                raise UserError(f"{path}: its {name} are not {count} texts; {ADVICE}")
            tables[name] = Texts(data, ends)
        probes = read_array(path / "probes.npy", ADVICE, mapped)
        made = cls(encoder, store, tables, count)
        made.settings = found.settings
        return made, probes

    def _fitting(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the vectors as float32; raises `UserError` if their width is not the index's."""
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise UserError(
                f"vectors of shape {list(vectors.shape)}, the index has {self.dimension} "
                "dimensions; use the encoder that it was built with"
            )
        return vectors

    def _probes(self) -> np.ndarray:
        """Returns fixed texts' unit vectors, float32 `[2, texts, dim]`, to tell encoders apart."""
        with warnings.catch_warnings():
            # Some of these texts are longer than encoders read, but the user need not be warned.
            warnings.simplefilter("ignore", UserWarning)
            both = (self._encode_query, self._encode_document)
            return np.stack([unit(encode(list(PROBES)), in_place=True) for encode in both])

    def _check_encoder(self, path: Path, probes: np.ndarray, tolerance: float) -> None:
        found = self._probes()
        if found.shape[2] != self.dimension:
            raise UserError(
                f"{path}: has vectors of {self.dimension} dimensions, the encoder's have "
                f"{found.shape[2]}; load it with the encoder that it was built with"
            )
        # Other versions of this project may have another number of texts.
        if probes.dtype != np.float32 or probes.shape != found.shape:
            raise UserError(f"{path}: its probes.npy is damaged or of another version; {ADVICE}")
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


def _checked_vectors(vectors: np.ndarray, count: int) -> np.ndarray:
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise UserError(
            f"vectors of shape {list(vectors.shape)} for {count} texts; give [{count}, dim]"
        )
    if not np.issubdtype(vectors.dtype, np.number) or not np.isfinite(vectors).all():
        raise UserError("vectors hold NaN, infinity or no numbers; encode the texts again")
    return vectors


def _lines_of(metadata: Sequence[Mapping[str, Any]] | None) -> list[str] | None:
    try:
        return metadata and [json.dumps(dict(one)) if one else "" for one in metadata]
    except (TypeError, ValueError) as error:
        raise UserError(f"metadata must be JSON objects ({error})") from None


def _check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")


def _named(path: str | os.PathLike) -> Path:
    """Returns the path of an index; raises `UserError` if no folder can have that name."""
    name = os.fspath(path)
    try:
        if not name or b"\0" in os.fsencode(name):
            raise ValueError
    except ValueError:
        # A name cannot have half a surrogate pair either.
        raise UserError(f"{name!r:.80}: not the name of a folder") from None
    return Path(os.path.expanduser(name))


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError` into a `UserError` of one line."""
    try:
        with report_write_errors(path):
            yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{path!s:.200}: cannot be written ({reason})") from None


def _is_replaceable(path: Path) -> bool:
    """Returns whether a folder holds an index, of any version."""
    try:
        return read_object(path / _DESCRIPTION).get("format") == _FORMAT
    except UserError:
        return False


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str | bytes):
        raise TypeError("expected a list of strings, got a single string; pass [text]")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"item {index} is {type(text).__name__}, not a string: {text!r:.60}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Description:
    """The content of `index.json`; `sha256` has the checksum of each other file by name."""

    format: str = _FORMAT
    version: int = _VERSION
    precision: Annotated[str, OneOf(PRECISIONS)]
    approximate: bool
    texts: Annotated[int, at_least(0)]
    dimension: Annotated[int, at_least(1)]
    scale: Annotated[float, Range(0, 1e9, above_low=True)]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    sha256: dict[str, str] | None = None


def _described(path: Path) -> _Description:
    file = path / _DESCRIPTION
    if not os.path.isfile(file):
        raise UserError(f"{path!s:.200}: no index there (it has no {_DESCRIPTION}); check the path")
    found = read_object(file, ADVICE)
    if found.get("format") != _FORMAT or found.get("version") != _VERSION:
        raise UserError(
            f"{file}: of format {found.get('format')!r:.40} {found.get('version', '')!s:.20}, this "
            f"version reads {_FORMAT} {_VERSION}; {ADVICE}"
        )
    try:
        return read_dataclass(_Description, found, str(file))
    except UserError as error:
        raise UserError(f"{error}; {ADVICE}") from None


def _saved(folder: Path) -> tuple[int, ...] | None:
    """Returns numbers that change with each `save`; None if the folder holds no index."""
    try:
        found = os.stat(folder / _DESCRIPTION)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _verify(folder: Path, expected: Mapping[str, str] | None) -> None:
    """Raises `UserError` unless the files are those that were saved."""
    if expected is None:
        raise UserError(f"{folder / _DESCRIPTION}: has no checksums (sha256); {ADVICE}")
    for path in sorted({inside(folder, name, folder / _DESCRIPTION) for name in expected}):
        try:
            found = sha256(path)
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}; {ADVICE}") from None
        if found != expected[path.name]:
            raise UserError(
                f"{path}: is not as it was saved (another SHA-256); copy the index again, "
                f"or {ADVICE}"
            )


def _are_texts(data: np.ndarray, ends: np.ndarray, count: int) -> bool:
    """Returns whether the arrays of `Texts` have the right types and fit each other."""
    if data.dtype != np.uint8 or data.ndim != 1 or ends.dtype != np.int64:
        return False
    rising = ends.shape == (count,) and (np.diff(ends, prepend=0) >= 0).all()
    return bool(rising and (ends[-1] if count else 0) == len(data))
