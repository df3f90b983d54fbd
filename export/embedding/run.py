"""A whole run of `embed`: the shards that are left, and the manifest or the one file at the end."""

import dataclasses
import functools
import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import (
    atomic_write,
    read_object,
    report_write_errors,
    sha256,
    write_json,
)
from official_cmlm.common.input_files import is_remote
from official_cmlm.common.job import PLAN, Job, Part
from official_cmlm.common.text_files import Reading, file_state
from official_cmlm.common.validation import between
from official_cmlm.common.worker_processes import Processes
from official_cmlm.vectors.embeddings import RANGES_NAME

from .rows import Extent, Texts, measure, read_texts
from .worker import EIGHT_BITS, Embedder, Settings, shard_name

# A folder whose plan lacks this mark was not written by this program; nothing in it is replaced.
FORMAT = "official_cmlm/embeddings"
# File with the extent of the input, until the output is complete.
_EXTENT = "extent.json"
_OWN = rf"{_EXTENT}|{RANGES_NAME}|embeddings-\d{{5,}}\.(npy|parquet|jsonl)|ids-\d{{5,}}\.jsonl"
_REMEDY = "make room, then give the same command again"
# Name of a file that holds standard input; content alone tells it from another one.
STANDARD_INPUT = "cmlm_standard_input.txt"


