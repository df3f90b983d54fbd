"""Runs the project's binaries in processes of their own."""

import subprocess
import sys

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
