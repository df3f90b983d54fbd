"""A process that embeds parts and writes their files."""

import dataclasses
import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import encoder_digest
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, atomic_write_text, sha256, write_array
from official_cmlm.common.worker_processes import prepare_worker
from official_cmlm.vectors.embeddings import RANGES_NAME, Ranges, read_ranges

from .rows import Part

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

# Folder with a description of each finished part, until the manifest holds them.
WORK = "unfinished"
OUTPUTS = ("npy", "parquet")
# Prompts of `encode_document`, which `encode_long` is given by name.
_DOCUMENT = ("document", "passage", "corpus")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that decides the vectors of a text, and the format of the files.

    Attributes:
      model_dir: the encoder's folder, as `find_encoder` returns it.
      backend, device, arithmetic, max_seq_length, pooling, sentence_vector: see
        `SentenceEncoder.load`, where the arithmetic is called precision.
      prompt_name, prompt, precision, normalize: see `SentenceEncoder.encode`; without a prompt
        texts get the prompt of documents, as by `encode_document`.
      dim: `truncate_dim` of `SentenceEncoder.encode`.
      on_long: `cut`, `error`, or `windows`, for which `encode_long` embeds.
      batch_size: most texts of a batch.
      output_format: `npy` or `parquet`.
      text_name: column of the texts in Parquet files; empty: they are not written.
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
    precision: str = "float32"
    dim: int | None = None
    normalize: bool = False
    on_long: str = "cut"
    batch_size: int = 64
    output_format: str = "npy"
    text_name: str = ""

    def encoder(self) -> "SentenceEncoder":
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

    def encode(self, encoder: "SentenceEncoder", texts: list[str]) -> "np.ndarray":
        """Returns the vectors of texts."""
        options: dict[str, Any] = {
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
            named = (encoder.prompts.get(name) for name in _DOCUMENT)
            options["prompt"] = next(filter(None, named), "")
        return encoder.encode_long(texts, **options)


@dataclasses.dataclass(frozen=True)
class Done:
    """A finished part, as its process reports it.

    Attributes:
      entry: the part's entry in the manifest.
      started, ended: by `time.monotonic`, which all processes of a machine share.
    """

    entry: dict[str, Any]
    started: float
    ended: float


_state: dict[str, Any] = {}


def start(settings: Settings, folder: str, workers: int, expected: str) -> None:
    """Prepares a new process, one of `workers`, and loads its encoder."""
    prepare_worker(workers)
    load(settings, folder, expected)


def load(settings: Settings, folder: str, expected: str) -> None:
    """Loads the encoder; an error is raised by the first call that needs it.

    Args:
      settings: how texts become vectors.
      folder: where parts are written.
      expected: the digest of the encoder.
    """
    _state.clear()
    _state.update(settings=settings, folder=Path(folder))
    try:
        encoder = settings.encoder()
        if (ranges := read_ranges(Path(folder))) is not None:
            encoder.ranges = ranges
        # The digest is computed after loading, so that it belongs to the loaded weights.
        if encoder_digest(Path(settings.model_dir), with_ranges=True) != expected:
            raise UserError(
                f"{settings.model_dir}: has changed since the run began; pass --overwrite"
            )
    except ValueError as error:
        # An exception here would end the pool, and the main process would not get it.
        _state["error"] = UserError(error)
    else:
        _state["encoder"] = encoder


def _loaded() -> "SentenceEncoder":
    if "error" in _state:
        raise _state["error"]
    return _state["encoder"]


def backend_name() -> str:
    """Returns the name of the backend that the encoder was loaded with."""
    return _loaded().backend.name


def calibrate(texts: list[str]) -> None:
    """Finds the ranges of 8-bit embeddings and stores them in the output folder.

    The encoder directory's own ranges are taken if they belong to such vectors.
    """
    settings, encoder = _state["settings"], _loaded()
    width = settings.dim or encoder.dimension
    ranges = None
    if encoder.ranges is not None:
        try:
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
    ranges.save(_state["folder"])


def embed(part: Part) -> Done:
    """Embeds a part and writes its files; the last one, the description, says that all exist."""
    started = time.monotonic()
    settings, folder = _state["settings"], _state["folder"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            vectors = settings.encode(_loaded(), part.texts)
        except ValueError as error:
            where = f"rows {part.first_row} to {part.first_row + len(part.texts) - 1}"
            raise UserError(f"{where}: {error}") from None
    from official_cmlm.encoding.sentence_encoder import TextCutWarning

    lost = [one.message for one in caught if isinstance(one.message, TextCutWarning)]
    name = shard_name(part.number, settings.output_format)
    if settings.output_format == "parquet":
        _write_parquet(folder / name, vectors, part, settings.text_name)
    else:
        _write_npy(folder / name, vectors, part)
    entry = {
        "file": name,
        "first_row": part.first_row,
        "rows": len(part.texts),
        "bytes": (folder / name).stat().st_size,
        "sha256": sha256(folder / name),
        "cut_texts": sum(one.texts for one in lost),
        "cut_tokens": sum(one.tokens for one in lost),
        "mended_texts": part.mended,
    }
    if settings.output_format == "parquet" and settings.text_name:
        entry["text"] = settings.text_name
    if part.ids is not None and settings.output_format == "npy":
        entry["ids"] = ids_name(part.number)
        entry["ids_bytes"] = (folder / entry["ids"]).stat().st_size
        entry["ids_sha256"] = sha256(folder / entry["ids"])
    if (folder / RANGES_NAME).exists():
        entry["ranges_sha256"] = sha256(folder / RANGES_NAME)
    description = entry | {"shape": list(vectors.shape), "dtype": str(vectors.dtype)}
    atomic_write_text(done_path(folder, part.number), json.dumps(description) + "\n")
    return Done(description, started, time.monotonic())


def done_path(folder: Path, number: int) -> Path:
    """Returns the path of a finished part's description."""
    return folder / WORK / f"{number:05d}.json"


def shard_name(number: int, output_format: str) -> str:
    """Returns the name of a part's file of vectors."""
    return f"embeddings-{number:05d}.{output_format}"


def ids_name(number: int) -> str:
    """Returns the name of a part's file of ids, a JSON string a line, beside a `.npy` file."""
    return f"ids-{number:05d}.jsonl"


def _write_npy(path: Path, vectors: "np.ndarray", part: Part) -> None:
    with atomic_write(path) as file:
        write_array(file, vectors)
    if part.ids is not None:
        lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in part.ids)
        atomic_write_text(path.with_name(ids_name(part.number)), lines)


def _write_parquet(path: Path, vectors: "np.ndarray", part: Part, text_name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if part.ids is not None:
        columns = {"id": pa.array(part.ids, pa.string())}
    else:
        last = part.first_row + len(part.texts)
        columns = {"id": pa.array(range(part.first_row, last), pa.int64())}
    if text_name:
        columns[text_name] = pa.array(part.texts, pa.string())
    for name, (kind, values) in part.kept.items():
        kind = "string" if kind == "json" else kind
        columns[name] = pa.array(values, pa.type_for_alias(kind))
    flat = pa.array(vectors.reshape(-1))
    columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    with atomic_write(path) as file:
        pq.write_table(pa.table(columns), file)
