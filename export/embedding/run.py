"""A whole run: the parts that are left, in several processes, and the manifest at the end."""

import concurrent.futures
import dataclasses
import functools
import json
import multiprocessing
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import (
    atomic_write,
    atomic_write_text,
    hold_lock,
    read_object,
    remove_unfinished,
    report_write_errors,
    sha256,
    write_json,
)
from official_cmlm.common.input_files import is_remote
from official_cmlm.common.text_files import Reading, file_state
from official_cmlm.vectors.embeddings import RANGES_NAME, read_ranges

from . import worker
from .rows import Part, extent, parts
from .worker import WORK, Done, Settings, done_path, ids_name, shard_name

MANIFEST, PLAN, LOCK = "manifest.json", "plan.json", "lock"
# A folder whose plan lacks this mark was not written by this program; nothing in it is replaced.
FORMAT = "official_cmlm/embeddings"
# Precisions of embeddings that need the range of each dimension.
EIGHT_BITS = ("int8", "uint8")
_ADVICE = "pass --overwrite, or name another output"
_OWN = re.compile(
    rf"({MANIFEST}|{PLAN}|{RANGES_NAME}|embeddings-\d{{5,}}\.(npy|parquet)|ids-\d{{5,}}\.jsonl)"
    r"(\.\d+-[0-9a-f]{8}\.tmp)?"
)
_OWN_PART = re.compile(r"\d{5,}\.json(\.\d+-[0-9a-f]{8}\.tmp)?")
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
      beam: flags of Apache Beam, which then embeds in place of processes; None: processes embed.
    """

    paths: Sequence[str]
    reading: Reading
    settings: Settings
    encoder_digest: str
    shard_rows: int = 10_000
    calibration_rows: int = 10_000
    beam: Sequence[str] | None = None

    def parts(self, kinds: dict[str, str] | None = None) -> Iterator[Part]:
        """Yields the input in parts, with the columns of these kinds."""
        return parts(self.paths, self.reading, self.shard_rows, kinds)

    def part_at(self, place: Part, kinds: dict[str, str]) -> Part:
        """Reads the part that has the number and the place of a part without texts."""
        return next(parts(self.paths, self.reading, self.shard_rows, kinds, place))

    def plan(self) -> dict[str, Any]:
        """Returns everything that decides the output's bytes, with each file's size and time."""
        return {
            "format": FORMAT,
            "files": [[path, *file_state(path)] for path in self.paths],
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

    The vectors depend on the job, but neither on kills nor on which process computed a part. Only
    the last bits of ONNX Runtime's vectors may differ from run to run.

    Args:
      job: what is to be done.
      folder: the output; `manifest.json` appears in it when all is there.
      workers: number of processes.
      overwrite: whether to replace what another job has written there.

    Raises:
      UserError: a fault of the input, the folder holds something else, or a process has died.
    """
    _check_apart(job.paths, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / LOCK, f"{folder}: another run writes there"):
        job = _concrete(job, folder, workers)
        plan = _begin(job, folder, overwrite)
        try:
            return _resumed(job, folder, workers, plan)
        except DamagedError:
            if not overwrite:
                raise
        for path in own_files(folder):
            if path.name not in (PLAN, WORK):
                path.unlink()
        (folder / WORK).mkdir(exist_ok=True)
        return _resumed(job, folder, workers, plan)


class DamagedError(UserError):
    """An output that is damaged, so that only `--overwrite` helps."""


def _resumed(job: Job, folder: Path, workers: int, plan: dict[str, Any]) -> Outcome:
    if (folder / MANIFEST).exists():
        try:
            manifest = read_object(folder / MANIFEST, _ADVICE)
        except UserError as error:
            raise DamagedError(error) from None
        if _reopened(job, folder, manifest, plan) == 0:
            return Outcome(manifest, 0, 0.0)
    with report_write_errors(folder, _REMEDY):
        remove_unfinished(folder)
        remove_unfinished(folder / WORK)
        if job.settings.precision in EIGHT_BITS:
            if not (folder / RANGES_NAME).exists():
                _calibrate(job, folder)
            _check_ranges(job, folder)
        by_beam = job.beam is not None
        compute = _compute_by_beam if by_beam else _compute
        entries, computed = compute(job, folder, workers, plan)
        manifest = _finish(job, folder, plan, entries)
    first = min((one.started for one in computed), default=0)
    seconds = max((one.ended for one in computed), default=0) - first
    return Outcome(manifest, sum(one.entry["rows"] for one in computed), seconds)


def _check_apart(paths: Sequence[str], folder: Path) -> None:
    """Raises `UserError` for an input in the folder that is written."""
    place = folder.resolve()
    for path in paths:
        if not is_remote(path) and place in Path(path).resolve().parents:
            raise UserError(f"{path}: an input inside of {folder}, the output; name another output")


