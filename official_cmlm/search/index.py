"""`Index`: texts with their vectors, searched by meaning, saved and loaded."""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, overload

import numpy as np

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError, guard_reader, guard_reading
from official_cmlm.common.files import (
    atomic_write,
    check_writable,
    digest,
    join_inside,
    output_folder,
    read_array,
    read_object,
    report_write_errors,
    sha256,
    stage_folder,
    write_array,
    write_json,
)
from official_cmlm.common.validation import OneOf, Range, at_least, read_dataclass
from official_cmlm.evaluation.encoder import PROBES, Encode, check_vectors
from official_cmlm.search.bm25 import JOINED, Bm25, join_rankings
from official_cmlm.search.shards import Embeddings, read_shards
from official_cmlm.search.texts import Texts, encode_texts
from official_cmlm.search.vectors import ADVICE, FILE, FORMS, Codes, Vectors
from official_cmlm.vectors.nearest import unit

PRECISIONS = tuple(FORMS)
DESCRIPTION, _PROBES = "index.json", "probes.npy"
_FORMAT, _VERSION = "official_cmlm.search.Index", 4
# The largest number of candidates that a search asks for before it compares all texts, and the
# share of texts up to which it compares all that a filter names.
_MOST_CANDIDATES, _FEW = 10_000, 0.05
# Texts that the encoder gets at a time; the progress bar moves after each part.
_TEXTS = 16384
# Queries that are searched together.
_QUERIES = 1024
# The names of the files of an index, of earlier versions too.
_OWN_FILES = (
    r"index\.json|(graph|vectors)\.usearch|"
    r"(vectors|keys|probes|ends|(texts|ids|metadata)(_ends)?)\.npy"
)


