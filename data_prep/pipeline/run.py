"""A whole run: a job whose parts are phases of elements, and the output under its final name."""

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from official_cmlm.common import progress
from official_cmlm.common.beam_workers import BeamWorkers
from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import read_object, replace_folder
from official_cmlm.common.input_files import is_remote, join_directory
from official_cmlm.common.job import Job
from official_cmlm.common.worker_processes import Processes
from official_cmlm.records.documents import KIND
from official_cmlm.records.manifest import FILE_NAME as MANIFEST
from official_cmlm.records.manifest import Manifest, Shard, load_manifest
from official_cmlm.tokenization import Vocabulary

from ..counts import Counts
from ..output.folder import (
    OWN_FILES,
    PLAN_FILE,
    check_place,
    leave_out_own,
    lock_path,
    shard_name,
)
from ..output.report import Summary, exit_status, write_report
from ..readers import TextFile
from ..readers.tfds import PREFIX
from ..stages.exclusion import Exclusion
from .phases import WORK, Context, run_phase
from .plan import Options, Plan, may_change

_ADVICE = "give the same command with fewer --workers, or start again with a smaller --element_mb"


def write_documents(
    files: Sequence[TextFile],
    options: Options,
    vocabulary: Vocabulary,
    output: str,
    workers: int = 1,
    overwrite: bool = False,
    exclude: Sequence[str] = (),
    beam: BeamWorkers | None = None,
) -> int:
    """Makes documents records of text: the work of `create_documents` and `prepare`.

    The output depends on the arguments but not on the workers. An unfinished run, even one that was
    killed, is resumed. If the records exist already, and were made by the same plan, nothing is
    done. `exclude` are files of evaluation sentences, which are left out. `workers` are processes;
    one is this process. `beam` computes in their place.

    Returns:
      The exit status, as `report.exit_status` gives it.

    Raises:
      UserError: a fault of the input, no usable text, a full disk, the output may not be written or
        was begun with another plan.
    """
    # Some packages are needed only at the end, but a missing one is reported before the work.
    check_extra("data", "sentencex", "zstandard")
    summary = Summary()
    folder, partial = check_place(output)
    paths = set(leave_out_own(folder, [file.path for file in files]))
    files = [file for file in files if file.path in paths]
    plan = Plan.of(files, _with_directory(options, files), vocabulary.hash, exclude)
    job = make_job(plan, partial, lock_path(folder))
    if not overwrite and (manifest := _find_finished(folder, plan, job)):
        print(
            f"{one_line(output)}: complete already, made from the same input by the same"
            f" options: {manifest.documents} documents; --overwrite makes it again"
        )
        return exit_status(manifest.counters)
    check_place(folder, overwrite=overwrite)
    with job:
        # Another run may just have completed it.
        check_place(folder, overwrite=overwrite)
        counts = Counts()
        if job.manifest is None:
            begin(job, plan, vocabulary)
            results = compute(job, plan, workers, beam)
            counts = _finish(job, plan, vocabulary, results)
        shutil.rmtree(job.folder / WORK, ignore_errors=True)
        replace_folder(partial, folder)
    return summary.show(output, load_manifest(folder), counts, len(files), job.resumed)


def _find_finished(folder: Path, plan: Plan, job: Job) -> Manifest | None:
    """Returns the manifest of a finished folder if this job surely made it, of these files.

    A file that was written after the plan was saved is not the one that was read, even if its size
    is the same. The time of remote files and data sets is unknown.
    """
    path = folder / PLAN_FILE
    if not path.exists() or not (folder / MANIFEST).exists():
        return None
    try:
        if read_object(path) != job.plan:
            return None
        manifest = load_manifest(folder, KIND)
    except UserError:
        # The folder is of another release, or damaged.
        return None
    saved = path.stat().st_mtime_ns
    for item in plan.inputs:
        if item.path.startswith(PREFIX) or is_remote(item.path):
            return None
        place = join_directory(item.path, plan.options.reading.directory)
        if os.stat(place).st_mtime_ns >= saved:
            return None
    return manifest