@dataclasses.dataclass(frozen=True)
class Request:
    """The files to read, the encoder, and the form of the output.

    Attributes:
      paths: the files, in order.
      reading: how they are read.
      settings: how texts become vectors.
      encoder_digest: see `encoder_directory.encoder_digest`.
      shard_rows: texts of a shard: what is lost at most, of each worker, if the run is killed.
      calibration_rows: texts that give the ranges of int8 and uint8, the first ones of the input.
    """

    paths: Sequence[str]
    reading: Reading
    settings: Settings
    encoder_digest: str
    shard_rows: Annotated[int, between(1, 10_000_000)] = 10_000
    calibration_rows: Annotated[int, between(2, 1_000_000)] = 10_000

    def make_plan(self) -> dict[str, Any]:
        """Returns everything that decides the output's bytes, with the state of each file."""
        return {
            "format": FORMAT,
            "files": [_describe(path) for path in self.paths],
            "reading": dataclasses.asdict(self.reading),
            "settings": dataclasses.asdict(self.settings),
            "encoder": self.encoder_digest,
            "shard_rows": self.shard_rows,
            "calibration_rows": self.calibration_rows,
        }

    def read(
        self, kinds: dict[str, str] | None = None, start: Texts | None = None
    ) -> Iterator[Texts]:
        """Yields the input in parts, with the columns of these kinds; see `rows.read_texts`."""
        return read_texts(self.paths, self.reading, self.shard_rows, kinds, start)

    def measure(self) -> Extent:
        """Reads the input once; see `rows.measure`."""
        own = (self.settings.text_name, self.settings.vector_name)
        return measure(self.paths, self.reading, [name for name in own if name])

    def start_processes(self, workers: int, folder: Path) -> Processes:
        """Returns processes that have an `Embedder`."""
        return Processes(workers, Embedder, self.embedder_arguments(folder), "use fewer --workers")

    def embedder_arguments(self, folder: Path) -> dict[str, Any]:
        """Returns the arguments of `Embedder`."""
        return {"settings": self.settings, "folder": folder, "expected": self.encoder_digest}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
      manifest: the content of `manifest.json`.
      computed: texts that this run embedded; the others were there.
      seconds: from the beginning of its first part to the end of its last one.
    """

    manifest: dict[str, Any]
    computed: int
    seconds: float


def run(
    request: Request,
    folder: Path,
    workers: int,
    overwrite: bool = False,
    target: Path | None = None,
    beam: Sequence[str] | None = None,
) -> Outcome:
    """Embeds the input, or what is left of it after a run that was stopped.

    The vectors depend on the request, but neither on kills nor on which process computed a part.
    Only the last bits of ONNX Runtime's vectors may differ from run to run.

    Args:
      request: what is to be done.
      folder: the folder of shards; `manifest.json` appears in it when all is there.
      workers: number of processes; 0: this one.
      overwrite: whether to replace what another run has written there, and the target.
      target: file to write from the shards, whose folder is removed then. Default: none.
      beam: flags of Apache Beam, which then embeds in place of processes.

    Raises:
      UserError: a fault of the input, the folder holds something else, or a process has died.
    """
    for path in request.paths:
        if not is_remote(path) and folder.resolve() in Path(path).resolve().parents:
            raise UserError(f"{path}: an input inside of {folder}, the output; name another output")
    request = _choose_backend(request, folder, workers)
    # A fault of the input is met before anything is removed.
    extent = request.measure() if overwrite else None
    began = time.time()
    results: list[dict[str, Any]] = []
    with Job(folder, request.make_plan(), own=_OWN, overwrite=overwrite) as job:
        manifest = _open_manifest(job)
        if manifest is None:
            results = _compute(request, job, extent, workers, beam)
            manifest = _finish(request, job, results)
        if target is not None:
            _gather(folder, manifest, target, overwrite)
            job.discard()
    new = [result for result in results if result["seconds"][0] >= began]
    first = min((result["seconds"][0] for result in new), default=0.0)
    last = max((result["seconds"][1] for result in new), default=0.0)
    return Outcome(manifest, sum(result["shard"]["rows"] for result in new), last - first)


def _choose_backend(request: Request, folder: Path, workers: int) -> Request:
    """Returns the request with a fixed backend and graph, the same for all of its processes."""
    from official_cmlm.encoding.backends.onnx import fastest_int8, has_graphs

    def choose(backend: str) -> Request:
        arithmetic = request.settings.arithmetic
        if (backend, arithmetic) == ("onnx", "int8"):
            arithmetic = fastest_int8()
        settings = dataclasses.replace(request.settings, backend=backend, arithmetic=arithmetic)
        return dataclasses.replace(request, settings=settings)

    if request.settings.backend != "auto":
        return choose(request.settings.backend)
    if has_graphs(Path(request.settings.model_dir)):
        return choose("onnx")
    if (folder / PLAN).exists():
        # A run that is resumed keeps the backend that it began with, whichever is faster now.
        before = read_object(folder / PLAN, "name another output").get("settings")
        for backend in ("tensorflow", "onnx"):
            if dataclasses.asdict(choose(backend).settings) == before:
                return choose(backend)
    with request.start_processes(workers, folder) as processes:
        return choose(processes.call(Embedder.get_backend))


def _open_manifest(job: Job) -> dict[str, Any] | None:
    """Returns the manifest of a finished run; None if there is none.

    Sizes of shards are compared, not bytes, of which there may be terabytes.

    Raises:
      UserError: the manifest is damaged, or a shard is lost.
    """
    manifest = job.manifest
    if manifest is None:
        return None
    shards = manifest.get("shards")
    if not isinstance(shards, list) or not {"rows", "columns", "dtype"} <= manifest.keys():
        path = job.folder / "manifest.json"
        raise UserError(f"{path}: damaged; delete {job.folder} to start again")
    lost = sum(not _is_whole(job.folder, {"shard": shard}) for shard in shards)
    if lost:
        raise UserError(
            f"{job.folder}: {lost} of {len(shards)} shards are gone or damaged; delete it to start "
            "again"
        )
    return manifest


def _is_whole(folder: Path, result: dict[str, Any], hashed: bool = False) -> bool:
    """Returns whether the files of a shard have the sizes, and the ranges the bytes, of its making.

    If `hashed`, the bytes of all files are compared.
    """
    try:
        shard = result["shard"]
        files = {shard["file"]: (shard["bytes"], shard["sha256"])}
        if "ids" in shard:
            files[shard["ids"]] = shard["ids_bytes"], shard["ids_sha256"]
        ranges = shard.get("ranges_sha256")
        return (ranges is None or sha256(folder / RANGES_NAME) == ranges) and all(
            (folder / name).stat().st_size == size
            and (not hashed or sha256(folder / name) == digest)
            for name, (size, digest) in files.items()
        )
    except (KeyError, TypeError, OSError):
        return False


def _compute(
    request: Request,
    job: Job,
    extent: Extent | None,
    workers: int,
    beam: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """Embeds the parts that are left; returns the results of all, see `Embedder.embed`."""
    path = job.folder / _EXTENT
    if not path.exists():
        write_json(path, dataclasses.asdict(extent or request.measure()))
    size = read_object(path, "delete it, and it is written again")
    kinds = size["kinds"]
    is_whole = functools.partial(_is_whole, job.folder, hashed=True)
    with (
        request.start_processes(workers, job.folder) as processes,
        progress.bar(size["rows"], "text", "embedding") as bar,
    ):
        if request.settings.precision in EIGHT_BITS and not (job.folder / RANGES_NAME).exists():
            rows = (text for texts in request.read() for text in texts.texts)
            processes.call(Embedder.calibrate, list(islice(rows, request.calibration_rows)))
        if beam is None:
            parts = (_part_of(texts) for texts in request.read(kinds))
            results = job.compute(Embedder.embed, parts, processes, bar, is_whole)
        else:
            check_extra("beam", "apache_beam")
            from official_cmlm.common.beam_workers import BeamWorkers

            runner, arguments = _split_runner(beam)
            places = (_part_of(texts, is_read=False) for texts in request.read(kinds))
            embed = functools.partial(embed_at, request=request, kinds=kinds)
            results = BeamWorkers(runner, arguments).compute(
                *(job, embed, places, bar, is_whole),
                make=Embedder,
                arguments=request.embedder_arguments(job.folder),
            )
    return list(results.values())


def _part_of(texts: Texts, is_read: bool = True) -> Part:
    """Returns a part of the job; unless `is_read` its texts are read again by its worker."""
    work = texts if is_read else Texts(texts.number, texts.first_row, texts.place)
    return Part(f"{texts.number:05d}", work, len(texts.texts))


def embed_at(
    embedder: Embedder, place: Texts, request: Request, kinds: dict[str, str]
) -> dict[str, Any]:
    """Reads the texts of a place, on whichever machine, and embeds them."""
    return embedder.embed(next(request.read(kinds, place)))


def _split_runner(flags: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the runner that flags of Beam name, by default this process, and the other flags."""
    names = [flag.removeprefix("--runner=") for flag in flags if flag.startswith("--runner=")]
    return names[-1] if names else "InProcess", [f for f in flags if not f.startswith("--runner=")]