class Hit(NamedTuple):
    """A text that was found.

    Attributes:
      id: the text's id; by default its number among the texts that were given, from 0.
      score: its cosine with the query, -1 to 1; of a hybrid search that of `bm25.join_rankings`.
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

    Several threads may search at once; no search may run while texts are added or removed.

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

    def __init__(self, encoder: Any, vectors: Vectors, texts: Texts) -> None:
        """Holds the parts that `build` and `load` have made."""
        self._encode_query, self._encode_document = _choose_functions(encoder)
        self._vectors, self._texts = vectors, texts
        self.settings: dict[str, Any] = {}
        self._row_of_id: dict[str, int] | None = None
        self._words: Bm25 | None = None

    @property
    def precision(self) -> str:
        return self._vectors.codes.precision

    @property
    def approximate(self) -> bool:
        return self._vectors.approximate

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
        index = cls.make_empty(encoder, precision, approximate)
        index.add(texts, ids, vectors, metadata, show_progress)
        if not len(texts):
            raise UserError("no texts to index; give at least one")
        return index

    @classmethod
    def make_empty(cls, encoder: Any, precision: str, approximate: bool) -> "Index":
        """Returns an index without texts, whose width the first vectors decide; see `build`."""
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
        return cls(encoder, Vectors(Codes(precision, 0), approximate), Texts())

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
        index = cls.make_empty(encoder, precision, approximate)
        source, width = Embeddings.open(Path(folder)), index._encode_probes().shape[2]
        with progress.bar(source.rows, "text", "indexing", disable=not show_progress) as bar:
            for shard in read_shards(Path(folder), source, precision, width):
                texts = shard.texts or [""] * len(shard.vectors)
                index.add(texts, shard.ids, shard.vectors, shard.metadata)
                bar.update(len(shard.vectors))
        return index

    def __len__(self) -> int:
        return len(self._texts)

    def __repr__(self) -> str:
        return (
            f"Index(texts={len(self)}, dimension={self.dimension}, precision={self.precision!r}, "
            f"approximate={self.approximate})"
        )

    @property
    def texts(self) -> Sequence[str]:
        """All texts, in the order in which they were added."""
        return [self._texts[row]["text"] for row in range(len(self))]

    @property
    def ids(self) -> Sequence[str]:
        """The ids of `texts`."""
        return [self._texts[row]["id"] for row in range(len(self))]

    @property
    def dimension(self) -> int:
        """Width of the vectors."""
        return self._vectors.codes.width

    def vectors(self) -> np.ndarray:
        """Returns the texts' vectors, decoded from their precision: float32 `[n, dimension]`."""
        return self._vectors.read(np.arange(len(self)))

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
            vectors = self._check_width(_check_vectors(vectors, len(texts)))
        for name, values in (("ids", ids), ("metadata", metadata)):
            if values is not None and len(values) != len(texts):
                raise UserError(f"{len(values)} {name} for {len(texts)} texts; give one each")
        ids = self._number(len(texts)) if ids is None else ids
        self._check_ids(ids)
        lines = encode_texts(ids, texts, metadata or [{}] * len(texts))
        with progress.bar(len(texts), "text", "encoding", disable=not show_progress) as bar:
            for start in range(0, len(texts), _TEXTS):
                part = slice(start, start + _TEXTS)
                some = list(texts[part])
                rows = self._encode_document(some) if vectors is None else vectors[part]
                rows = unit(self._check_width(rows))
                if not self.dimension:
                    # The first vectors decide width and scale.
                    self._vectors = Vectors(Codes.fit(self.precision, rows), self.approximate)
                self._vectors.add(rows)
                self._get_row_of_id().update(zip(ids[part], itertools.count(len(self))))
                self._texts.add(lines[part])
                self._words = None
                bar.update(len(some))

    def _number(self, count: int) -> list[str]:
        """Returns ids of new texts: the numbers after the last text's."""
        last = self._texts[len(self) - 1]["id"] if len(self) else "-1"
        first = int(last) + 1 if last.removeprefix("-").isdecimal() else len(self)
        return [str(first + i) for i in range(count)]

    def _check_ids(self, ids: Sequence[str]) -> None:
        if isinstance(ids, str | bytes) or not all(isinstance(name, str) for name in ids):
            raise TypeError("ids are a list of strings")
        earlier, seen = self._get_row_of_id(), set[str]()
        for name in ids:
            if name in seen or name in earlier:
                raise UserError(f"id {name!r:.80} is there twice; give each text an id of its own")
            seen.add(name)

    def _get_row_of_id(self) -> dict[str, int]:
        if self._row_of_id is None:
            self._row_of_id = {name: row for row, name in enumerate(self.ids)}
        return self._row_of_id

    def _find_rows(self, ids: Iterable[str]) -> list[int]:
        try:
            return [self._get_row_of_id()[name] for name in ids]
        except KeyError as error:
            raise UserError(f"id {error.args[0]!r:.80} is not in the index; check the id") from None

    def remove(self, ids: Iterable[str]) -> None:
        """Removes texts; an index that is saved afterwards does not hold them.

        Raises:
          TypeError: for a single string.
          UserError: if an id is not in the index; then nothing is removed.
        """
        if isinstance(ids, str | bytes):
            raise TypeError("expected a list of ids, got a single string; pass [id]")
        if rows := sorted(self._find_rows(set(ids))):
            self._vectors.remove(np.array(rows))
            self._texts.remove(rows)
            self._row_of_id = self._words = None

    @overload
    def search(
        self, queries: str, k: int = ..., filter: Filter | None = ..., hybrid: bool = ...
    ) -> list[Hit]: ...
    @overload
    def search(
        self, queries: Sequence[str], k: int = ..., filter: Filter | None = ..., hybrid: bool = ...
    ) -> list[list[Hit]]: ...
    def search(
        self,
        queries: str | Sequence[str],
        k: int = 10,
        filter: Filter | None = None,
        hybrid: bool = False,
    ) -> list[Hit] | list[list[Hit]]:
        """Returns the k texts nearest to each query, best first.

        Args:
          queries: a text, or several.
          k: texts per query, at least 1; fewer are found if the index has fewer.
          filter: which texts may be found: ids, or a function of a `Hit`, which is asked about the
            nearest texts first.
          hybrid: join this ranking with one by words (`bm25`); the first such search counts them.

        Returns:
          The hits of a single query, or a list with the hits of each query.

        Raises:
          TypeError: for queries that are not strings, a k that is not a whole number, or a filter
            that is a single string.
          ValueError: if k is below 1.
          UserError: if the encoder fails; or a hybrid search has only vectors.
        """
        is_single = isinstance(queries, str)
        texts = [queries] if is_single else list(queries)
        _check_texts(texts)
        if not texts:
            return []
        search = functools.partial(self._search_both, texts) if hybrid else self.search_vectors
        rows, scores = search(self._encode_query(texts), k, filter)
        hits = [self.read_hits(*pair) for pair in zip(rows, scores)]
        return hits[0] if is_single else hits

    def _search_both(
        self, texts: list[str], queries: np.ndarray, k: int, filter: Filter | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Searches like `search_vectors`, by the texts of the queries too."""
        _check_search(k, filter)
        by_vectors, _ = self.search_vectors(queries, max(k, JOINED), filter)
        if self._words is None:
            if not any(stored := self.texts):
                raise UserError("the index has vectors only, no texts; search it without hybrid")
            self._words = Bm25(stored)
        by_words = self._words.search(texts, max(k, JOINED), self._choose_passing(filter)[0])
        return join_rankings([by_vectors, by_words], min(k, len(self)))

    def read_hits(self, rows: np.ndarray, scores: np.ndarray) -> list[Hit]:
        """Returns the hits of one query from its rows and scores, int and float `[k]`.

        The rows and scores are those that `search_vectors` returns.
        """
        return [
            self._read_hit(int(row), float(score)) for row, score in zip(rows, scores) if row >= 0
        ]

    def read_around(self, id: str, most: int = 50) -> list[Hit]:
        """Returns a text and those of its `file` that were added before and after it, in order.

        Args:
          id: the id of the text.
          most: number of texts that are looked at on each side.

        Raises:
          UserError: if the id is not in the index.
        """
        (row,) = self._find_rows([id])
        rows = range(max(0, row - most), min(row + most + 1, len(self)))
        file = self._read_hit(row).metadata.get("file")
        return [hit for hit in map(self._read_hit, rows) if hit.metadata.get("file") == file]

    def _read_hit(self, row: int, score: float = 0.0) -> Hit:
        return Hit(score=score, **self._texts[row])

    def search_vectors(
        self, queries: np.ndarray, k: int = 10, filter: Filter | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Searches like `search`, with vectors as queries.

        Args:
          queries: float `[n, dimension]`, of any length.
          k: texts per query, at least 1; cut to the number of texts in the index.
          filter: see `search`.

        Returns:
          (rows int64 `[n, k]`, cosines float32 `[n, k]`). A row is the place of a text in `texts`.
          If a graph finds fewer than k, the last rows and scores are -1. Cosines with rounded
          vectors are clipped to -1 … 1.

        Raises:
          TypeError, ValueError: see `search`.
          UserError: for vectors of another width, or with NaN or infinity.
        """
        _check_search(k, filter)
        queries = self._check_width(queries)
        if not np.isfinite(queries).all():
            raise UserError("queries hold NaN or infinity; encode them again")
        queries, k = unit(queries), min(k, len(self))
        passes, chosen = self._choose_passing(filter)
        rows = np.empty([len(queries), k], np.int64)
        scores = np.empty([len(queries), k], np.float32)
        for start in range(0, len(queries) if k else 0, _QUERIES):
            part = slice(start, start + _QUERIES)
            rows[part], scores[part] = self._find_nearest(queries[part], k, passes, chosen)
        return rows, np.clip(scores, -1, 1, out=scores)

    def _choose_passing(
        self, filter: Filter | None
    ) -> tuple[Callable[[int], bool] | None, np.ndarray | None]:
        """Returns a test of rows, None if all pass, and the rows that pass if they are few."""
        if filter is None:
            return None, None
        if callable(filter):
            return functools.cache(lambda row: bool(filter(self._read_hit(row)))), None
        row_of_id = self._get_row_of_id()
        named = {row_of_id[name] for name in filter if name in row_of_id}
        is_few = len(named) <= _FEW * len(self)
        return named.__contains__, np.array(sorted(named), np.int64) if is_few else None

    def _find_nearest(
        self,
        queries: np.ndarray,
        k: int,
        passes: Callable[[int], bool] | None,
        chosen: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows and scores of the k nearest texts that pass.

        The search asks for more and more candidates until enough of them pass. If few rows can
        pass, which are then `chosen`, or too many candidates would be needed, all that pass are
        compared.
        """
        asked = needed = k * self._vectors.codes.form.oversample
        while chosen is None and asked < len(self) and asked <= _MOST_CANDIDATES:
            rows = self._vectors.find(queries, asked)
            if passes is None:
                return self._vectors.rescore(queries, rows, k)
            passing = [[row >= 0 and passes(row) for row in line] for line in rows.tolist()]
            if np.sum(passing, axis=1).min() >= needed:
                return self._vectors.rescore(queries, np.where(passing, rows, -1), k)
            asked *= 4
        if chosen is None:
            chosen = np.array([r for r in range(len(self)) if not passes or passes(r)], np.int64)
        return self._vectors.compare(queries, chosen, k)

    def save(self, path: str | os.PathLike, overwrite: bool = False) -> None:
        """Writes the index as a folder, which appears when it is complete.

        Nothing in the folder is pickled. It holds the texts too, but no removed ones; places of
        removed vectors are used again by texts that are added.

        Args:
          path: the folder.
          overwrite: whether an index of that name may be replaced; its hand-written README.md,
            licences and notices stay. A folder with other files is never replaced.

        Raises:
          UserError: if the name is taken, or the folder cannot be written.
        """
        path = Path(path).expanduser()
        check_writable(path, is_folder=True)
        with _report_write_errors(path):
            path = output_folder(path, overwrite, _is_replaceable, _OWN_FILES, "index", "")
            with stage_folder(path) as folder:
                self._vectors.save(folder)
                self._texts.save(folder)
                with atomic_write(folder / _PROBES) as file:
                    write_array(file, self._encode_probes())
                description = Description(
                    precision=self.precision,
                    approximate=self.approximate,
                    texts=len(self),
                    dimension=self.dimension,
                    scale=self._vectors.codes.scale,
                    settings=self.settings,
                    sha256={file.name: sha256(file) for file in sorted(folder.iterdir())},
                )
                description.sha256[DESCRIPTION] = description.compute_checksum()
                write_json(folder / DESCRIPTION, dataclasses.asdict(description))

    @staticmethod
    def is_at(path: str | os.PathLike) -> bool:
        """Returns whether a folder holds an index, perhaps a damaged one."""
        return any(os.path.isfile(os.path.join(path, name)) for name in (DESCRIPTION, _PROBES))

    @staticmethod
    def read_settings(path: str | os.PathLike) -> dict[str, Any]:
        """Returns the `settings` of a saved index, before it is loaded.

        Raises:
          UserError: if the folder is not an index.
        """
        return read_description(Path(path).expanduser()).settings

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

        Load an index only from sources that you trust: usearch reads the vectors' file by C++ code
        that is not made for hostile files. Checksums show damage, not who wrote a folder.

        Args:
          path: the folder.
          encoder: the encoder that the index was built with. The folder has this encoder's vectors
            of some texts, by which another encoder, or the same with other settings, is refused.
            One whose `compatible_with` are these vectors, such as a student of that encoder, may
            search the index but not add texts to it; a line on standard error says so.
          mapped: read vectors and texts from the files when they are needed; else all at once.
          tolerance: largest difference between entries of the encoder's unit vectors and those of
            the folder. Default 0.001: other processors and backends of full precision pass.
          verify: compare all files with their checksums, which reads them once, about a second a
            GB. Without it only the vectors' file is compared, which C++ code reads; damage inside
            the texts is not seen.

        Raises:
          UserError: if the folder is not an index, is damaged or saved meanwhile, or belongs to
            another encoder.
        """
        path = Path(path).expanduser()
        values = read_description(path)
        for name, checksum in ({FILE: ""} | values.sha256).items():
            if verify or name == FILE:
                file = join_inside(path, name, path / DESCRIPTION)
                with guard_reading(file, ADVICE):
                    _verify(file, sha256(file), checksum)
        codes = Codes(values.precision, values.dimension, values.scale)
        vectors = Vectors.load(path, codes, values.approximate, values.texts, mapped)
        index = cls(encoder, vectors, Texts.load(path, values.texts, mapped))
        index.settings = values.settings
        probes = read_array(path / _PROBES, ADVICE, mapped)
        if read_description(path) != values:
            raise UserError(f"{path}: was saved meanwhile; load it again")
        index._check_encoder(path, probes, tolerance, getattr(encoder, "compatible_with", None))
        return index

    def _check_width(self, vectors: np.ndarray) -> np.ndarray:
        """Returns vectors as float32; raises `UserError` if they are not of the index's width."""
        vectors = np.asarray(vectors, np.float32)
        if vectors.ndim != 2 or vectors.shape[1] != (self.dimension or vectors.shape[1]):
            raise UserError(
                f"vectors of shape {list(vectors.shape)}, the index has {self.dimension} "
                "dimensions; use the encoder that it was built with"
            )
        return vectors

    def _encode_probes(self) -> np.ndarray:
        """Returns fixed texts' unit vectors, float32 `[2, texts, dim]`, to tell encoders apart."""
        with warnings.catch_warnings():
            # Some of these texts are longer than encoders read, but the user need not be warned.
            warnings.simplefilter("ignore", UserWarning)
            both = (self._encode_query, self._encode_document)
            return np.stack([unit(encode(list(PROBES)), in_place=True) for encode in both])

    def _check_encoder(
        self, path: Path, probes: np.ndarray, tolerance: float, compatible: np.ndarray | None
    ) -> None:
        vectors = self._encode_probes()
        if vectors.shape[2] != self.dimension:
            raise UserError(
                f"{path}: has vectors of {self.dimension} dimensions, the encoder's have "
                f"{vectors.shape[2]}; load it with the encoder that it was built with"
            )
        # Other versions of this project may have another number of texts.
        if probes.dtype != np.float32 or probes.shape != vectors.shape:
            raise UserError(f"{path}: its {_PROBES} is damaged or of another version; {ADVICE}")
        difference = float(np.abs(vectors - probes).max())
        if difference <= tolerance:
            return
        followed = compatible is not None and compatible.shape == probes[1].shape
        if not (followed and np.abs(compatible - probes[1]).max() <= tolerance):
            raise UserError(
                f"{path}: was built with another encoder, or other settings of it (entries of the "
                f"same texts' vectors differ by up to {difference:.2g}, tolerance {tolerance:g}); "
                "load it with that one, or build it again"
            )
        self._encode_document = _refuse_documents
        print(
            f"{path}: searched with an encoder that follows the one of the index (mean cosine "
            f"{(vectors[0] * probes[0]).sum(axis=1).mean():.2f})",
            file=sys.stderr,
        )


def _refuse_documents(texts: Sequence[str]) -> np.ndarray:
    raise UserError(
        f"{len(texts)} texts to encode by an encoder that may only search this index; load it with "
        "the encoder that it was built with"
    )


def _choose_functions(encoder: Any) -> tuple[Encode, Encode]:
    """Returns the functions that embed queries and documents."""
    roles = getattr(encoder, "roles", None)
    plain = getattr(encoder, "encode", encoder)
    if not callable(plain):
        raise TypeError(f"an encoder has encode(list of str), got {type(encoder).__name__}")
    functions = []
    for name in ("query", "document"):
        if isinstance(roles, Mapping) and name in roles:
            functions.append(check_vectors(roles[name].encode))
        else:
            functions.append(check_vectors(getattr(encoder, f"encode_{name}", plain)))
    return functions[0], functions[1]


def _check_vectors(vectors: np.ndarray, count: int) -> np.ndarray:
    """Returns the vectors as float32; raises `UserError` unless they are finite `[count, dim]`."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or len(vectors) != count or not vectors.shape[1]:
        raise UserError(
            f"vectors of shape {list(vectors.shape)} for {count} texts; give [{count}, dim]"
        )
    if np.issubdtype(vectors.dtype, np.number):
        vectors = np.asarray(vectors, np.float32)
        if np.isfinite(vectors).all():
            return vectors
    raise UserError("vectors hold NaN, infinity or no numbers; encode the texts again")


@contextlib.contextmanager
def _report_write_errors(path: Path) -> Iterator[None]:
    """Turns an `OSError`, or usearch's error of a file, into a `UserError` of one line."""
    try:
        with report_write_errors(path):
            yield
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path!s:.200}: cannot be written ({reason}); check the disk and save the index again"
        ) from None