def _with_directory(options: Options, files: Sequence[TextFile]) -> Options:
    """Adds the current directory if paths are relative, as a worker may start elsewhere.

    Where all paths are absolute, the same command may be resumed from any directory.
    """
    paths = [file.path for file in files]
    local = [path for path in paths if not path.startswith(PREFIX) and not is_remote(path)]
    if all(map(os.path.isabs, local)):
        return options
    reading = dataclasses.replace(options.reading, directory=os.getcwd())
    return dataclasses.replace(options, reading=reading)


def make_job(plan: Plan, partial: Path, lock: Path | None = None) -> Job:
    """Returns the job of a plan in an unfinished folder; see `Job` for the lock."""
    return Job(
        partial,
        plan.to_json(),
        own=OWN_FILES,
        may_change=may_change,
        remedy=f"delete {partial} to start again",
        lock=lock,
        plan_name=PLAN_FILE,
        manifest_name=MANIFEST,
    )


def begin(job: Job, plan: Plan, vocabulary: Vocabulary) -> None:
    """Writes what all parts read, before the first of them is computed."""
    if job.is_begun:
        return
    (job.folder / WORK).mkdir(exist_ok=True)
    if plan.exclude:
        Exclusion.of(plan.exclude, plan.options.reading).save(job.folder / WORK)
    vocabulary.save(job.folder)


def compute(
    job: Job, plan: Plan, workers: int = 1, beam: BeamWorkers | None = None
) -> list[dict[str, Any]]:
    """Computes the parts that are left, phase after phase; returns the results of all parts."""
    arguments = {"folder": job.folder, "plan": plan}
    is_here = workers == 1 and beam is None
    results: list[dict[str, Any]] = []
    with Processes(0 if is_here else workers, Context, arguments, _ADVICE) as processes:
        for phase, parts in plan.list_phases():
            in_bytes = phase in ("read", "write")
            unit, total = "B" if in_bytes else "part", sum(part.size for part in parts)
            with progress.bar(total, unit, phase, unit_scale=in_bytes) as bar:
                if beam is None:
                    done = job.compute(run_phase, parts, processes, bar)
                else:
                    make = {"make": Context, "arguments": arguments}
                    done = beam.compute(job, run_phase, parts, bar, **make)
            results += done.values()
    return results


def _finish(
    job: Job, plan: Plan, vocabulary: Vocabulary, results: Sequence[dict[str, Any]]
) -> Counts:
    """Adds up the results, and writes the report and the manifest."""
    total, shards = Counts(), []
    for result in results:
        total.merge(Counts.from_json(result["counts"]))
        shards += [Shard(**shard) for shard in result["shards"]]
    try:
        total.raise_if_all_failed(len(plan.inputs))
        if not total.sentences:
            raise UserError(
                f"{','.join(item.path for item in plan.inputs[:3])}: no usable sentence in"
                f" {len(plan.inputs)} file(s); check that they hold running text, --reader, --lines"
                ", --min_sentences and --min_tokens, and what the stages drop"
            )
    except UserError:
        job.discard()
        raise
    if plan.exclude:
        total.add_exclusion_faults(Exclusion.load(job.folder / WORK).faults)
    shards = _number_shards(shards, job.folder)
    manifest = total.manifest(vocabulary, shards, plan.options.records.keep_text)
    write_report(manifest, job.folder)
    job.finish(manifest.to_json())
    return total


def _number_shards(shards: Sequence[Shard], partial: Path) -> list[Shard]:
    """Moves the shards of all elements out of the work folder, numbered in order.

    A run that was killed here finds some of them moved already.
    """
    numbered = []
    for number, shard in enumerate(shards):
        name = shard_name(KIND, number)
        if (partial / WORK / shard.name).exists():
            (partial / WORK / shard.name).replace(partial / name)
        numbered.append(dataclasses.replace(shard, name=name))
    return numbered
