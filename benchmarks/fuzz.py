"""Random input: `python -m benchmarks.fuzz --seed=1 --items=1000000`.

Each target of `benchmarks.fuzz_targets` gets its share of the items. Items are drawn in this
process and tried in another one, whose crash or hang is noticed here. A case that failed as a whole
is tried again in halves while one of them still fails, and what is left is printed. The same seed
draws the same items. The exit status is 1 if there was any fault.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks import shared
from benchmarks.fuzz_targets import TARGETS, Outcome, Target
from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError

FLAGS = flags.FLAGS
# Seconds for the start of a process: importing TensorFlow, opening the target.
_START = 300.0
# Faults of a target that are narrowed and printed; more are counted.
_MOST_PRINTED = 20
_CRASH, _HANG, _EXCEPTION = "crash", "hang", "exception"
# The target that a process tries.
_opened: list[Target] = []


def define_flags() -> None:
    """Defines the number of items, their seed and the time limit."""
    flags.DEFINE_integer("items", 1_000_000, "Strings and files to try.", lower_bound=1)
    flags.DEFINE_integer("seed", 1, "The same seed gives the same items.")
    flags.DEFINE_float("limit", 10.0, "Seconds after which a case hangs.", lower_bound=0.1)


@dataclasses.dataclass
class Report:
    """Findings about a target.

    Attributes:
      name: name of the target.
      tried: number of items.
      seconds: duration.
      counts: see `Outcome`.
      faults: kind of fault -> number of items.
      examples: (fault, items) of the first faults, narrowed to one item where that was possible.
    """

    name: str
    tried: int = 0
    seconds: float = 0.0
    counts: Counter = dataclasses.field(default_factory=Counter)
    faults: Counter = dataclasses.field(default_factory=Counter)
    examples: list[tuple[str, list]] = dataclasses.field(default_factory=list)


class Process:
    """A process with an open target; it is started again when it has crashed or was ended."""

    def __init__(self, target: Target, folder: Path, limit: float) -> None:
        self._target, self._folder, self._limit = target, folder, limit
        self._pool: ProcessPoolExecutor | None = None
        self._id = 0

    def answer(self, case: list) -> Outcome | tuple[str, str]:
        """Returns the outcome of a case, or (`crash`, `hang` or `exception`, a description).

        Raises:
          UserError: if the target cannot be opened.
        """
        if self._pool is None:
            self._pool = shared.new_process()
            self._id = self._pool.submit(os.getpid).result()
            opened = self._called(_START, _open, self._target, self._folder)
            if not isinstance(opened, Outcome):
                self.stop()
                raise UserError(f"{self._target.name}: cannot be opened: {opened[1]}")
        return self._called(self._limit, _run, case)

    def stop(self) -> None:
        """Ends the process."""
        if self._pool is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._id, signal.SIGKILL)
            self._pool.shutdown()
        self._pool = None

    def _called(self, limit: float, function: Callable, *arguments: Any) -> Any:
        try:
            return self._pool.submit(function, *arguments).result(limit)
        except TimeoutError:
            fault = _HANG, f"longer than {limit:g} seconds"
        except BrokenExecutor:
            fault = _CRASH, "the process ended"
        self.stop()
        return fault


def _open(target: Target, folder: Path) -> Outcome | tuple[str, str]:
    """Opens the target of this process."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    target.open(folder)
    _opened.append(target)
    return Outcome()


def _run(case: list) -> Outcome | tuple[str, str]:
    """Tries a case on the target of this process."""
    try:
        return _opened[0].run(case)
    except Exception as error:
        return _EXCEPTION, f"{type(error).__name__}: {error}"[:300]


def narrow(items: list, fails: Callable[[list], bool]) -> list:
    """Returns the part of the items that still fails after halving them again and again.

    Where both halves pass, the items fail only together, and are returned together.
    """
    while len(items) > 1:
        middle = len(items) // 2
        for half in (items[:middle], items[middle:]):
            if fails(half):
                items = half
                break
        else:
            return items
    return items


def fuzz(
    target: Target, count: int, seed: int, folder: Path, limit: float, done: Callable[[int], None]
) -> Report:
    """Tries random items.

    Args:
      target: the target to try.
      count: number of items.
      seed: seed of the items.
      folder: an empty folder.
      limit: seconds for a case.
      done: called with the number of items of each case.

    Raises:
      UserError: if the target cannot be opened.
    """
    report, process, began = Report(target.name), Process(target, folder, limit), time.monotonic()
    try:
        for number in itertools.count():
            if report.tried >= count:
                break
            rng = random.Random(f"{seed} {target.name} {number}")  # noqa: S311 - no secret
            case = target.make_case(rng)[: count - report.tried]
            _record(report, process, case, process.answer(case))
            report.tried += len(case)
            done(len(case))
    finally:
        process.stop()
    report.seconds = time.monotonic() - began
    return report


def _record(
    report: Report, process: Process, case: list, outcome: Outcome | tuple[str, str]
) -> None:
    """Adds an outcome to the report; a case that failed as a whole is tried again in halves."""
    if isinstance(outcome, Outcome):
        report.counts.update(outcome.counts)
        report.faults.update(fault for fault, _ in outcome.faults)
        report.examples += [(fault, [case[index]]) for fault, index in outcome.faults]
        del report.examples[_MOST_PRINTED:]
        return
    kind, told = outcome

    def fails(part: list) -> bool:
        found = process.answer(part)
        return not isinstance(found, Outcome) and found[0] == kind

    report.faults[kind] += 1
    if len(report.examples) < _MOST_PRINTED:
        report.examples.append((f"{kind}: {told}", narrow(case, fails)))


def table(reports: list[Report]) -> str:
    """Returns the results as Markdown."""
    lines = [
        "| target | tried | crashes | hangs | exceptions | other faults | duration | of these |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for report in reports:
        known = [report.faults[kind] for kind in (_CRASH, _HANG, _EXCEPTION)]
        others = sum(report.faults.values()) - sum(known)
        told = "; ".join(f"{value:,} {name}" for name, value in report.counts.items())
        cells = [report.name, f"{report.tried:,}", *known, others]
        cells += [progress.in_words(report.seconds), told]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    """Runs the command; returns 1 if there was a fault."""
    del argv
    reports, shares = [], sum(target.share for target in TARGETS)
    cli.announce("starting …")
    for target in TARGETS:
        count = math.ceil(FLAGS.items * target.share / shares)
        with (
            tempfile.TemporaryDirectory() as folder,
            progress.bar(count, "item", target.name) as bar,
        ):
            report = fuzz(target, count, FLAGS.seed, Path(folder), FLAGS.limit, bar.update)
        reports.append(report)
    print(table(reports))
    for report in reports:
        for fault, items in report.examples:
            print(f"{report.name}, {fault}: {items!r}")
        name = report.name.replace(", ", "_").replace(" ", "_")
        print(f"figure fuzz_{name}_faults {sum(report.faults.values())}")
    return int(any(report.faults for report in reports))


if __name__ == "__main__":
    define_flags()
    cli.run(main)
