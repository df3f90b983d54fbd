"""A process that embeds texts and writes the files of their shard."""

import dataclasses
import json
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import encoder_digest
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, atomic_write_text, sha256, write_array
from official_cmlm.common.validation import Flag, OneOf, between
from official_cmlm.common.worker_processes import Moves
from official_cmlm.vectors.embeddings import PRECISIONS, RANGES_NAME, Ranges, read_ranges

from .rows import Texts

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

# Precisions of embeddings that need the range of each dimension.
EIGHT_BITS = ("int8", "uint8")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that decides the vectors of a text, and the format of the files.

    The fields from `prompt_name` on, but for the last one, are flags of `embed`.

    Attributes:
      model_dir: the encoder's folder, as `find_encoder` returns it.
      backend, device, arithmetic, max_seq_length, pooling, sentence_vector: see
        `SentenceEncoder.load`, where the arithmetic is called precision.
      prompt_name: prompt of the encoder, such as query, to put before each text. Default: that of
        documents, if it has one.
      prompt: a prompt of your own in place of it.
      precision: precision of the written embeddings. int8 and uint8 take the ranges of the encoder
        directory, else those of the first --calibration_rows texts, and store them.
      dim: dimensions to keep, the first ones, before --normalize. Default: all.
      normalize: whether to scale each vector to length 1.
      on_long: what becomes of longer texts: they are cut and counted, or the run ends, or their
        vector is the mean over windows.
      batch_size: most texts of a batch.
      output_format: format of the shards of --output_dir. npy: arrays [rows, dim]; parquet: columns
        id and embedding; jsonl: objects of id, text and vector.
      text_name: column of the texts in the files; empty: they are not written.
    """

    model_dir: str
    backend: str = "tensorflow"
    device: str | None = None
    arithmetic: str = "float32"
    max_seq_length: int | None = None
    pooling: str | None = None
    sentence_vector: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    precision: Annotated[str, OneOf(PRECISIONS), Flag("embedding_precision")] = "float32"
    dim: Annotated[int, between(1, 1 << 16)] | None = None
    normalize: bool = False
    on_long: Annotated[str, OneOf(("cut", "error", "windows"))] = "cut"
    batch_size: Annotated[int, between(1, 1_000_000)] = 64
    output_format: Annotated[str, OneOf(("npy", "parquet", "jsonl"))] = "npy"
    text_name: str = ""

    @property
    def vector_name(self) -> str:
        """The column of the vectors in the files."""
        return "vector" if self.output_format == "jsonl" else "embedding"

    def load_encoder(self) -> "SentenceEncoder":
        """Loads the encoder."""
        from official_cmlm.encoding.sentence_encoder import SentenceEncoder

        return SentenceEncoder.load(
            self.model_dir,
            self.max_seq_length,
            self.arithmetic,
            self.pooling,
            self.sentence_vector,
            backend=self.backend,
            device=self.device,
            workload="bulk",
        )

    def encode(
        self,
        encoder: "SentenceEncoder",
        texts: list[str],
        progress: Callable[[int], object] | None = None,
    ) -> "np.ndarray":
        """Returns the vectors of texts; `progress` gets the number of texts of each batch."""
        options: dict[str, Any] = {
            "show_progress_bar": progress,
            "batch_size": self.batch_size,
            "normalize_embeddings": self.normalize,
            "prompt_name": self.prompt_name,
            "prompt": self.prompt,
            "truncate_dim": self.dim,
            "precision": self.precision,
        }
        if self.on_long != "windows":
            return encoder.encode_document(texts, on_long=self.on_long, **options)
        if self.prompt_name is None and self.prompt is None:
            options["prompt"] = encoder.find_prompt("document")
        return encoder.encode_long(texts, **options)


class Embedder:
    """An encoder that embeds texts into files of a folder; each process makes its own."""

    def __init__(self, settings: Settings, folder: Path, expected: str) -> None:
        """Loads the encoder.

        Args:
          settings: how texts become vectors.
          folder: where the files are written.
          expected: the digest of the encoder.

        Raises:
          UserError: the encoder cannot be loaded, or is not that of the digest.
        """
        self._settings, self._folder = settings, folder
        try:
            self._encoder = settings.load_encoder()
        except ValueError as error:
            raise UserError(error) from None
        # The digest is computed after loading, so that it belongs to the loaded weights.
        if encoder_digest(Path(settings.model_dir), with_ranges=True) != expected:
            raise UserError(
                f"{settings.model_dir}: has changed since the run began; pass --overwrite"
            )

    def get_backend(self) -> str:
        """Returns the name of the backend that the encoder was loaded with."""
        return self._encoder.backend.name

    def calibrate(self, texts: list[str]) -> None:
        """Finds the ranges of 8-bit embeddings and stores them in the output folder.

        The encoder directory's own ranges are taken if they belong to such vectors.
        """
        settings, encoder = self._settings, self._encoder
        ranges = None
        if encoder.ranges is not None:
            try:
                width = settings.dim or encoder.dimension
                ranges = encoder.ranges.cut(width, settings.normalize)
            except UserError as error:
                cli.warn(f"{error}; here the first rows of the input give others")
        if ranges is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plain = dataclasses.replace(settings, precision="float32")
                try:
                    ranges = Ranges.of(plain.encode(encoder, texts), settings.normalize)
                except ValueError as error:
                    raise UserError(error) from None
        ranges.save(self._folder)

    def embed(self, texts: Texts) -> dict[str, Any]:
        """Embeds texts and writes their files.

        Returns:
          `shard`, the entry in the manifest; `columns` and `dtype` of the vectors; `seconds`, the
          times at which the computation began and ended.
        """
        began = time.time()
        settings, folder = self._settings, self._folder
        if settings.precision in EIGHT_BITS:
            # The ranges of the encoder directory may be of other vectors.
            self._encoder.ranges = read_ranges(folder)
        with (
            warnings.catch_warnings(record=True) as caught,
            Moves(len(texts.texts)) as moves,
        ):
            warnings.simplefilter("always")
            try:
                vectors = settings.encode(self._encoder, texts.texts, moves.add)
            except ValueError as error:
                where = f"rows {texts.first_row} to {texts.first_row + len(texts.texts) - 1}"
                raise UserError(f"{where}: {error}") from None
        from official_cmlm.encoding.sentence_encoder import TextCutWarning

        messages = (warning.message for warning in caught)
        cuts = [message for message in messages if isinstance(message, TextCutWarning)]
        path = folder / shard_name(texts.number, settings.output_format)
        if settings.output_format == "parquet":
            _write_parquet(path, vectors, texts, settings.text_name)
        elif settings.output_format == "jsonl":
            _write_json_lines(path, vectors, texts, settings.text_name)
        else:
            _write_npy(path, vectors, texts)
        shard = {
            "file": path.name,
            "first_row": texts.first_row,
            "rows": len(texts.texts),
            "bytes": path.stat().st_size,
            "sha256": sha256(path),
            "cut_texts": sum(cut.texts for cut in cuts),
            "cut_tokens": sum(cut.tokens for cut in cuts),
            "mended_texts": texts.mended,
        }
        if settings.text_name:
            shard["text"] = settings.text_name
        if texts.ids is not None and settings.output_format == "npy":
            ids = folder / ids_name(texts.number)
            shard |= {"ids": ids.name, "ids_bytes": ids.stat().st_size, "ids_sha256": sha256(ids)}
        if settings.precision in EIGHT_BITS:
            shard["ranges_sha256"] = sha256(folder / RANGES_NAME)
        form = {"columns": vectors.shape[1], "dtype": str(vectors.dtype)}
        return {"shard": shard, **form, "seconds": [began, time.time()]}


def shard_name(number: int, output_format: str) -> str:
    """Returns the name of a part's file of vectors."""
    return f"embeddings-{number:05d}.{output_format}"


