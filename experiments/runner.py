"""Runs the project's binaries as parts of a job: for chains, studies, the demo and `adapt`.

A part runs a program, or several, each in a process of its own. It is done when its record says so;
`official_cmlm.common.job` has the records, the lock and the layout of the folder.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from official_cmlm import cli
from official_cmlm.common import signals
from official_cmlm.common.errors import UserError
from official_cmlm.common.job import Job
from official_cmlm.training.progress import check_completed

from . import module_of


class Runner(Job):
    """A job whose parts run programs."""

    def __init__(
        self, folder: Path, kind: str, call: Callable[[list[str]], int] = signals.call
    ) -> None:
        """Describes the job.

        Args:
          folder: where the parts keep their output and their records.
          kind: the kind of job, such as `chain`; a folder holds one kind.
          call: runs a command and returns its exit status.
        """
        plan = {"format": f"{kind} 1"}
        super().__init__(folder, plan, shares=True, remedy="name another folder")
        self._call = call

    def start(self, program: str | Path, /, statuses: Collection[int] = (0,), **flags: Any) -> None:
        """Runs a program to its end.

        Args:
          program: one of the project's binaries, e.g. `data_prep.hold_out`; or a Python file, which
            runs without access to this project.
          statuses: exit statuses that do not count as errors.
          **flags: name -> value. A list is joined with commas, a tuple repeats the flag, None
            leaves it out.

        Raises:
          UserError: for another exit status; the program has printed its own message.
          Stopped: on a signal.
        """
        is_file = isinstance(program, Path)
        module = [str(program)] if is_file else ["-m", module_of(program)]
        # The installed project is not looked for in the current folder, which may be a checkout.
        safe_path = ["-P"] if is_file or __name__.startswith("official_cmlm.") else []
        with cli.keep_reason() as reason:
            status = self._call([sys.executable, *safe_path, *module, *format_flags(flags)])
            if status not in statuses:
                why = reason.read_text(encoding="utf-8") if reason.exists() else "see above"
                raise UserError(
                    f"{program} ended with status {status}; {why}; give the same command again to "
                    "go on"
                )

    def run_part(
        self,
        name: str,
        act: Callable[[], dict[str, Any] | None],
        title: str,
        start: str,
        *,
        key: Any = None,
        output: Path | None = None,
        resumes: bool = True,
        is_whole: Callable[[dict[str, Any]], bool] = lambda result: True,
    ) -> dict[str, Any]:
        """Runs a part unless it is done, and returns its result.

        Args:
          name: see `job.Part`.
          act: runs the part's programs; returns its result, if it has more than its duration.
          title: begins the lines that are printed.
          start: ends the line that is printed when the part begins.
          key: all that decides the result; a part that is done with another key runs again.
          output: file or folder that the part makes; None: the part keeps its output itself.
          resumes: whether a part that was stopped goes on from its output; otherwise that is
            removed first, as is the output of another key.
          is_whole: whether a part that is done with this result need not run again.

        Returns:
          The result, with its `wall_seconds`.

        Raises:
          UserError: if a program fails; if `output` is there, and this job has not begun it.
        """
        record, key = self.record(name), json.loads(json.dumps(key))
        is_there = output is not None and os.path.lexists(output)
        is_same = record is not None and record["key"] == key
        result = record["result"] if is_same and (output is None or is_there) else None
        if result and is_whole(result):
            print(f"{title}: as before", flush=True)
            return result
        if output is not None:
            self.check_output(name, output)
        if is_there and not (is_same and resumes):
            shutil.rmtree(output) if output.is_dir() else output.unlink()
        print(f"{title}: {start}", flush=True)
        began = time.monotonic()
        self.begin(name, key)
        result = act() or {}
        result["wall_seconds"] = round(time.monotonic() - began, 1)
        self.store(name, result, key)
        print(f"{title}: {result['wall_seconds']:.0f} s", flush=True)
        return result

    def check_output(self, name: str, output: Path) -> None:
        """Raises `UserError` if a part's output is there, and this job has not begun the part."""
        if os.path.lexists(output) and self.record(name) is None:
            raise UserError(
                f"{output}: exists, and no part of this job has made it; move it away, or name "
                "another folder for the work"
            )


class Stages:
    """Parts in a fixed order; each runs again if its command, a stage before or a file changed.

    Attributes:
      seconds: typical seconds of each stage.
      durations: seconds of each stage so far, in this run or in the run that made it.
    """

    def __init__(self, runner: Runner, seconds: Sequence[int]) -> None:
        self.seconds, self.durations = seconds, list[float]()
        self._runner, self._upstream = runner, hashlib.sha256()

    def scale(self, share: float, start: int = 15) -> None:
        """Changes the typical seconds to those of a share of the work, but for a stage's start."""
        self.seconds = [round(min(s, start) + share * max(0, s - start)) for s in self.seconds]

    def run(self, title: str, output: Path | None, program: str | Path, /, **flags: Any) -> None:
        """Runs a program unless its output is there and was made the same way.

        Args:
          title: names the stage in the lines that are printed.
          output: file or folder in the job's folder; None: the stage always runs.
          program, **flags: see `Runner.start`.

        Raises:
          UserError: see `Runner.run_part`.
          Stopped: if a training was stopped before its last step.
        """
        self._upstream.update("\0".join([str(program), *format_flags(flags)]).encode())
        number, left = len(self.durations) + 1, self.seconds[len(self.durations) :]

        def act() -> None:
            self._runner.start(program, **flags)
            if output is not None:
                check_completed(output)

        result = self._runner.run_part(
            "-".join(output.relative_to(self._runner.folder).parts) if output else f"{number:02d}",
            act,
            f"[{number}/{len(self.seconds)}] {title}",
            f"about {left[0]} s; {sum(left)} s to the end …",
            key=self._upstream.hexdigest()[:16],
            output=output,
            is_whole=lambda result: output is not None,
        )
        self.durations.append(result["wall_seconds"])

    def depends_on(self, paths: Sequence[str]) -> None:
        """Makes the later stages run again when one of these files has changed."""
        for path in paths:
            status = Path(path).stat()
            self._upstream.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}".encode())


def format_flags(flags: dict[str, Any]) -> list[str]:
    """Returns the arguments of flags.

    >>> format_flags({"a": True, "b": False, "c": ["x", "y"], "d": ("x", "y"), "e": None})
    ['--a', '--nob', '--c=x,y', '--d=x', '--d=y']
    """
    arguments = []
    for name, value in flags.items():
        if isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no{name}")
        elif isinstance(value, list):
            arguments.append(f"--{name}={','.join(map(str, value))}")
        elif value is not None:
            values = value if isinstance(value, tuple) else (value,)
            arguments += [f"--{name}={item}" for item in values]
    return arguments
