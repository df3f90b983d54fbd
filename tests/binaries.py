"""The binaries of the project: their names, their flags, and a call within this process."""

import importlib
import importlib.util
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from absl import app, flags
from absl.testing import flagsaver

from official_cmlm import cli

ROOT = Path(__file__).parents[1]
PACKAGES = ("benchmarks", "data_prep", "experiments", "export", "official_cmlm")


def modules_with(code: str) -> list[str]:
    """Returns the names for `python -m` of the modules that hold some code."""
    return sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if code in path.read_text(encoding="utf-8")
    )


BINARIES = modules_with("def define_flags() -> None:")


def import_binary(module: str):
    """Returns the module that `python -m` runs under this name."""
    if importlib.util.find_spec(module).submodule_search_locations is not None:
        module += ".__main__"
    return importlib.import_module(module)


def flags_of(module: str) -> flags.FlagValues:
    """Returns the flags of a binary, apart from all others'."""
    binary, before = import_binary(module), set(flags.FLAGS)
    binary.define_flags()
    own = flags.FlagValues()
    for name in set(flags.FLAGS) - before:
        own[name] = flags.FLAGS[name]
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    return own


def call(module: str, *arguments: str) -> int:
    """Runs a binary in this process as `cli.run` does; returns its exit status."""

    def start():
        binary = import_binary(module)
        binary.define_flags()
        cli.run(binary.main)

    return call_program(start, module, *arguments)


def call_program(start: Callable[[], None], *command: str) -> int | str:
    """Runs a program that ends by `cli.run` or `sys.exit`; returns its exit status or message."""
    handler = signal.getsignal(signal.SIGINT)
    with (
        # On the way out the flags that were defined inside are removed again.
        flagsaver.flagsaver(),
        mock.patch.object(sys, "argv", [*command]),
        # Everything else that absl does when a program starts would outlive the test.
        mock.patch.object(
            app, "run", lambda main, flags_parser: sys.exit(main(flags_parser(sys.argv)))
        ),
    ):
        try:
            start()
        except SystemExit as ended:
            return ended.code or 0
        finally:
            signal.signal(signal.SIGINT, handler)
    raise AssertionError("programs always end by an exit status")
