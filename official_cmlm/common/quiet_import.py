"""A finder of TensorFlow, which is imported without the notices that no log level hides."""

import os
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

# Matches lines of Abseil's log below a fatal error, and the line that explains them.
_NOTICE = rb"[IWE]\d{4} [\d:.]+ +\d+ \S+:\d+\] |WARNING: All log messages before absl::"


def find_spec(name: str, *more: Any) -> ModuleSpec | None:
    """Returns the specification of TensorFlow, which is then executed without its notices."""
    spec = PathFinder.find_spec(name, *more) if name == "tensorflow" else None
    if spec and spec.loader:
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: _execute(execute, module)
    return spec


def _execute(execute: Any, module: Any) -> None:
    """Executes a module; what it prints on standard error, but for notices, follows at the end."""
    import re
    import tempfile

    from official_cmlm.common import signals

    with tempfile.TemporaryFile() as file, os.fdopen(os.dup(2), "wb", 0) as kept:
        os.dup2(file.fileno(), 2)
        signals.stderr = kept.fileno()
        try:
            execute(module)
        finally:
            signals.stderr = 2
            os.dup2(kept.fileno(), 2)
            file.seek(0)
            kept.writelines(line for line in file if not re.match(_NOTICE, line))
