"""Embeddings that `export.embedding.embed` has written, read shard by shard for an index."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from official_cmlm.common.errors import UserError, guard_reading
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import join_inside, read_array, read_object, refuse_special
from official_cmlm.common.validation import OneOf, at_least, read_dataclass
from official_cmlm.vectors.embeddings import PRECISIONS, dequantize, read_ranges

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
    """The manifest of a folder that `export.embedding.embed` has written.

    Attributes:
      rows, columns: size of all shards' arrays together.
      precision: one of `embeddings.PRECISIONS`.
      shards: an entry for each file.
    """

    rows: int
    columns: Annotated[int, at_least(1)]
    precision: Annotated[str, OneOf(PRECISIONS)]
    shards: list[dict[str, Any]]

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
        names = {field.name for field in dataclasses.fields(cls)} & values.keys()
        with guard_reading(path, _ADVICE):
            embeddings = read_dataclass(cls, {name: values[name] for name in names}, "manifest")
            rows = sum(shard["rows"] for shard in embeddings.shards)
        if not rows:
            raise UserError(f"{path}: has no rows; embed at least one text")
        if rows != embeddings.rows:
            raise UserError(f"{path}: its shards do not have its {embeddings.rows} rows; {_ADVICE}")
        return embeddings


def read_shards(
    folder: Path, embeddings: Embeddings, precision: str, width: int
) -> Iterator[Shard]:
    """Yields the shards of a folder, decoded.

    Args:
      folder: an output folder of `export.embedding.embed`.
      embeddings: its manifest.
      precision: the precision of the index that is made of them.
      width: dimensions of the encoder's vectors.

    Raises:
      UserError: if a file is damaged, or no index of this precision, for this encoder, can be made.
    """
    columns, bits, ranges = embeddings.columns, embeddings.precision in _BITS, read_ranges(folder)
    if bits and precision != "bits":
        raise UserError(
            f"{folder}: embeddings of a bit a dimension; index them with precision='bits'"
        )
    if columns != (-(-width // 8) if bits else width):
        raise UserError(
            f"{folder}: vectors of {columns * (8 if bits else 1)} dimensions, the encoder's have "
            f"{width}; give the encoder that made them"
        )
    if embeddings.precision in ("int8", "uint8") and (not ranges or len(ranges.low) != columns):
        raise UserError(f"{folder}: has no ranges for its embeddings; {_ADVICE}")
    for entry in embeddings.shards:
        path = join_inside(folder, entry.get("file", ""), folder / _MANIFEST)
        shape = (entry["rows"], columns)
        with guard_reading(path, _ADVICE):
            shard = _READERS.get(path.suffix, _read_npy)(path, entry)
            if shard.vectors.shape != shape or len(shard.ids or [0] * shape[0]) != shape[0]:
                raise ValueError(f"it is not of {shape[0]} rows of {shape[1]}")
            vectors = dequantize(shard.vectors, embeddings.precision, ranges, width)
            if not np.isfinite(vectors).all():
                raise ValueError("it holds NaN or infinity")
        yield dataclasses.replace(shard, vectors=vectors)


def _read_npy(path: Path, entry: dict[str, Any]) -> Shard:
    vectors, ids = read_array(path, _ADVICE), None
    if "ids" in entry:
        names = join_inside(path.parent, entry["ids"], path.parent / _MANIFEST)
        refuse_special(names)
        ids = [str(json.loads(line)) for line in names.read_bytes().splitlines()]
    return Shard(vectors, ids)


def _read_parquet(path: Path, entry: dict[str, Any]) -> Shard:
    text_name = entry.get("text", "text")
    refuse_special(path)
    check_extra("parquet", "pyarrow")
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


def _read_json_lines(path: Path, entry: dict[str, Any]) -> Shard:
    own = ("id", entry.get("text", "text"), "vector")
    refuse_special(path)
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    ids, texts, vectors = ([row[name] for row in rows] for name in own)
    metadata = [{name: row[name] for name in row if name not in own} for row in rows]
    return Shard(np.array(vectors), [*map(str, ids)], texts, metadata if any(metadata) else None)


_READERS = {".parquet": _read_parquet, ".jsonl": _read_json_lines}
