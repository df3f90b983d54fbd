"""The parts of a job computed by Apache Beam, an optional extra, here, on Dask or elsewhere."""

import argparse
import contextlib
import difflib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text
from official_cmlm.common.job import PARTS, Job, Part, compute_part, part_path

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
# The tool of this process, with the function and the arguments that made it.
_made: list[Any] = []
_making = threading.Lock()


class BeamWorkers:
    """Machines that compute parts in place of `Processes`, by a pipeline of Beam.

    Every machine must see the job's folder and its input under the same paths.
    """

    def __init__(self, runner: str, arguments: Sequence[str] = ()) -> None:
        """Starts nothing yet.

        Args:
          runner: InProcess, or a runner of Beam, with or without "Runner" at its end.
          arguments: flags of Beam and of its runner.

        Raises:
          UserError: Beam is not installed, or does not know the runner or a flag.
        """
        self._name, self._arguments = runner.lower().removesuffix("runner"), list(arguments)
        if self._name in _DIRECT:
            self._name = IN_PROCESS
        self._make_runner()
        if self._name not in _PORTABLE:
            _check_arguments(self._arguments)

    def compute(
        self,
        job: Job,
        function: Callable[..., dict[str, Any]],
        parts: Iterable[Part],
        bar: Any,
        is_whole: Callable[[dict[str, Any]], bool] = lambda result: True,
        *,
        make: Callable,
        arguments: Mapping[str, Any],
    ) -> dict[str, dict[str, Any]]:
        """Computes the parts that are not done, as `Job.compute` does.

        The tool is made by `make(**arguments)`, once in each process, for all of its threads.
        """
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        results: dict[str, dict[str, Any]] = {}
        left = list(job.find_left(parts, results, bar, is_whole))
        if not left:
            return results
        compute = functools.partial(
            compute_noting_faults,
            make=make,
            arguments=dict(arguments),
            folder=job.folder,
            function=function,
        )
        _remove_old(job.folder, left)
        try:
            with _watch(job.folder, left, bar):
                # Without arguments Beam would parse those of this program.
                options = PipelineOptions(self._arguments)
                with beam.Pipeline(self._make_runner(), options) as pipeline:
                    elements = pipeline | beam.Create(left)
                    if self._name not in (IN_PROCESS, "dask"):
                        # This spreads elements over workers; those two runners do it anyway.
                        elements |= beam.Reshuffle()
                    _ = elements | beam.Map(compute)
        except Exception as error:
            # Each runner wraps an error of a worker in its own way.
            for path in _find_faults(job.folder):
                raise UserError(path.read_text(encoding="utf-8")) from None
            if self._name != IN_PROCESS and (trouble := _describe_trouble(error)):
                raise UserError(f"{job.folder}: {trouble}") from None
            raise
        finally:
            if self._name == "dask":
                _close_client()
        for part in left:
            result = job.result(part.name)
            if result is None:
                raise UserError(f"{job.folder}: {part.name} was not computed; see the runner's log")
            results[part.name] = result
        return results

    def _make_runner(self) -> "PipelineRunner":
        try:
            from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
            from apache_beam.runners.runner import create_runner

            if self._name == IN_PROCESS:
                return BundleBasedDirectRunner()
            return create_runner(_DASK if self._name == "dask" else self._name)
        except ImportError as error:
            raise UserError(
                f"--runner={self._name} is not installed ({error}); in the checkout of this"
                ' project, run pip install ".[beam]"'
            ) from None
        except ValueError as error:
            raise UserError(f"--runner={self._name}: {str(error)[:200]}") from None


def compute_noting_faults(
    part: Part,
    make: Callable,
    arguments: Mapping[str, Any],
    folder: Path,
    function: Callable[..., dict[str, Any]],
) -> str:
    """Computes a part on a worker; a pipeline of your own can map it over parts.

    A `UserError` is written to a file too, which the main program reads. Returns the part's name.
    """
    try:
        with _making:
            if _made[:2] != [make, arguments]:
                _made[:] = [make, arguments, make(**arguments)]
            tool = _made[2]
        compute_part(tool, part, folder, function)
    except UserError as error:
        atomic_write_text(folder / PARTS / f"fault-{part.name}.txt", str(error))
        raise
    return part.name


def _remove_old(folder: Path, left: Iterable[Part]) -> None:
    """Removes what earlier runs have left of these parts, as files are the sign of progress."""
    (folder / PARTS).mkdir(exist_ok=True)
    for path in [*_find_faults(folder), *(part_path(folder, part.name) for part in left)]:
        path.unlink(missing_ok=True)


def _find_faults(folder: Path) -> list[Path]:
    return sorted((folder / PARTS).glob("fault-*.txt"))


def _check_arguments(arguments: list[str]) -> None:
    """Raises `UserError` for a flag that Beam would ignore with a line in its log."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parsers: list[argparse.ArgumentParser] = []
    PipelineOptions([]).get_all_options(add_extra_args_fn=parsers.append)
    _, unknown = parsers[0].parse_known_args(arguments)
    for argument in unknown:
        names = [flag for action in parsers[0]._actions for flag in action.option_strings]
        near = difflib.get_close_matches(argument.partition("=")[0], names, 1)
        hint = f"; did you mean {near[0]}?" if near else "; see the flags of Beam and its runner"
        raise UserError(f"{argument}: Apache Beam has no such flag{hint}")


def _describe_trouble(error: BaseException | None) -> str:
    """Returns a message for known failures of clusters; empty for others."""
    while error:
        name = type(error).__name__
        if name == "KilledWorker":
            return (
                "several workers have died at the same part, perhaps out of memory"
                f" ({_shorten(error)}); give them more, or fewer threads each, and the same"
                " command to resume; or begin again with smaller parts in another folder"
            )
        if isinstance(error, ModuleNotFoundError) or "deserialization" in str(error):
            return (
                f"scheduler or workers cannot load the work ({_shorten(error)}); install this"
                " project and its requirements on all of them, in the same versions"
            )
        if isinstance(error, FileNotFoundError) or "No such file" in str(error):
            return (
                f"a worker does not see a file that this program sees ({_shorten(error)}); mount"
                " input and output under the same paths on all of them"
            )
        if name in ("CancelledError", "FutureCancelledError", "CommClosedError"):
            return f"the scheduler was lost ({_shorten(error)}); give the command again to resume"
        error = error.__cause__ or error.__context__
    return ""


def _shorten(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__


def _close_client() -> None:
    """Closes Beam's connection to Dask, which complains when the scheduler ends before it."""
    from distributed import default_client

    # A connection that failed has no client.
    with contextlib.suppress(ValueError):
        default_client().close()


@contextlib.contextmanager
def _watch(folder: Path, parts: Iterable[Part], bar: Any) -> Iterator[None]:
    """Moves the progress bar as results appear, the only sign of progress that all runners give."""
    ended = threading.Event()
    left = {part.name: part.size for part in parts}

    def look() -> None:
        for name in [name for name in left if part_path(folder, name).exists()]:
            bar.update(left.pop(name))

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
