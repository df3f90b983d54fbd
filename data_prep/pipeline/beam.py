"""Runs phases on Apache Beam, an optional extra: in this process, on Dask or on another runner."""

import argparse
import contextlib
import difflib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text

from .plan import WORK, result_path
from .run import PhaseProgress, Work, run_phase

if TYPE_CHECKING:
    from apache_beam.runners.runner import PipelineRunner

IN_PROCESS = "inprocess"
# Beam's own names of the runner in this process; for these Beam would first try a runner that
# downloads a binary.
_DIRECT = ("direct", "bundlebaseddirect")
# Flags of remote runners cannot be validated locally.
_PORTABLE = ("dataflow", "flink", "spark", "portable")
_DASK = "apache_beam.runners.dask.dask_runner.DaskRunner"
# Seconds between two updates of the progress bar.
_LOOK_INTERVAL = 2.0


class BeamRunner(contextlib.AbstractContextManager):
    """A pipeline of Beam for each phase, with its numbers as elements.

    Every machine must see the output's folder and the input under the same paths.
    """

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        """Makes a runner.

        Args:
          name: InProcess, or a runner of Beam, with or without "Runner" at its end.
          arguments: flags of Beam and of its runner.

        Raises:
          UserError: Beam is not installed, or does not know the runner or a flag.
        """
        self._name, self._arguments = name.lower().removesuffix("runner"), list(arguments)
        if self._name in _DIRECT:
            self._name = IN_PROCESS
        self._runner()
        if self._name not in _PORTABLE:
            _check_arguments(self._arguments)

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, work: Work, numbers: Sequence[int], progress: PhaseProgress) -> None:
        """Computes a phase for all numbers; see `run.Runner`."""
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        if not numbers:
            return
        for path in _faults(work.folder):
            path.unlink()
        try:
            with _watched(work, numbers, progress):
                # Without arguments Beam would parse those of this program.
                options = PipelineOptions(self._arguments)
                with beam.Pipeline(self._runner(), options) as pipeline:
                    elements = pipeline | beam.Create(list(numbers))
                    if self._name not in (IN_PROCESS, "dask"):
                        # This spreads elements over workers; those two runners do it anyway.
                        elements |= beam.Reshuffle()
                    _ = elements | beam.Map(_run_noting_faults, work)
        except Exception as error:
            # Each runner wraps an error of a worker in its own way.
            for path in _faults(work.folder):
                raise UserError(path.read_text(encoding="utf-8")) from None
            if self._name != IN_PROCESS and (trouble := _trouble(error)):
                raise UserError(f"{work.folder}: {trouble}") from None
            raise
        finally:
            if self._name == "dask":
                _close_client()

    def _runner(self) -> "PipelineRunner":
        try:
            from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
            from apache_beam.runners.runner import create_runner

            if self._name == IN_PROCESS:
                # Beam's DirectRunner would first try a runner that downloads a binary.
                return BundleBasedDirectRunner()
            return create_runner(_DASK if self._name == "dask" else self._name)
        except ImportError as error:
            raise UserError(
                f"--runner={self._name} is not installed ({error}); in the checkout of this"
                ' project, run pip install ".[beam]"'
            ) from None
        except ValueError as error:
            raise UserError(f"--runner={self._name}: {str(error)[:200]}") from None


def _run_noting_faults(number: int, work: Work) -> int:
    """Runs on a worker; writes a `UserError` to a file that the main program reads."""
    try:
        run_phase(work, number)
    except UserError as error:
        name = f"fault-{work.phase}-{number:05d}.txt"
        atomic_write_text(Path(work.folder, WORK, name), str(error))
        raise
    return number


def _check_arguments(arguments: list[str]) -> None:
    """Raises `UserError` for a flag that Beam would ignore with a line in its log."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    _, unknown = parsers[0].parse_known_args(arguments)
    for argument in unknown:
        known = [flag for action in parsers[0]._actions for flag in action.option_strings]
        near = difflib.get_close_matches(argument.partition("=")[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else "; see the flags of Beam and its runner"
        raise UserError(f"{argument}: Apache Beam has no such flag{hint}")


def _trouble(error: BaseException | None) -> str:
    """Returns a message for known failures of clusters; empty for others."""
    while error:
        name = type(error).__name__
        if name == "KilledWorker":
            return (
                "several workers have died at the same part, perhaps out of memory"
                f" ({_brief(error)}); give them more, or fewer threads each, and the same command"
                " to resume; or a smaller --element_mb and another --output_dir"
            )
        if isinstance(error, ModuleNotFoundError) or "deserialization" in str(error):
            return (
                f"scheduler or workers cannot load the work ({_brief(error)}); install this project"
                " and its requirements on all of them, in the same versions"
            )
        if isinstance(error, FileNotFoundError) or "No such file" in str(error):
            return (
                f"a worker does not see a file that this program sees ({_brief(error)}); mount"
                " input and output under the same paths on all of them"
            )
        if name in ("CancelledError", "FutureCancelledError", "CommClosedError"):
            return f"the scheduler was lost ({_brief(error)}); give the command again to resume"
        error = error.__cause__ or error.__context__
    return ""


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _close_client() -> None:
    """Closes Beam's connection to Dask, which complains when the scheduler ends before it."""
    from distributed import default_client

    # A connection that failed has no client.
    with contextlib.suppress(ValueError):
        default_client().close()


def _faults(folder: str) -> list[Path]:
    return sorted(Path(folder, WORK).glob("fault-*.txt"))


@contextlib.contextmanager
def _watched(work: Work, numbers: Sequence[int], progress: PhaseProgress) -> Iterator[None]:
    """Moves the progress bar as results appear, the only sign of progress that all runners give."""
    ended = threading.Event()
    left, folder = set(numbers), Path(work.folder)

    def look() -> None:
        found = {number for number in left if result_path(folder, work.phase, number).exists()}
        left.difference_update(found)
        for number in found:
            progress.done(number)

    def watch() -> None:
        while not ended.wait(_LOOK_INTERVAL):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        look()
