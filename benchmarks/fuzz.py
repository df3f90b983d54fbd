"""Random input: `python -m benchmarks.fuzz --seed=1 --strings=1000000 --output=fuzz.md`.

Each target of `benchmarks.fuzz_targets` gets its share of the items. They are drawn here and tried
in another process, so that a crash or a hang of it is seen; what caused one is tried again in
halves until one item is left, and written beside --output. The same seed draws the same items. The
exit status is 1 if there was any fault.
"""

import contextlib
import dataclasses
import faulthandler
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.fuzz_files import FILES
from benchmarks.fuzz_targets import STRINGS, Outcome, Target
from official_cmlm import cli, progress
from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write_text, check_writable

FLAGS = flags.FLAGS
# Flag -> (what it counts, targets among which the number is divided).
TARGETS: dict[str, tuple[str, list[Target]]] = {
    "strings": ("Random strings", STRINGS),
    "files": ("Mutated files", FILES),
}
# Seconds for the start of a process: importing TensorFlow, making what is tried.
_START = 300.0
# Faults of a target that are narrowed and written down; more are counted.
_MOST_WRITTEN = 20
_CRASH, _HANG, _EXCEPTION = "crash", "hang", "exception"


def define_flags() -> None:
    """Defines the flags of the binary."""
    for name, (what, _) in TARGETS.items():
        flags.DEFINE_integer(name, 0, f"{what} to try, of all targets.", lower_bound=0)
    flags.DEFINE_integer("seed", 1, "The same seed gives the same items.")
    flags.DEFINE_float(
        "seconds", 0.0, "Stop after so long. Default: 0, when all are tried.", lower_bound=0
    )
    flags.DEFINE_float("limit", 10.0, "Seconds after which a case hangs.", lower_bound=0.1)
    flags.DEFINE_string("output", "", "Markdown file of the results. Default: none.")


@dataclasses.dataclass
class Report:
    """What was found about a target.

    Attributes:
      name: the target's.
      tried: items.
      seconds: duration.
      slowest: seconds of the slowest case.
      counts, largest: see `Outcome`.
      faults: what -> items.
      examples: (what, item) of the first faults, narrowed to one item where that was possible.
    """

    name: str
    tried: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    counts: Counter = dataclasses.field(default_factory=Counter)
    largest: dict[str, float] = dataclasses.field(default_factory=dict)
    faults: Counter = dataclasses.field(default_factory=Counter)
    examples: list[tuple[str, list]] = dataclasses.field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Adds what came of a case, faults excepted."""
        self.counts.update(outcome.counts)
        for name, value in outcome.largest.items():
            self.largest[name] = max(value, self.largest.get(name, 0.0))


class Process:
    """A process with an open target; it is started again when it has crashed or was ended."""

    def __init__(self, target: Target, folder: Path, limit: float) -> None:
        self._target, self._folder, self._limit = target, folder, limit
        self._process: Any = None
        self._pipe: Any = None

    def start(self) -> None:
        """Starts the process and waits until the target is open.

        Raises:
          UserError: if it cannot be opened.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, self._target, self._folder), daemon=True
        )
        self._process.start()
        theirs.close()
        if self._answer(_START) != "open":
            self.stop()
            raise UserError(f"{self._target.name}: cannot be opened; see {self.log}")

    @property
    def log(self) -> Path:
        """What the process writes on standard error."""
        return self._folder / "stderr.txt"

    def send(self, case: list) -> None:
        """Begins to try a case."""
        if self._process is None:
            self.start()
        with contextlib.suppress(OSError):
            self._pipe.send(case)

    def answer(self) -> Outcome | tuple[str, str]:
        """The outcome of the case, or (`crash`, `hang` or `exception`, what is known of it)."""
        return self._answer(self._limit)

    def _answer(self, limit: float) -> Any:
        try:
            if self._pipe.poll(limit):
                return self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            self.stop()
            return _CRASH, f"exit status {status}"
        self.stop()
        return _HANG, f"longer than {limit:g} seconds"

    def stop(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = None


def _serve(pipe: Connection, target: Target, folder: Path) -> None:
    """Tries the cases that come through the pipe; the process's main function."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # TensorFlow writes to the descriptor, not to `sys.stderr`.
    with (folder / "stderr.txt").open("ab") as log:
        os.dup2(log.fileno(), 2)
    faulthandler.enable()
    target.open(folder)
    pipe.send("open")
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(target.run(case))
        except Exception as error:
            pipe.send((_EXCEPTION, f"{type(error).__name__}: {error}"[:300]))


def narrow(items: list, fails: Callable[[list], bool]) -> list:
    """The smallest half of a half … of the items that still fails.

    Where both halves pass, the items fail together only, and all of them are returned.
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
    target: Target,
    count: int,
    seed: int,
    folder: Path,
    limit: float,
    seconds: float,
    done: Callable[[int], None],
) -> Report:
    """Tries random items.

    Args:
      target: what to try.
      count: items, at least.
      seed: of the items.
      folder: an empty folder.
      limit: seconds for a case.
      seconds: when to stop; 0: never.
      done: called with the number of items of each case.

    Raises:
      UserError: if the target cannot be opened.
    """
    report = Report(target.name)
    process = Process(target, folder, limit)
    process.start()
    began = time.monotonic()
    drawn = (target.make_case(random.Random(f"{seed} {target.name} {n}")) for n in _numbers())  # noqa: S311
    try:
        case = next(drawn)
        while report.tried < count and not (seconds and time.monotonic() - began > seconds):
            case = case[: count - report.tried]
            sent = time.monotonic()
            process.send(case)
            # Drawn while the other process works.
            following = next(drawn)
            outcome = process.answer()
            report.slowest = max(report.slowest, time.monotonic() - sent)
            report.tried += len(case)
            _record(report, process, case, outcome)
            done(len(case))
            case = following
    finally:
        process.stop()
    report.seconds = time.monotonic() - began
    return report


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _record(
    report: Report, process: Process, case: list, outcome: Outcome | tuple[str, str]
) -> None:
    """Adds an outcome to the report; what failed as a whole is tried again in halves."""
    if isinstance(outcome, Outcome):
        report.add(outcome)
        for what, index in outcome.faults:
            report.faults[what] += 1
            if len(report.examples) < _MOST_WRITTEN:
                report.examples.append((what, [case[index]]))
        return
    kind, told = outcome

    def fails(part: list) -> bool:
        process.send(part)
        found = process.answer()
        return not isinstance(found, Outcome) and found[0] == kind

    report.faults[kind] += 1
    if len(report.examples) < _MOST_WRITTEN:
        report.examples.append((f"{kind}: {told}", narrow(case, fails)))