def _is_replaceable(path: Path) -> bool:
    """Returns whether a folder holds an index, of any version."""
    try:
        return read_object(path / DESCRIPTION).get("format") == _FORMAT
    except UserError:
        return False


def _check_search(k: int, filter: Filter | None) -> None:
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"k must be a whole number, got {k!r:.40}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if isinstance(filter, str | bytes):
        raise TypeError("filter is a function or a set of ids, got a single string")


def _check_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str | bytes):
        raise TypeError("expected a list of strings, got a single string; pass [text]")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"item {row} is {type(text).__name__}, not a string: {text!r:.60}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """The content of `index.json`.

    Attributes:
      format, version: those of the folder.
      precision, approximate: see `Index.build`.
      texts: number of texts.
      dimension: width of the vectors.
      scale: the step of codes of 8 bits.
      settings: see `Index`.
      sha256: the checksum of each file by name; when it is read, of each other file.
    """

    format: str = _FORMAT
    version: int = _VERSION
    precision: Annotated[str, OneOf(PRECISIONS)]
    approximate: bool
    texts: Annotated[int, at_least(0)]
    dimension: Annotated[int, at_least(1)]
    scale: Annotated[float, Range(0, 1e9, above_low=True)]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    sha256: dict[str, str]

    def compute_checksum(self) -> str:
        """Returns the checksum of these values, among which its own must not be."""
        return digest([], json.dumps(dataclasses.asdict(self)))


@guard_reader(ADVICE)
def read_description(path: Path) -> Description:
    """Returns what a saved index says about itself; raises `UserError` if it is damaged or none."""
    file = path / DESCRIPTION
    if not os.path.isfile(file):
        raise UserError(f"{path!s:.200}: no index there (it has no {DESCRIPTION}); check the path")
    values = read_object(file, ADVICE)
    if values.get("format") != _FORMAT or values.get("version") != _VERSION:
        raise UserError(
            f"{file}: of format {values.get('format')!r:.40} {values.get('version', '')!s:.20}, "
            f"this version reads {_FORMAT} {_VERSION}; {ADVICE}"
        )
    description = read_dataclass(Description, values, str(file))
    # Indexes that were saved before there was one do not have it.
    if own := description.sha256.pop(DESCRIPTION, ""):
        _verify(file, description.compute_checksum(), own)
    return description


def _verify(path: Path, checksum: str, expected: str) -> None:
    """Raises `UserError` unless a file is the one that was saved."""
    if checksum != expected:
        raise UserError(
            f"{path}: is not as it was saved (another SHA-256); copy the index again, or {ADVICE}"
        )
