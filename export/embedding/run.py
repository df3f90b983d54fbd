"""A whole run: what is left of it, parts in several processes, and the manifest at the end."""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any

from official_cmlm import cli, progress
from official_cmlm.embeddings import RANGES_NAME
from official_cmlm.errors import UserError
from official_cmlm.files import (
    atomic_write_text,
    locked,
    read_object,
    remove_unfinished,
    report_write_errors,
    sha256,
)

from . import worker
from .rows import Part, Reading, parts
from .worker import WORK, Done, Settings, done_path

MANIFEST, PLAN, LOCK = "manifest.json", "plan.json", "lock"
_ADVICE = "pass --overwrite, or name another --output_dir"
_REMEDY = "make room, then give the same command again: it goes on with what is left"


@dataclasses.dataclass(frozen=True)
class Job:
    """A run: the files to read, the encoder, and the form of the output.

    Attributes:
      paths: the files, in order.
      reading: how they are read.
      settings: how texts become vectors.
      encoder_digest: see `encoder_directory.encoder_digest`.
      shard_rows: texts of a part.
      calibration_rows: first texts of the input that give the ranges of 8-bit embeddings, unless
        the encoder directory has them.
    """

    paths: Sequence[str]
    reading: Reading
    settings: Settings
    encoder_digest: str
    shard_rows: int = 10_000
    calibration_rows: int = 10_000

    def parts(self) -> Iterator[Part]:
        """Yields the input in parts."""
        return parts(self.paths, self.reading, self.shard_rows)

    def plan(self) -> dict[str, Any]:
        """Returns everything that decides the output's bytes, with each file's size and time."""
        files = [[path, os.stat(path).st_size, os.stat(path).st_mtime_ns] for path in self.paths]
        return {
            "files": files,
            "reading": dataclasses.asdict(self.reading),
            "settings": dataclasses.asdict(self.settings),
            "encoder": self.encoder_digest,
            "shard_rows": self.shard_rows,
            "calibration_rows": self.calibration_rows,
        }


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


def run(job: Job, folder: Path, workers: int, overwrite: bool) -> Outcome:
    """Embeds the input, or what is left of it after a run that was stopped.

    The bytes depend on the job; kills, and in which process a part was computed, change nothing.

    Args:
      job: what is to be done.
      folder: the output; `manifest.json` appears in it when all is there.
      workers: number of processes.
      overwrite: whether to replace what another job has written there.

    Raises:
      UserError: a fault of the input, the folder holds something else, or a process has died.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, f"{folder}: another run writes there"):
        job = _concrete(job, folder, workers)
        plan = json.loads(json.dumps(job.plan()))
        _begin(folder, plan, overwrite)
        if (folder / MANIFEST).exists():
            manifest = read_object(folder / MANIFEST, _ADVICE)
            if _reopened(folder, manifest) == 0:
                return Outcome(manifest, 0, 0.0)
        with report_write_errors(folder, _REMEDY):
            remove_unfinished(folder)
            remove_unfinished(folder / WORK)
            in_bytes = job.settings.precision in ("int8", "uint8")
            if in_bytes and not (folder / RANGES_NAME).exists():
                _calibrate(job, folder)
            computed = _compute(job, folder, workers)
            manifest = _finish(job, folder, plan)
    seconds = max((d.ended for d in computed), default=0) - min(
        (d.started for d in computed), default=0
    )
    return Outcome(manifest, sum(d.entry["rows"] for d in computed), seconds)


def _begin(folder: Path, plan: dict[str, Any], overwrite: bool) -> None:
    """Makes the folder one of this plan."""
    others = [path for path in folder.iterdir() if path.name != LOCK]
    if others and not (folder / PLAN).exists():
        raise UserError(f"{folder}: holds other files; name another --output_dir")
    if others:
        before = read_object(folder / PLAN, _ADVICE)
        if before == plan:
            if (folder / MANIFEST).exists():
                # Left by a run that was killed at its very end.
                shutil.rmtree(folder / WORK, ignore_errors=True)
            else:
                (folder / WORK).mkdir(exist_ok=True)
            return
        if not overwrite:
            differing = [name for name in plan if plan[name] != before.get(name)]
            raise UserError(f"{folder}: was begun with another {', '.join(differing)}; {_ADVICE}")
        # The manifest first, as it says that all is there; the plan last, as without it the folder
        # would be somebody else's.
        ends = {MANIFEST: 0, PLAN: 2}
        for path in sorted(others, key=lambda path: ends.get(path.name, 1)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    atomic_write_text(folder / PLAN, json.dumps(plan, indent=1) + "\n")
    (folder / WORK).mkdir(exist_ok=True)


def _concrete(job: Job, folder: Path, workers: int) -> Job:
    """Returns the job with a fixed backend and graph, the same for all of its processes."""
    from official_cmlm.backends.onnx import fastest_int8, is_exported

    def chosen(backend: str) -> Job:
        arithmetic = job.settings.arithmetic
        if (backend, arithmetic) == ("onnx", "int8"):
            arithmetic = fastest_int8()
        settings = dataclasses.replace(job.settings, backend=backend, arithmetic=arithmetic)
        return dataclasses.replace(job, settings=settings)

    if job.settings.backend != "auto":
        return chosen(job.settings.backend)
    if is_exported(Path(job.settings.model_dir)):
        return chosen("onnx")
    if (folder / PLAN).exists():
        # A run that goes on takes what it began with, whatever is faster now.
        before = read_object(folder / PLAN, _ADVICE).get("settings")
        for backend in ("tensorflow", "onnx"):
            if dataclasses.asdict(chosen(backend).settings) == before:
                return chosen(backend)
    with _pool(job, folder, 1, workers) as pool:
        return chosen(_result(pool.submit(worker.backend_name), folder))


def _calibrate(job: Job, folder: Path) -> None:
    rows = (text for part in job.parts() for text in part.texts)
    texts = list(islice(rows, job.calibration_rows))
    with _pool(job, folder, 1) as pool:
        _result(pool.submit(worker.calibrate, texts), folder)


def _pool(
    job: Job, folder: Path, workers: int, shares: int | None = None
) -> concurrent.futures.ProcessPoolExecutor:
    """Processes, each with a share of the cores: one of `shares`, by default of `workers`."""
    # Spawned, not forked: a fork would lack the threads of the libraries that compute.
    context = multiprocessing.get_context("spawn")
    arguments = (job.settings, str(folder), shares or workers, job.encoder_digest)
    return concurrent.futures.ProcessPoolExecutor(workers, context, worker.start, arguments)


def _result(future: concurrent.futures.Future, folder: Path) -> Any:
    try:
        return future.result()
    except BrokenProcessPool:
        raise UserError(
            f"{folder}: a process has died, or could not load the encoder, perhaps because the "
            "memory is full; see above, or give the same command with fewer --workers"
        ) from None


def _compute(job: Job, folder: Path, workers: int) -> list[Done]:
    """Embeds the parts that are not there yet."""
    total = sum(os.path.getsize(path) for path in job.paths)
    done: list[Done] = []
    pending: dict[concurrent.futures.Future, Part] = {}
    with (
        progress.bar(total, "B", "embedding", unit_scale=True) as bar,
        _pool(job, folder, workers) as pool,
    ):

        def wait(most: int) -> None:
            """Waits until at most `most` parts are being computed."""
            while len(pending) > most:
                ended, _ = concurrent.futures.wait(
                    pending, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ended:
                    done.append(_result(future, folder))
                    bar.update(pending.pop(future).read_bytes)

        try:
            for part in job.parts():
                if _is_done(folder, part.number):
                    # The time left counts unfinished parts only.
                    bar.initial += part.read_bytes
                    bar.update(part.read_bytes)
                    continue
                # One more than are computed, so that no process waits for the reader.
                pending[pool.submit(worker.embed, part)] = part
                wait(workers)
            wait(0)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def _is_done(folder: Path, number: int) -> bool:
    """Whether a part was finished, and its files are there as they were written."""
    path = done_path(folder, number)
    return path.exists() and _is_whole(folder, read_object(path, _ADVICE), hashed=True)


def _is_whole(folder: Path, entry: dict[str, Any], hashed: bool = False) -> bool:
    """Whether a shard's files have their sizes and, where asked for, the vectors their bytes."""
    sizes = {entry["file"]: entry.get("bytes")}
    if "ids" in entry:
        sizes[entry["ids"]] = entry.get("ids_bytes")
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file() or (size is not None and path.stat().st_size != size):
            return False
    return not hashed or sha256(folder / entry["file"]) == entry["sha256"]


