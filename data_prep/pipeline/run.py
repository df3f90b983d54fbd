"""A whole run: start or resume, the phases in order, and the output under its final name."""

import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import shutil
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from official_cmlm import progress
from official_cmlm.errors import UserError, one_line
from official_cmlm.extras import check_extra
from official_cmlm.files import (
    atomic_write_text,
    remove_unfinished,
    replace_folder,
    report_write_errors,
)
from official_cmlm.input_files import is_remote, located
from official_cmlm.records.documents import KIND
from official_cmlm.records.manifest import FILE_NAME as MANIFEST
from official_cmlm.records.manifest import Manifest, Shard, load_manifest
from official_cmlm.tokenization import Vocabulary
from official_cmlm.worker_processes import end_with_parent

from ..counts import Counts
from ..output.folder import (
    PLAN_FILE,
    check_place,
    discard_partial,
    locked_output,
    output_folder,
    outside_of,
    shard_name,
)
from ..output.report import Summary, exit_status, write_report
from ..readers import TextFile
from ..readers.tfds import PREFIX
from ..stages.exclusion import Exclusion
from .phases import REMEDY, Context, load_result, run_phase
from .plan import WORK, Options, Plan, result_path

SAMPLES = "dropped.jsonl"


class PhaseProgress:
    """The progress bar of a phase, moved within an element where the runner sees that far."""

    def __init__(self, bar: Any, sizes: Sequence[int]) -> None:
        """Shows nothing yet; `sizes[number]` is the part of the bar of a number."""
        self._bar, self._sizes = bar, sizes
        self._shown = [0] * len(sizes)

    def advance(self, number: int, amount: int) -> None:
        """Shows the amount of a number that is done so far."""
        amount = min(amount, self._sizes[number])
        self._bar.update(amount - self._shown[number])
        self._shown[number] = amount

    def done(self, number: int) -> None:
        """Shows that a number is done."""
        self.advance(number, self._sizes[number])


class Runner(Protocol):
    """Decides where and when phases are computed."""

    def __call__(
        self,
        phase: str,
        folder: str,
        digest: str,
        numbers: Sequence[int],
        progress: PhaseProgress,
    ) -> None:
        """Computes a phase for all numbers.

        Args:
          phase, folder, digest: as for `phases.run_phase`.
          numbers: elements, partitions or groups.
          progress: told about each that is done.

        Raises:
          UserError: as a phase does, or a worker has died.
        """


class LocalRunner:
    """A loop, or with several workers a pool of processes, which must be closed: a context."""

    def __init__(self, workers: int = 1) -> None:
        """Starts nothing yet; `workers` is the number of processes."""
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        if workers > 1:
            # Spawned, not forked: a fork would lack TensorFlow's threads.
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(
                workers, context, initializer=end_with_parent
            )

    def __enter__(self) -> "LocalRunner":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def __call__(
        self,
        phase: str,
        folder: str,
        digest: str,
        numbers: Sequence[int],
        progress: PhaseProgress,
    ) -> None:
        """Computes a phase for all numbers; see `Runner`."""
        if self._pool is None:
            for number in numbers:
                run_phase(
                    phase, folder, digest, number, functools.partial(progress.advance, number)
                )
                progress.done(number)
            return
        futures = {self._pool.submit(run_phase, phase, folder, digest, n): n for n in numbers}
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                progress.done(futures[future])
        except BrokenProcessPool:
            raise UserError(
                f"{folder}: a worker has died, perhaps out of memory; give the same command"
                " again to resume, with fewer --workers or a smaller --element_mb in a new folder"
            ) from None
        except Exception:
            # Running phases still write: wait for them before anything is removed or reported.
            for future in futures:
                future.cancel()
            concurrent.futures.wait(futures)
            raise


def write_documents(
    files: Sequence[TextFile],
    options: Options,
    vocabulary: Vocabulary,
    output: str,
    runner: Runner,
    overwrite: bool = False,
    exclude: Sequence[str] = (),
) -> int:
    """Makes documents records of text: the work of `create_documents` and `prepare`.

    The output depends on the arguments but not on the runner. An unfinished run, even one that was
    killed, is resumed.

    Args:
      files: the text.
      options: decide what happens to it.
      vocabulary: decides the token ids.
      output: the folder to write.
      runner: computes the phases.
      overwrite: whether to replace existing records.
      exclude: files of evaluation sentences, which are left out.

    Returns:
      The exit status, as `report.exit_status` gives it. If the records exist already, and were made
      by the same plan, nothing is done, and the status is the one of that run.

    Raises:
      UserError: as `run_plan` does, or the output may not be written.
    """
    # They are needed at the end, when it would be late to say that one is missing.
    check_extra("data", "matplotlib", "sentencex", "zstandard")
    summary = Summary()
    folder, partial = check_place(output)
    kept = set(outside_of(folder, [file.path for file in files]))
    files = [file for file in files if file.path in kept]
    plan = Plan.of(files, _with_directory(options, files), vocabulary.hash, exclude)
    with locked_output(folder):
        # Checked under the lock, as another run may just have completed it.
        if not overwrite and (done := _finished(folder, plan)):
            print(
                f"{one_line(output)}: complete already, made from the same input by the same"
                f" options: {done.documents} documents; --overwrite makes it again"
            )
            return exit_status(done.counters)
        output_folder(folder, overwrite)
        resumed = (partial / PLAN_FILE).exists()
        manifest, counts = _run_plan(plan, vocabulary, folder, partial, runner)
    summary.show(output, manifest, counts, len(files), resumed)
    return exit_status(manifest.counters)