def _written(item: bytes | str) -> dict[str, str]:
    """An item for a JSON file; surrogates and bytes survive."""
    if isinstance(item, bytes):
        return {"bytes": item.hex()}
    return {"text": item}


def markdown(reports: list[Report], seed: int) -> str:
    """The results file."""
    lines = [
        "# Random input",
        "",
        "Printed by",
        "",
        f"    python -m benchmarks.fuzz --seed={seed} {' '.join(_counts())}",
        "",
        "What is tried, and what counts as a fault, is in `benchmarks/fuzz_targets.py` and "
        "`benchmarks/fuzz_files.py`.",
        "",
        "| target | tried | crashes | hangs | exceptions | other faults | slowest | duration |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for report in reports:
        known = [report.faults[kind] for kind in (_CRASH, _HANG, _EXCEPTION)]
        others = sum(report.faults.values()) - sum(known)
        cells = [report.name, f"{report.tried:,}", *map(str, known), str(others)]
        cells += [f"{report.slowest:.1f} s", progress.in_words(report.seconds)]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for report in reports:
        told = [f"{value:,} {name}" for name, value in report.counts.items()]
        told += [f"{name} {value:.1e}" for name, value in report.largest.items()]
        told += [f"**{value} × {name}**" for name, value in report.faults.items()]
        lines.append(f"- {report.name}: {'; '.join(told)}.")
    return "\n".join(lines) + "\n"


def _shares(targets: list[Target], count: int) -> list[tuple[Target, int]]:
    """How many of `count` items each target gets, rounded up; none if there are none."""
    total = sum(target.share for target in targets)
    return [(t, math.ceil(count * t.share / total)) for t in targets] if count else []


def _counts() -> list[str]:
    return [f"--{name}={FLAGS[name].value}" for name in TARGETS if FLAGS[name].value]


def main(argv: list[str]) -> int:
    """Runs the command."""
    del argv
    if not _counts():
        raise UserError(f"nothing to try; pass --{' or --'.join(TARGETS)} and a number")
    if FLAGS.output:
        check_writable(FLAGS.output)
    chosen = [pair for name in TARGETS for pair in _shares(TARGETS[name][1], FLAGS[name].value)]
    reports = []
    cli.announce("starting …")
    with tempfile.TemporaryDirectory() as root:
        for number, (target, count) in enumerate(chosen):
            folder = Path(root) / str(number)
            folder.mkdir()
            with progress.bar(count, "item", target.name) as bar:
                seconds = FLAGS.seconds / len(chosen)
                reports.append(
                    fuzz(target, count, FLAGS.seed, folder, FLAGS.limit, seconds, bar.update)
                )
    text = markdown(reports, FLAGS.seed)
    print(text)
    examples = [
        {"target": report.name, "what": what, "items": [_written(item) for item in items]}
        for report in reports
        for what, items in report.examples
    ]
    if FLAGS.output:
        atomic_write_text(FLAGS.output, text)
    if examples:
        path = Path(FLAGS.output or "fuzz.md").with_suffix(".faults.json")
        atomic_write_text(path, json.dumps(examples, indent=1) + "\n")
        print(f"{path}: what failed", file=sys.stderr)
    for report in reports:
        print(f"figure {report.name.replace(', ', '_').replace(' ', '_')}_faults "
              f"{sum(report.faults.values())}")  # fmt: skip
    return 1 if examples else 0


if __name__ == "__main__":
    define_flags()
    cli.run(main)