def _reopened(folder: Path, manifest: dict[str, Any]) -> int:
    """Counts the missing or damaged shards of a finished run; any makes the run unfinished.

    Their sizes are compared, not their bytes, of which there may be terabytes.
    """
    shards = manifest["shards"]
    whole = {n: shard for n, shard in enumerate(shards) if _is_whole(folder, shard)}
    lost = len(shards) - len(whole)
    if lost:
        cli.warn(
            f"{folder}: {lost} of {len(shards)} shards are gone or damaged; writing them again"
        )
        (folder / WORK).mkdir(exist_ok=True)
        for number, shard in whole.items():
            form = {"shape": [shard["rows"], manifest["columns"]], "dtype": manifest["dtype"]}
            atomic_write_text(done_path(folder, number), json.dumps(shard | form) + "\n")
        (folder / MANIFEST).unlink()
    return lost


def _finish(job: Job, folder: Path, plan: dict[str, Any]) -> dict[str, Any]:
    """Writes the manifest, which says that all is there."""
    for path, size, changed in plan["files"]:
        state = os.stat(path) if os.path.exists(path) else None
        if state is None or (state.st_size, state.st_mtime_ns) != (size, changed):
            raise UserError(f"{path}: has changed since the run began; pass --overwrite")
    paths = sorted((folder / WORK).glob("*.json"), key=lambda path: int(path.stem))
    if not paths:
        raise UserError(f"{', '.join(job.paths)}: no text; check --input")
    shards = [read_object(path, _ADVICE) for path in paths]
    shapes = {(shard["shape"][1], shard["dtype"]) for shard in shards}
    if len(shapes) > 1:
        raise UserError(f"{folder}: its files have several shapes; {_ADVICE}")
    (columns, dtype), *_ = shapes
    for shard in shards:
        del shard["shape"], shard["dtype"]
    manifest = {
        "rows": sum(shard["rows"] for shard in shards),
        "columns": columns,
        "dtype": dtype,
        "precision": job.settings.precision,
        "encoder": {"path": job.settings.model_dir, "digest": job.encoder_digest},
        **{name: plan[name] for name in ("settings", "reading", "files")},
        "shards": shards,
    }
    atomic_write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    shutil.rmtree(folder / WORK)
    return manifest
