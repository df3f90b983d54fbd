"""Runs the project's binaries in processes of their own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from official_cmlm.errors import UserError


def run_module(module: str, *arguments: str) -> str:
    """Runs a binary, showing its progress and errors; returns the last line that it printed.

    Raises:
      UserError: if it fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603
    if result.returncode:
        raise UserError(f"{module} failed with exit status {result.returncode}; see above")
    return (result.stdout.strip().splitlines() or [""])[-1]


class Answering:
    """A binary that stays and prints a line for each line that it gets.

    Its first line says that it is ready. So several binaries can be made ready once, and then be
    measured in turn.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def wait(self) -> None:
        """Waits until it is ready."""
        self._read()

    def ask(self) -> str:
        """Its answer to the next line."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        """Lets it end."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _read(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise UserError(
                f"{self._module} failed with exit status {self._process.wait()}; see above"
            )
        return line.strip()


@contextlib.contextmanager
def answering(*commands: list[str]) -> Iterator[list[Answering]]:
    """Starts binaries, each a module and its arguments, and ends them; all are ready."""
    started: list[Answering] = []
    try:
        for command in commands:
            started.append(Answering(*command))
        for process in started:
            process.wait()
        yield started
    finally:
        for process in started:
            process.end()