def ids_name(number: int) -> str:
    """Returns the name of a part's file of ids, as JSON a line each, beside a `.npy` file."""
    return f"ids-{number:05d}.jsonl"


def _write_npy(path: Path, vectors: "np.ndarray", texts: Texts) -> None:
    with atomic_write(path) as file:
        write_array(file, vectors)
    if texts.ids is not None:
        lines = "".join(json.dumps(name, ensure_ascii=False) + "\n" for name in texts.ids)
        atomic_write_text(path.with_name(ids_name(texts.number)), lines)


def _list_ids(texts: Texts) -> Sequence[str] | Sequence[int]:
    first = texts.first_row
    return range(first, first + len(texts.texts)) if texts.ids is None else texts.ids


def _write_json_lines(path: Path, vectors: "np.ndarray", texts: Texts, text_name: str) -> None:
    # NumPy writes the fewest digits that give the same float32; those of JSON are of float64.
    written = (f"[{', '.join(row)}]" for row in vectors.astype(str).tolist())
    others = zip(*(values for _, values in texts.columns.values())) if texts.columns else repeat(())
    with atomic_write(path) as file:
        for name, text, cells, vector in zip(_list_ids(texts), texts.texts, others, written):
            row = {"id": name, text_name: text} | dict(zip(texts.columns, cells))
            head = json.dumps(row, ensure_ascii=False)[:-1]
            file.write(f'{head}, "vector": {vector}}}\n'.encode())


def _write_parquet(path: Path, vectors: "np.ndarray", texts: Texts, text_name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = _list_ids(texts)
    kind = pa.string() if isinstance(ids[0], str) else pa.int64()
    columns = {"id": pa.array(ids, kind)}
    if text_name:
        columns[text_name] = pa.array(texts.texts, pa.string())
    for name, (kind, values) in texts.columns.items():
        kind = "string" if kind == "json" else kind
        columns[name] = pa.array(values, pa.type_for_alias(kind))
    flat = pa.array(vectors.reshape(-1))
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    with atomic_write(path) as file:
        pq.write_table(pa.table(columns), file)
