"""Embeddings that `export.embedding.embed` has written, read shard by shard for an index."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import join_inside, read_array, read_object, refuse_special
from official_cmlm.vectors.embeddings import PRECISIONS, Ranges, dequantize, read_ranges

_MANIFEST = "manifest.json"
_ADVICE = "embed the texts again"
_BITS = ("binary", "ubinary")


@dataclasses.dataclass(frozen=True)
class Shard:
    """A part of the embeddings.

    Attributes:
      vectors: float32 `[rows, dim]`.
      ids: the id of each row; None if the shard has no ids.
      texts: the text of each row; None if the shard has no texts.
      metadata: the other columns of each row; None if there are none.
    """

    vectors: np.ndarray
    ids: list[str] | None = None
    texts: list[str] | None = None
    metadata: list[dict[str, Any]] | None = None


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """The output folder of `export.embedding.embed`.

    Attributes:
      folder: its path.
      rows, columns: size of all shards' arrays together.
      precision: one of `embeddings.PRECISIONS`.
      entries: the manifest's entry for each shard.
      ranges: the ranges of 8-bit embeddings; None if the folder has none.
    """

    folder: Path
    rows: int
    columns: int
    precision: str
    entries: list[dict[str, Any]]
    ranges: Ranges | None

    @classmethod
    def open(cls, folder: Path) -> "Embeddings":
        """Reads the manifest; raises `UserError` if it is missing or damaged."""
        path = folder / _MANIFEST
        if not path.is_file():
            raise UserError(
                f"{folder}: no finished embeddings there (no {_MANIFEST}); name an --output_dir of"
                " export.embedding.embed that has ended"
            )
        values = read_object(path, _ADVICE)
        entries, ranges = values.get("shards"), read_ranges(folder)
        rows, columns, precision = (values.get(name) for name in ("rows", "columns", "precision"))
        fits = isinstance(entries, list) and all(
            isinstance(entry, dict) and type(entry.get("rows")) is int for entry in entries
        )
        are_numbers = type(rows) is type(columns) is int
        if not (fits and entries and precision in PRECISIONS and are_numbers):
            raise UserError(f"{path}: damaged, or of another version; {_ADVICE}")
        if sum(entry["rows"] for entry in entries) != rows or columns < 1:
            raise UserError(f"{path}: its shards do not have its {rows} rows; {_ADVICE}")
        if precision in ("int8", "uint8") and (ranges is None or len(ranges.low) != columns):
            raise UserError(f"{folder}: has no ranges for its {precision} embeddings; {_ADVICE}")
        return cls(folder, rows, columns, precision, entries, ranges)

    def check(self, precision: str, width: int) -> None:
        """Raises `UserError` if no index of this precision, for this encoder, can be made of them.

        Args:
          precision: the index's precision.
          width: dimensions of the encoder's vectors.
        """
        bits = self.precision in _BITS
        if bits and precision != "bits":
            raise UserError(
                f"{self.folder}: embeddings of a bit a dimension; index them with precision='bits'"
            )
        if self.columns != (-(-width // 8) if bits else width):
            raise UserError(
                f"{self.folder}: vectors of {self.columns * (8 if bits else 1)} dimensions, the "
                f"encoder's have {width}; give the encoder that made them"
            )

    def shards(self, width: int) -> Iterator[Shard]:
        """Yields the shards, decoded to vectors of `width` dimensions."""
        for entry in self.entries:
            path = join_inside(self.folder, entry.get("file", ""), self.folder / _MANIFEST)
            shape = (entry["rows"], self.columns)
            try:
                shard = (_parquet if path.suffix == ".parquet" else _npy)(path, entry)
                if shard.vectors.shape != shape or len(shard.ids or [0] * shape[0]) != shape[0]:
                    raise ValueError(f"it is not of {shape[0]} rows of {shape[1]}")
                vectors = dequantize(shard.vectors, self.precision, self.ranges, width)
                if not np.isfinite(vectors).all():
                    raise ValueError("it holds NaN or infinity")
            except UserError:
                raise
            except (OSError, ValueError, KeyError, EOFError) as error:
                reason = getattr(error, "strerror", None) or error
                raise UserError(f"{path}: damaged ({reason!s:.200}); {_ADVICE}") from None
            yield dataclasses.replace(shard, vectors=vectors)


def _npy(path: Path, entry: dict[str, Any]) -> Shard:
    vectors, ids = read_array(path, _ADVICE), None
    if "ids" in entry:
        names = join_inside(path.parent, entry["ids"], path.parent / _MANIFEST)
        refuse_special(names)
        ids = [str(json.loads(line)) for line in names.read_bytes().splitlines()]
    return Shard(vectors, ids)


def _parquet(path: Path, entry: dict[str, Any]) -> Shard:
    text_name = entry.get("text", "text")
    refuse_special(path)
    check_extra("data", "pyarrow")
    import pyarrow.parquet as pq

    table = pq.read_table(path).combine_chunks()
    column = table.column("embedding").combine_chunks()
    vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)
    ids = [str(name) for name in table.column("id").to_pylist()]
    others = [name for name in table.column_names if name not in ("id", "embedding", text_name)]
    texts = metadata = None
    if text_name in table.column_names:
        texts = [text or "" for text in table.column(text_name).to_pylist()]
    if others:
        # Values such as dates become strings.
        metadata = json.loads(json.dumps(table.select(others).to_pylist(), default=str))
    return Shard(vectors, ids, texts, metadata)
