"""Runs the project's binaries in order, and skips those whose output is up to date."""

import hashlib
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import read_object, write_json
from official_cmlm.training import signals
from official_cmlm.training.progress import check_completed

STATE_NAME = "stages.json"


class Stages:
    """Stages that run in order; the state tells what each was made from, and which to skip."""

    def __init__(self, folder: Path, seconds: Sequence[int]) -> None:
        """Reads the state of an earlier run.

        Args:
          folder: where the state is kept.
          seconds: typical seconds of each stage, to tell the time left.
        """
        self.seconds, self._number = seconds, 0
        # Seconds of each stage so far, in this run or in the run that made it; None: unknown.
        self.taken: list[float | None] = []
        self._state_path = folder / STATE_NAME
        self._state = read_object(self._state_path) if self._state_path.exists() else {}
        self._upstream = hashlib.sha256()

    def run(self, title: str, output: Path | None, *command: str) -> None:
        """Runs a Python command line unless `output` is there and was made the same way.

        Args:
          title: name of the stage; its state is remembered under it.
          output: file or folder that the stage makes. It is removed first if another command or
            other inputs made it; an interrupted stage goes on from its own output. None: the stage
            always runs.
          *command: arguments of the Python interpreter.

        Raises:
          UserError: if the stage fails; its own message has been printed. If `output` is there and
            the stage has never run here.
          Stopped: if a training was stopped before its last step.
        """
        self._number += 1
        self._upstream.update("\0".join(command).encode())
        fingerprint = self._upstream.hexdigest()[:16]
        name = f"[{self._number}/{len(self.seconds)}] {title}"
        known = self._state.get(title, {})
        same = known.get("fingerprint") == fingerprint
        if output is not None and output.exists():
            if same and known["complete"]:
                print(f"{name}: as before", flush=True)
                self.taken.append(known.get("seconds"))
                return
            if not known:
                raise UserError(
                    f"{output}: exists, and no stage of {self._state_path} has made it; move it "
                    "away, or name another folder for the work"
                )
            if not same:
                shutil.rmtree(output) if output.is_dir() else output.unlink()
        left = self.seconds[self._number - 1 :]
        print(f"{name} … (about {left[0]} s; {sum(left)} s to the end)", flush=True)
        started = time.monotonic()
        self._remember(title, fingerprint, complete=False)
        code = signals.call([sys.executable, *command])
        if code:
            raise UserError(f"stage {title!r} failed with exit status {code}; see above")
        if output is not None:
            check_completed(output)
        self.taken.append(round(time.monotonic() - started, 1))
        self._remember(title, fingerprint, complete=True, seconds=self.taken[-1])
        print(f"{name}: {self.taken[-1]:.0f} s", flush=True)

    def _remember(self, title: str, fingerprint: str, **status: bool | float) -> None:
        self._state[title] = {"fingerprint": fingerprint, **status}
        write_json(self._state_path, self._state)

    def depends_on(self, paths: list[str]) -> None:
        """Makes the later stages run again when one of these files has changed."""
        for path in paths:
            status = Path(path).stat()
            self._upstream.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}".encode())
