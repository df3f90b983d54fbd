"""Data preparation that dies in the midst of its work: a script that a test starts.

`python -m tests.hostile.killed_data_prep DIR BINARY KILLS FLAG=VALUE …` reads DIR/text and
DIR/vocab.txt. An undisturbed run writes DIR/whole and counts how often it changes the file system;
then runs are killed before the n-th change, for KILLS numbers spread evenly, each followed by a run
to the end, which must write the same bytes. Moments are changes, so that they do not depend on the
speed of the machine. Prints how often a run was killed and had left a file.
"""

import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import tensorflow_text  # noqa: F401 - imported once, for all forks; that starts no threads
from absl import flags

from tests.data_prep.pipeline.runs import contents

# Events that change the file system, beside files that are opened to be written.
_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}


def _life(binary: str, arguments: list[str], before: Callable[[], None]) -> int:
    """Runs a binary in a fork, which calls `before` before each change; how it ended."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        sys.stdout = sys.stderr = open(os.devnull, "w")

        def hook(event: str, given: tuple) -> None:
            is_write = event == "open" and given[2] is not None and given[2] & os.O_ACCMODE
            if event in _CHANGES or is_write:
                before()

        sys.addaudithook(hook)
        module = importlib.import_module(f"data_prep.{binary}")
        module.define_flags()
        status = module.main(*flags.FLAGS([binary, *arguments])[1:])
    finally:
        os._exit(status)


def main(folder: Path, binary: str, kills: int, values: list[str]) -> None:
    arguments = [f"--input={folder / 'text'}", f"--vocab_file={folder / 'vocab.txt'}"]
    arguments += [f"--{value}" for value in values]
    count = folder / "count"
    whole, out, partial = folder / "whole", folder / "out", folder / "out.partial"
    changes = [0]

    def counting() -> None:
        changes[0] += 1
        # Not in Python, where it would be a change itself.
        os.pwrite(number, f"{changes[0]:8d}".encode(), 0)

    number = os.open(count, os.O_CREAT | os.O_WRONLY)
    if _life(binary, [*arguments, f"--output_dir={whole}"], counting):
        raise SystemExit("the undisturbed run failed")
    total = int(count.read_text())
    killed = left = 0
    for kill in range(kills):
        moment = 1 + kill * (total - 1) // max(1, kills - 1)
        passed = [0]

        def dying(moment: int = moment, passed: list[int] = passed) -> None:
            passed[0] += 1
            if passed[0] == moment:
                os.kill(os.getpid(), signal.SIGKILL)

        status = _life(binary, [*arguments, f"--output_dir={out}"], dying)
        killed += os.WIFSIGNALED(status)
        left += partial.exists()
        if out.exists() and contents(out) != contents(whole):
            raise SystemExit(f"killed before change {moment} of {total}: half of it has the name")
        if status := _life(binary, [*arguments, f"--output_dir={out}"], lambda: None):
            raise SystemExit(f"killed before change {moment} of {total}: did not go on ({status})")
        if contents(out) != contents(whole):
            raise SystemExit(f"killed before change {moment} of {total}: other bytes")
        if partial.exists() or Path(f"{out}.lock").exists():
            raise SystemExit(f"killed before change {moment} of {total}: something is left")
        shutil.rmtree(out)
    print(json.dumps({"changes": total, "killed": killed, "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