def _begin(job: Job, folder: Path, overwrite: bool) -> dict[str, Any]:
    """Prepares the folder for this job; returns the plan with the extent of the input."""
    plan = json.loads(json.dumps(job.plan()))
    found = sorted(path for path in folder.iterdir() if path.name != LOCK)
    if found:
        if not (folder / PLAN).exists():
            names = ", ".join(path.name for path in found[:5])
            raise UserError(f"{folder}: holds other files ({names}); name another output")
        before = read_object(folder / PLAN, "name another output")
        if before.get("format") != FORMAT:
            raise UserError(
                f"{folder / PLAN}: not a plan of embeddings, so nothing here is replaced; name"
                " another output"
            )
        differing = [name for name in plan if plan[name] != before.get(name)]
        kinds = before.get("kinds")
        whole = type(before.get("rows")) is int and isinstance(kinds, dict)
        if not differing and whole:
            if (folder / WORK).is_symlink():
                raise UserError(f"{folder / WORK}: a link, where a folder of this program is to be")
            if not (folder / MANIFEST).exists():
                (folder / WORK).mkdir(exist_ok=True)
            return before
        if not overwrite:
            what = ", ".join(differing) or "extent"
            raise UserError(f"{folder}: was begun with another {what}; {_ADVICE}")
    own = own_files(folder)
    # Faults of the input are met before anything is removed.
    size = extent(job.paths, job.reading)
    plan |= {"rows": size.rows, "kinds": size.kinds}
    for path in own:
        path.rmdir() if path.is_dir() else path.unlink()
    write_json(folder / PLAN, plan)
    (folder / WORK).mkdir(exist_ok=True)
    return plan


def own_files(folder: Path) -> list[Path]:
    """Returns what this program has written in a folder, in the order in which it can be removed.

    The manifest comes first, as it says that the output is complete; the plan comes last, as a
    folder without a plan counts as somebody else's.

    Raises:
      UserError: the folder holds anything else.
    """
    found: list[Path] = []
    foreign: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name == LOCK:
            continue
        if path.name == WORK and path.is_dir() and not path.is_symlink():
            found += sorted(path.iterdir())
            foreign += [f"{WORK}/{p.name}" for p in path.iterdir() if not _is_own(p, _OWN_PART)]
        elif not _is_own(path, _OWN):
            foreign.append(path.name)
        found.append(path)
    if foreign:
        raise UserError(
            f"{folder}: holds {list_names(foreign, 5)}, which this program has not written; move "
            "that away, or name another output"
        )
    ends = {MANIFEST: 0, PLAN: 2}
    return sorted(found, key=lambda path: ends.get(path.name, 1))


def _is_own(path: Path, names: re.Pattern) -> bool:
    is_file = path.is_file() and not path.is_symlink()
    return is_file and names.fullmatch(path.name) is not None


def _concrete(job: Job, folder: Path, workers: int) -> Job:
    """Returns the job with a fixed backend and graph, the same for all of its processes."""
    from official_cmlm.encoding.backends.onnx import fastest_int8, has_graphs

    def chosen(backend: str) -> Job:
        arithmetic = job.settings.arithmetic
        if (backend, arithmetic) == ("onnx", "int8"):
            arithmetic = fastest_int8()
        settings = dataclasses.replace(job.settings, backend=backend, arithmetic=arithmetic)
        return dataclasses.replace(job, settings=settings)

    if job.settings.backend != "auto":
        return chosen(job.settings.backend)
    if has_graphs(Path(job.settings.model_dir)):
        return chosen("onnx")
    if (folder / PLAN).exists():
        # A run that is resumed keeps the backend that it began with, whichever is faster now.
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
    """Returns processes, each with its share of the cores: one of `shares`, default `workers`."""
    # They are spawned: a fork would lack the threads of the libraries that compute.
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


