"""Runs that are killed: `python -m tests.data_prep.pipeline.killed_runs DIR KILLS FLAG=VALUE …`.

Reads DIR/text and DIR/vocab.txt, writes DIR/out. Prints how often a run was killed.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import tensorflow_text  # noqa: F401 - imported once, for all forks; that starts no threads

from tests.data_prep.pipeline.runs import contents, run


def killed_run(folder: Path, seconds: float, values: dict[str, str]) -> bool:
    """Runs once in a fork; returns whether the timer killed it, as `kill -9` would."""
    child = os.fork()
    if not child:
        status = 1
        try:
            if seconds:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, seconds)
            sys.stdout = sys.stderr = open(os.devnull, "w")
            run(
                input=folder / "text",
                vocab_file=folder / "vocab.txt",
                output_dir=folder / "out",
                element_mb=0.000001,
                normalise=True,
                **({"deduplicate": "normalised"} | values),
            )
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        return True
    if os.waitstatus_to_exitcode(ended):
        raise SystemExit("a run failed by itself")
    return False


def remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def main(folder: Path, wanted: int, values: dict[str, str]) -> None:
    started = time.monotonic()
    killed_run(folder, 0, values)
    whole = time.monotonic() - started
    remove(folder / "out")
    rng = random.Random(0)
    kills = resumed = 0
    while kills < wanted:
        left = list((folder / "out.partial" / "work").glob("*.json"))
        # Early and late ones alike; a run that gets done is begun anew.
        killed = killed_run(folder, rng.uniform(0.02, 0.9) * whole, values)
        if (folder / "out").exists():
            # Done, or killed after the last rename: the folder with the name must be whole.
            assert contents(folder / "out") == contents(folder / "whole")
            remove(folder / "out")
        elif killed:
            kills += 1
            resumed += bool(left)
    killed_run(folder, 0, values)
    print(json.dumps({"kills": kills, "runs_with_results_left": resumed}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), dict(given.split("=") for given in sys.argv[3:]))
