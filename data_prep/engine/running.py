"""A whole run: begin or go on, phases, and the end, when the output gets its name."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from data_prep.balance import write_report
from data_prep.engine import excluding
from data_prep.engine.atomic import naming_a_full_disk, remove_unfinished
from data_prep.engine.plan import FILE_NAME, WORK, Plan, result_path
from data_prep.engine.results import Result
from data_prep.readers import ReadReport
from data_prep.stages.exclusion import Exclusion
from official_cmlm import progress
from official_cmlm.errors import UserError
from official_cmlm.files import replace_folder
from official_cmlm.records.manifest import FILE_NAME as MANIFEST
from official_cmlm.records.manifest import Manifest, load_manifest
from official_cmlm.tokenization import Vocabulary

SAMPLES = "dropped.jsonl"


class Runner(Protocol):
    """Decides where and when phases are computed."""

    def __call__(
        self,
        phase: str,
        folder: str,
        digest: str,
        numbers: Sequence[int],
        done: Callable[[int], object],
    ) -> None:
        """Computes a phase for all numbers; see `local.LocalRunner`."""


def prepare(
    plan: Plan, vocabulary: Vocabulary, output: Path, partial: Path, runner: Runner
) -> tuple[Manifest, ReadReport]:
    """Does what is planned, or what is left of it, and puts the output under its name.

    Args:
      plan: what is to be done.
      vocabulary: that of the plan.
      output: the folder to make; records in it give way when all is done.
      partial: its name while it is not complete; where a run was stopped it goes on.
      runner: computes the phases.

    Returns:
      What was written, and what was read; the report is empty where only the name was missing.

    Raises:
      UserError: a fault of the input, no usable text, a full disk, or what is there was begun
        with another plan.
    """
    with naming_a_full_disk(partial):
        begin(plan, vocabulary, partial)
        try:
            for phase, count in plan.phases():
                compute(plan, partial, runner, phase, count)
        except UserError:
            if not _has_results(partial):
                shutil.rmtree(partial, ignore_errors=True)
            raise
        # A run that was killed while it wrote the plan has left it here.
        remove_unfinished(partial)
        report = ReadReport()
        if not (partial / MANIFEST).exists():
            report = _finish(plan, vocabulary, partial)
        shutil.rmtree(partial / WORK, ignore_errors=True)
        replace_folder(partial, output)
    return load_manifest(output), report


def begin(plan: Plan, vocabulary: Vocabulary, partial: Path) -> None:
    """Makes the unfinished folder, or checks that what is in there can go on."""
    if (partial / FILE_NAME).exists() and ((partial / MANIFEST).exists() or _has_results(partial)):
        before = Plan.load(partial)
        plan.check_goes_on(before, partial)
        if plan != before:
            plan.save(partial)
        return
    # Nothing in there is worth going on with.
    exclusion = Exclusion.of(plan.exclude, plan.options.reading) if plan.exclude else None
    if partial.exists():
        shutil.rmtree(partial)
    (partial / WORK).mkdir(parents=True)
    if exclusion:
        excluding.save(exclusion, partial / WORK)
    vocabulary.save(partial)
    plan.save(partial)


def _has_results(partial: Path) -> bool:
    return any((partial / WORK).glob("*.json"))


def compute(plan: Plan, partial: Path, runner: Runner, phase: str, count: int) -> None:
    """Computes what is left of a phase, with a progress bar."""
    if (partial / MANIFEST).exists():
        return
    left = [n for n in range(count) if not result_path(partial, phase, n).exists()]
    with progress.bar(count, "part", phase, initial=count - len(left)) as bar:
        runner(phase, str(partial), plan.digest, left, bar.update)


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
                f" {len(plan.inputs)} file(s); check that they hold running text, and what the"
                " stages drop (--sample_dropped shows examples)"
            )
    except UserError:
        shutil.rmtree(partial)
        raise
    total.report.exclusion_faults += excluding.faults(partial / WORK)
    total.statistics.counters.update(total.report.counters())
    manifest = total.statistics.manifest(vocabulary, total.shards, plan.options.records.keep_text)
    write_report(manifest, partial)
    if plan.options.sample_dropped:
        lines = "".join(f"{line}\n" for line in total.samples.lines())
        (partial / SAMPLES).write_bytes(lines.encode("utf-8", "replace"))
    # The last: with it the folder is complete.
    manifest.save(partial)
    return total.report