def _compute(
    job: Job, folder: Path, workers: int, plan: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[Done]]:
    """Embeds the parts that are not there yet; returns all parts' entries, and the new parts."""
    entries: dict[int, dict[str, Any]] = {}
    done: list[Done] = []
    pending: dict[concurrent.futures.Future, Part] = {}
    with (
        progress.bar(plan["rows"], "text", "embedding") as bar,
        _pool(job, folder, workers) as pool,
    ):

        def wait(most: int) -> None:
            """Waits until at most `most` parts are being computed."""
            while len(pending) > most:
                ended, _ = concurrent.futures.wait(
                    pending, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ended:
                    part = pending.pop(future)
                    done.append(_result(future, folder))
                    entries[part.number] = done[-1].entry
                    bar.update(len(part.texts))

        try:
            for part in job.parts(plan["kinds"]):
                if (entry := _finished(job, folder, part)) is not None:
                    entries[part.number] = entry
                    # The time left counts unfinished parts only.
                    bar.initial += len(part.texts)
                    bar.update(len(part.texts))
                    continue
                # One part more than are computed is read, so that no process waits for the reader.
                pending[pool.submit(worker.embed, part)] = part
                wait(workers)
            wait(0)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return [entries[number] for number in sorted(entries)], done


def _compute_by_beam(
    job: Job, folder: Path, workers: int, plan: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[Done]]:
    """Embeds parts as `_compute` does, but by a pipeline, which has its own number of workers."""
    check_extra("beam", "apache_beam")
    from . import beam

    del workers
    started = time.monotonic()
    entries: dict[int, dict[str, Any]] = {}
    places: list[Part] = []
    for part in job.parts(plan["kinds"]):
        if (entry := _finished(job, folder, part)) is None:
            places.append(beam.place_of(part))
        else:
            entries[part.number] = entry
    done: list[Done] = []
    if places:
        handler = beam.EncoderHandler(job.settings, folder, job.encoder_digest)
        read = functools.partial(job.part_at, kinds=plan["kinds"])
        beam.compute(read, handler, places, job.beam or ())
        for place in places:
            entry = read_object(done_path(folder, place.number), _ADVICE)
            if fault := _fault(job, entry, place.number, place.first_row):
                raise UserError(f"{folder}: part {place.number} is damaged at {fault}; {_ADVICE}")
            entries[place.number] = entry
            done.append(Done(entry, started, time.monotonic()))
    return [entries[number] for number in sorted(entries)], done


def _finished(job: Job, folder: Path, part: Part) -> dict[str, Any] | None:
    """Returns a part's description if it was finished and its files are as they were written."""
    path = done_path(folder, part.number)
    if not path.exists():
        return None
    try:
        entry = read_object(path)
    except UserError:
        entry = {}
    shape = entry.get("shape")
    good = (
        _fault(job, entry, part.number, part.first_row) is None
        and entry["rows"] == len(part.texts)
        and isinstance(shape, list)
        and [type(size) for size in shape] == [int, int]
        and shape[0] == len(part.texts)
        and isinstance(entry.get("dtype"), str)
    )
    if not good:
        cli.warn(f"{path}: damaged; its rows are embedded again")
    return entry if good and _is_whole(folder, entry, hashed=True) else None


def _fault(job: Job, entry: Any, number: int, first_row: int) -> str | None:
    """Returns the field of a shard's description that is not as this job writes it, or None."""
    if not isinstance(entry, dict):
        return "entry"
    form = job.settings.output_format
    expected: dict[str, Any] = {"file": shard_name(number, form), "first_row": first_row}
    counts = ("rows", "bytes", "cut_texts", "cut_tokens", "mended_texts")
    kinds = dict.fromkeys(counts, int) | {"sha256": str}
    if job.reading.id_column and form == "npy":
        expected["ids"] = ids_name(number)
        kinds |= {"ids_bytes": int, "ids_sha256": str}
    if job.settings.precision in EIGHT_BITS:
        kinds["ranges_sha256"] = str
    for name, value in expected.items():
        if type(entry.get(name)) is not type(value) or entry[name] != value:
            return name
    for name, kind in kinds.items():
        value = entry.get(name)
        if type(value) is not kind or (kind is int and value < (name == "rows")):
            return name
    return None


def _is_whole(folder: Path, entry: dict[str, Any], hashed: bool = False) -> bool:
    """Returns whether a shard's files have the recorded sizes and, if `hashed`, checksums."""
    for kind in ("", "ids_"):
        name = entry.get("ids" if kind else "file")
        if name is None:
            continue
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry[f"{kind}bytes"]:
            return False
        if hashed and sha256(path) != entry[f"{kind}sha256"]:
            return False
    return True


def _reopened(job: Job, folder: Path, manifest: dict[str, Any], plan: dict[str, Any]) -> int:
    """Counts the missing or damaged shards of a finished run; any makes the run unfinished.

    Their sizes are compared, not their bytes, of which there may be terabytes.
    """
    shards = manifest.get("shards")
    fault, row = None, 0
    if not isinstance(shards, list):
        fault, shards = "shards", []
    for number, shard in enumerate(shards):
        fault = fault or _fault(job, shard, number, row)
        row += 0 if fault else shard["rows"]
    form = {"columns": int, "dtype": str, "rows": int}
    fault = fault or next((k for k, t in form.items() if type(manifest.get(k)) is not t), None)
    if fault is None and not row == manifest["rows"] == plan["rows"]:
        fault = "rows"
    fault = fault or next((k for k, v in _about(job, plan).items() if manifest.get(k) != v), None)
    if fault is not None:
        raise DamagedError(f"{folder / MANIFEST}: damaged at {fault}; {_ADVICE}")
    _check_ranges(job, folder, shards)
    whole = {n: shard for n, shard in enumerate(shards) if _is_whole(folder, shard)}
    if whole and job.settings.output_format == "npy":
        import numpy as np

        path = folder / next(iter(whole.values()))["file"]
        try:
            first = np.load(path, mmap_mode="r")
        except (ValueError, EOFError) as error:
            raise DamagedError(f"{path}: damaged ({error!s:.160}); {_ADVICE}") from None
        if (first.shape[1:], str(first.dtype)) != ((manifest["columns"],), manifest["dtype"]):
            raise DamagedError(f"{folder / MANIFEST}: damaged at columns or dtype; {_ADVICE}")
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
    else:
        # A run that was killed at its very end has left the folder of work.
        _remove_work(folder)
    return lost


def _check_ranges(job: Job, folder: Path, shards: Sequence[dict[str, Any]] = ()) -> None:
    """Raises `DamagedError` unless the stored ranges are those that shards were written with."""
    if job.settings.precision not in EIGHT_BITS:
        return
    path = folder / RANGES_NAME
    try:
        ranges = read_ranges(folder)
    except UserError:
        ranges = None
    if ranges is None or {one["ranges_sha256"] for one in shards} - {sha256(path)}:
        raise DamagedError(f"{path}: not the ranges that the shards were written with; {_ADVICE}")


def _remove_work(folder: Path) -> None:
    if (folder / WORK).is_dir() and not (folder / WORK).is_symlink():
        for path in (folder / WORK).iterdir():
            if _is_own(path, _OWN_PART):
                path.unlink()
        if not any((folder / WORK).iterdir()):
            (folder / WORK).rmdir()


def _finish(
    job: Job, folder: Path, plan: dict[str, Any], shards: list[dict[str, Any]]
) -> dict[str, Any]:
    """Writes and returns the manifest, which says that the output is complete."""
    for path, *state in plan["files"]:
        if not _is_unchanged(path, state):
            raise UserError(f"{path}: has changed since the run began; pass --overwrite")
    shapes = {(shard["shape"][1], shard["dtype"]) for shard in shards}
    if len(shapes) > 1 or sum(shard["rows"] for shard in shards) != plan["rows"]:
        raise UserError(f"{folder}: its files have several shapes; {_ADVICE}")
    _check_ranges(job, folder, shards)
    (columns, dtype), *_ = shapes
    shards = [{k: v for k, v in one.items() if k not in ("shape", "dtype")} for one in shards]
    about = _about(job, plan)
    manifest = {
        "format": about.pop("format"),
        "rows": plan["rows"],
        "columns": columns,
        "dtype": dtype,
        **about,
        "shards": shards,
    }
    write_json(folder / MANIFEST, manifest)
    _remove_work(folder)
    return manifest


def _about(job: Job, plan: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of the manifest that is known before the first text is embedded."""
    return {
        "format": FORMAT,
        "precision": job.settings.precision,
        "encoder": {"path": job.settings.model_dir, "digest": job.encoder_digest},
        **{name: plan[name] for name in ("settings", "reading", "files")},
    }


def _is_unchanged(path: str, state: list[Any]) -> bool:
    try:
        return [*file_state(path)] == state
    except (OSError, UserError):
        return False


def gather(folder: Path, manifest: dict[str, Any], target: Path, overwrite: bool) -> None:
    """Writes the rows of a finished run as one file, and removes the run's folder.

    A Parquet file has the manifest, and the ranges of 8-bit embeddings, in its metadata.

    Args:
      folder: the output of `run`.
      manifest: its manifest.
      target: file to write, `.npy` or `.parquet` as the shards; complete or absent.
      overwrite: whether an existing file is replaced.

    Raises:
      UserError: the file has appeared since the run began, or a shard is damaged.
    """
    import numpy as np

    paths = [folder / shard["file"] for shard in manifest["shards"]]
    for path, shard in zip(paths, manifest["shards"]):
        if not _is_whole(folder, shard, hashed=True):
            raise UserError(f"{path}: damaged; delete it, and the same command writes it again")
    with (
        hold_lock(folder / LOCK, f"{folder}: another run writes there"),
        report_write_errors(target, _REMEDY),
    ):
        with atomic_write(target, replace=overwrite) as file:
            if target.suffix == ".npy":
                form = {"descr": np.dtype(manifest["dtype"]).str, "fortran_order": False}
                shape = (manifest["rows"], manifest["columns"])
                np.lib.format.write_array_header_1_0(file, form | {"shape": shape})
                for path in paths:
                    file.write(np.load(path, allow_pickle=False).tobytes())
            else:
                _gather_parquet(folder, manifest, paths, file)
        for path in own_files(folder):
            path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


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