def _finish(request: Request, job: Job, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Writes and returns the manifest, which says that the output is complete."""
    for path, before in zip(request.paths, job.plan["files"], strict=True):
        if not _is_unchanged(path, before):
            raise UserError(f"{path}: has changed since the run began; pass --overwrite")
    shards = [result["shard"] for result in results]
    manifest = {
        "format": FORMAT,
        "rows": sum(shard["rows"] for shard in shards),
        "missing_texts": read_object(job.folder / _EXTENT)["missing"],
        "columns": results[0]["columns"],
        "dtype": results[0]["dtype"],
        "precision": request.settings.precision,
        "encoder": {"path": request.settings.model_dir, "digest": request.encoder_digest},
        **{name: job.plan[name] for name in ("settings", "reading", "files")},
        "shards": shards,
    }
    job.finish(manifest)
    (job.folder / _EXTENT).unlink(missing_ok=True)
    return manifest


def _describe(path: str) -> list[Any]:
    size, time = file_state(path)
    is_input = Path(path).name == STANDARD_INPUT
    return ["-", size, sha256(path)] if is_input else [path, size, time]


def _is_unchanged(path: str, before: list[Any]) -> bool:
    try:
        return _describe(path) == before
    except (OSError, UserError):
        return False


def _gather(folder: Path, manifest: dict[str, Any], target: Path, overwrite: bool) -> None:
    """Writes the rows of all shards as one file, complete or absent.

    A Parquet file has the manifest, and the ranges of 8-bit embeddings, in its metadata. The ids of
    an array are a file beside it.

    Raises:
      UserError: the file has appeared since the run began, or a shard is damaged.
    """
    import numpy as np

    form, paths = target.suffix.removeprefix("."), []
    for number, shard in enumerate(manifest["shards"]):
        paths.append(folder / shard_name(number, form))
        if not _is_whole(folder, {"shard": shard}, hashed=True):
            raise UserError(f"{paths[-1]}: damaged; delete {folder} to start again")
    if form == "npy" and "ids" in manifest["shards"][0]:
        # `embed` has checked that this file is not another's.
        _join([folder / shard["ids"] for shard in manifest["shards"]], name_ids(target), True)
    elif form == "npy" and overwrite:
        name_ids(target).unlink(missing_ok=True)
    if form == "jsonl":
        return _join(paths, target, overwrite)
    with (
        report_write_errors(target, _REMEDY),
        atomic_write(target, replace=overwrite) as file,
    ):
        if form == "npy":
            header = {"descr": np.dtype(manifest["dtype"]).str, "fortran_order": False}
            header["shape"] = (manifest["rows"], manifest["columns"])
            np.lib.format.write_array_header_1_0(file, header)
            for path in paths:
                file.write(np.load(path, allow_pickle=False).tobytes())
        else:
            _gather_parquet(folder, manifest, paths, file)


def name_ids(target: Path) -> Path:
    """Returns the file of the ids of an array that is one file: `v.ids.jsonl` for `v.npy`."""
    return target.with_suffix(".ids.jsonl")


def _join(paths: list[Path], target: Path, overwrite: bool) -> None:
    with (
        report_write_errors(target, _REMEDY),
        atomic_write(target, replace=overwrite) as file,
    ):
        for path in paths:
            file.write(path.read_bytes())


def _gather_parquet(
    folder: Path, manifest: dict[str, Any], paths: list[Path], file: BinaryIO
) -> None:
    import pyarrow.parquet as pq

    about = {name: value for name, value in manifest.items() if name != "shards"}
    if (folder / RANGES_NAME).exists():
        about["ranges"] = read_object(folder / RANGES_NAME)
    schema = pq.read_schema(paths[0])
    schema = schema.with_metadata((schema.metadata or {}) | {b"official_cmlm": json.dumps(about)})
    with pq.ParquetWriter(file, schema) as writer:
        for path in paths:
            writer.write_table(pq.read_table(path).replace_schema_metadata(schema.metadata))