def _finished(folder: Path, plan: Plan) -> Manifest | None:
    """Returns the manifest of a finished folder if this plan surely made it, of these files.

    A file that was written after the plan was saved is not the one that was read, even if its size
    is the same. The time of remote files and data sets is unknown.
    """
    path = folder / PLAN_FILE
    if not path.exists() or not (folder / MANIFEST).exists():
        return None
    try:
        if Plan.load(folder) != plan:
            return None
        manifest = load_manifest(folder, KIND)
    except UserError:
        # The folder is of another release, or damaged.
        return None
    saved = path.stat().st_mtime_ns
    for given, *_ in plan.inputs:
        if given.startswith(PREFIX) or is_remote(given):
            return None
        if os.stat(located(given, plan.options.reading.directory)).st_mtime_ns >= saved:
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


def _run_plan(
    plan: Plan, vocabulary: Vocabulary, output: Path, partial: Path, runner: Runner
) -> tuple[Manifest, Counts]:
    """Computes the rest of a plan, and renames the result to its final name.

    Args:
      plan: the plan.
      vocabulary: its vocabulary.
      output: the folder to make; existing records in it are replaced at the end.
      partial: its name while it is not complete; a stopped run is resumed there.
      runner: computes the phases.

    Returns:
      The manifest of the records, and the counts, which are zero if only the rename was missing.

    Raises:
      UserError: a fault of the input, no usable text, a full disk, or `partial` was begun with
        another plan.
    """
    with report_write_errors(partial, REMEDY):
        begin(plan, vocabulary, partial)
        try:
            for phase, count in plan.phases():
                compute(plan, partial, runner, phase, count)
        except UserError:
            if not _has_results(partial):
                shutil.rmtree(partial, ignore_errors=True)
            raise
        # A run that was killed while it wrote the plan leaves an unfinished file.
        remove_unfinished(partial)
        counts = Counts()
        if not (partial / MANIFEST).exists():
            counts = _finish(plan, vocabulary, partial)
        shutil.rmtree(partial / WORK, ignore_errors=True)
        replace_folder(partial, output)
    return load_manifest(output), counts


def begin(plan: Plan, vocabulary: Vocabulary, partial: Path) -> None:
    """Makes the unfinished folder, or checks that the existing one can be resumed."""
    if (partial / PLAN_FILE).exists() and ((partial / MANIFEST).exists() or _has_results(partial)):
        before = Plan.load(partial)
        plan.check_can_resume(before, partial)
        if plan != before:
            plan.save(partial)
        return
    # No result is lost if the folder is begun again.
    exclusion = Exclusion.of(plan.exclude, plan.options.reading) if plan.exclude else None
    discard_partial(partial)
    (partial / WORK).mkdir(parents=True)
    if exclusion:
        exclusion.save(partial / WORK)
    vocabulary.save(partial)
    plan.save(partial)


def _has_results(partial: Path) -> bool:
    return any((partial / WORK).glob("*.json"))


def compute(plan: Plan, partial: Path, runner: Runner, phase: str, count: int) -> None:
    """Computes the rest of a phase, with a progress bar."""
    if (partial / MANIFEST).exists():
        return
    left = [n for n in range(count) if not result_path(partial, phase, n).exists()]
    sizes = plan.sizes(phase)
    in_bytes = phase in ("read", "write")
    done = sum(sizes) - sum(sizes[number] for number in left)
    with progress.bar(
        sum(sizes), "B" if in_bytes else "part", phase, initial=done, unit_scale=in_bytes
    ) as bar:
        runner(phase, str(partial), plan.digest, left, PhaseProgress(bar, sizes))


def _finish(plan: Plan, vocabulary: Vocabulary, partial: Path) -> Counts:
    """Adds up the results, and writes the reports and the manifest."""
    total, shards = Context(partial, plan).new_counts(), []
    for phase, count in plan.phases():
        if phase in ("read", "write"):
            for number in range(count):
                counts, written = load_result(result_path(partial, phase, number))
                total.merge(counts)
                shards += written
    try:
        total.raise_if_all_failed(len(plan.inputs))
        if not total.sentences:
            raise UserError(
                f"{','.join(path for path, *_ in plan.inputs[:3])}: no usable sentence in"
                f" {len(plan.inputs)} file(s); check that they hold running text, --reader, --lines"
                ", --min_sentences and --min_tokens, and what the stages drop (prepare"
                " --sample_dropped shows examples)"
            )
    except UserError:
        shutil.rmtree(partial)
        raise
    if plan.exclude:
        total.add_exclusion_faults(Exclusion.load(partial / WORK).faults)
    shards = _number_shards(shards, partial)
    manifest = total.manifest(vocabulary, shards, plan.options.records.keep_text)
    write_report(manifest, partial)
    if plan.options.sample_dropped:
        lines = "".join(f"{line}\n" for line in total.counters.samples.lines())
        atomic_write_text(partial / SAMPLES, lines)
    # It is written last: with it the folder is complete.
    manifest.save(partial)
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
