"""A whole run: start or resume, the phases in order, and the output under its final name."""

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from official_cmlm import progress
from official_cmlm.errors import UserError, one_line
from official_cmlm.extras import check_extra
from official_cmlm.files import atomic_write, remove_unfinished, replace_folder, report_write_errors
from official_cmlm.input_files import is_remote, located
from official_cmlm.records.documents import KIND
from official_cmlm.records.manifest import FILE_NAME as MANIFEST
from official_cmlm.records.manifest import Manifest, Shard, load_manifest
from official_cmlm.tokenization import Vocabulary

from ..output.balance import write_report
from ..output.folder import (
    check_place,
    discard_partial,
    locked_output,
    output_folder,
    outside_of,
    shard_name,
)
from ..output.summary import Summary, exit_status
from ..readers import ReadReport, TextFile
from ..readers.tfds import PREFIX
from ..stages.exclusion import Exclusion
from .options import Options
from .phases import REMEDY
from .plan import FILE_NAME, WORK, Plan, result_path
from .results import Result

SAMPLES = "dropped.jsonl"


class PhaseProgress:
    """The progress bar of a phase, moved within an element where the runner sees that far."""

    def __init__(self, bar: Any, sizes: Sequence[int]) -> None:
        """`sizes[number]` is what a number adds to the bar."""
        self._bar, self._sizes = bar, sizes
        self._shown = [0] * len(sizes)

    def advance(self, number: int, amount: int) -> None:
        """Shows how much of a number is done so far."""
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
          UserError: what a phase raises, or a worker has died.
        """


def write_documents(
    files: Sequence[TextFile],
    options: Options,
    vocabulary: Vocabulary,
    output: str,
    runner: Runner,
    overwrite: bool = False,
    exclude: Sequence[str] = (),
) -> int:
    """Makes documents records of text: the whole of `create_documents` and `prepare`.

    What is written depends on the arguments but not on the runner. An unfinished run, even one
    that was killed, is resumed.

    Args:
      files: the text.
      options: what happens to it.
      vocabulary: decides the token ids.
      output: the folder to write.
      runner: computes the phases.
      overwrite: whether to replace records that are there already.
      exclude: files of evaluation sentences, which are left out.

    Returns:
      The exit status, as `summary.exit_status` gives it. Of records that are there already, and
      were made by the same plan, also that of then; nothing is done.

    Raises:
      UserError: as `run_plan` does, or the output may not be written.
    """
    # Needed at the end; to be told of then would be late.
    check_extra("data", "matplotlib", "sentencex", "zstandard")
    summary = Summary()
    folder, partial = check_place(output)
    kept = set(outside_of(folder, [file.path for file in files]))
    files = [file for file in files if file.path in kept]
    plan = Plan.of(files, _with_directory(options, files), vocabulary.hash, exclude)
    with locked_output(folder):
        # Behind the lock, as another run may just have completed it.
        if not overwrite and (done := finished(folder, plan)):
            print(
                f"{one_line(output)}: complete already, made from the same input by the same"
                f" options: {done.documents} documents; --overwrite makes it again"
            )
            return exit_status(done.counters)
        output_folder(folder, overwrite)
        resumed = (partial / FILE_NAME).exists()
        manifest, report = run_plan(plan, vocabulary, folder, partial, runner)
    summary.show(output, manifest, report, len(files), resumed)
    return exit_status(manifest.counters)


def finished(folder: Path, plan: Plan) -> Manifest | None:
    """The manifest of a finished folder if it was surely made by this plan, of these files.

    A file that was written after the plan was saved is not the one that was read, even if its size
    is the same. Of remote files and data sets that is not known.
    """
    path = folder / FILE_NAME
    if not path.exists() or not (folder / MANIFEST).exists():
        return None
    try:
        if Plan.load(folder) != plan:
            return None
        manifest = load_manifest(folder, KIND)
    except UserError:
        # Of another release, or damaged.
        return None
    saved = path.stat().st_mtime_ns
    for given, *_ in plan.inputs:
        if given.startswith(PREFIX) or is_remote(given):
            return None
        if os.stat(located(given, plan.options.reading.directory)).st_mtime_ns >= saved:
            return None
    return manifest


def _with_directory(options: Options, files: Sequence[TextFile]) -> Options:
    """The options with the current directory, if paths are relative: a worker may start elsewhere.

    Where all paths are absolute, the same command may be resumed from any directory.
    """
    paths = [file.path for file in files]
    local = [path for path in paths if not path.startswith(PREFIX) and not is_remote(path)]
    if all(map(os.path.isabs, local)):
        return options
    reading = dataclasses.replace(options.reading, directory=os.getcwd())
    return dataclasses.replace(options, reading=reading)


def run_plan(
    plan: Plan, vocabulary: Vocabulary, output: Path, partial: Path, runner: Runner
) -> tuple[Manifest, ReadReport]:
    """Computes a plan, or what is left of it, and renames the result to its final name.

    Args:
      plan: what is to be done.
      vocabulary: that of the plan.
      output: the folder to make; existing records in it are replaced at the end.
      partial: its name while it is not complete; a stopped run is resumed there.
      runner: computes the phases.

    Returns:
      What was written, and what was read; the report is empty if only the rename was missing.

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
        # Left by a run that was killed while it wrote the plan.
        remove_unfinished(partial)
        report = ReadReport()
        if not (partial / MANIFEST).exists():
            report = _finish(plan, vocabulary, partial)
        shutil.rmtree(partial / WORK, ignore_errors=True)
        replace_folder(partial, output)
    return load_manifest(output), report


def begin(plan: Plan, vocabulary: Vocabulary, partial: Path) -> None:
    """Makes the unfinished folder, or checks that the existing one can be resumed."""
    if (partial / FILE_NAME).exists() and ((partial / MANIFEST).exists() or _has_results(partial)):
        before = Plan.load(partial)
        plan.check_can_resume(before, partial)
        if plan != before:
            plan.save(partial)
        return
    # There is no result to keep.
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
    """Computes what is left of a phase, with a progress bar."""
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


def _finish(plan: Plan, vocabulary: Vocabulary, partial: Path) -> ReadReport:
    total = Result.empty(plan.options.sample_dropped)
    for phase, count in plan.phases():
        if phase in ("read", "write"):
            for number in range(count):
                total.merge(Result.load(result_path(partial, phase, number)))
    try:
        total.report.raise_if_all_failed(len(plan.inputs))
        if not total.statistics.sentences:
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
        total.report.exclusion_faults += Exclusion.load(partial / WORK).faults
    total.statistics.counters.update(total.report.counters())
    shards = _number_shards(total.shards, partial)
    manifest = total.statistics.manifest(vocabulary, shards, plan.options.records.keep_text)
    write_report(manifest, partial)
    if plan.options.sample_dropped:
        lines = "".join(f"{line}\n" for line in total.samples.lines())
        with atomic_write(partial / SAMPLES) as file:
            file.write(lines.encode("utf-8", "replace"))
    # The last: with it the folder is complete.
    manifest.save(partial)
    return total.report


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
