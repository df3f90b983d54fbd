"""Processes that work for another one: the only pool of the project."""

import contextlib
import functools
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.processor import usable_cores

# The tool of this process, or the error that its making raised.
_made: list[Any] = []
# The end of the items of `Processes.as_completed`.
_END = object()


class Processes:
    """Processes that each make a tool, such as an encoder, and call functions with it.

    A context manager that ends them.

    Attributes:
      workers: number of processes; 0: functions are called in this process.
    """

    def __init__(
        self,
        workers: int,
        make: Callable = dict,
        arguments: Sequence[Mapping[str, Any]] | Mapping[str, Any] = types.MappingProxyType({}),
        advice: str = "use fewer processes",
    ) -> None:
        """Starts processes when they are first needed.

        Args:
          workers: see the class.
          make: makes the tool, in each process once; a function that other processes can import.
          arguments: of `make`, for all processes or for each of them.
          advice: what to do when a process has died, for the message.
        """
        self.workers, self._advice = workers, advice
        sets = [arguments] if isinstance(arguments, Mapping) else arguments
        by_process = [dict(values) for values in sets] * (max(workers, 1) if len(sets) == 1 else 1)
        self._make_here = functools.cache(lambda: make(**by_process[0]))
        self._pool: ProcessPoolExecutor | None = None
        if workers:
            # They are spawned: a fork would lack the threads of the libraries that compute.
            context = multiprocessing.get_context("spawn")
            start = (context.Value("i", 0), workers, make, by_process)
            self._pool = ProcessPoolExecutor(workers, context, _start_worker, start)

    def call(self, function: Callable, *arguments: Any) -> Any:
        """Returns `function(tool, *arguments)`, computed by one of the processes.

        Raises:
          UserError: if a process has died.
        """
        if self._pool is None:
            return function(self._make_here(), *arguments)
        with self._report_death():
            return self._pool.submit(_call_with_tool, function, *arguments).result()

    def map(self, function: Callable, items: Iterable[Any]) -> list[Any]:
        """Returns `function(tool, item)` of each item; raises as `call`."""
        if self._pool is None:
            return [function(self._make_here(), item) for item in items]
        futures = [self._pool.submit(_call_with_tool, function, item) for item in items]
        with self._report_death():
            return [future.result() for future in futures]

    def as_completed(self, function: Callable, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yields (item, `function(tool, item)`) as soon as each is computed.

        One item more than there are processes is read ahead, so that none waits for the reader.
        After an error nothing is computed any more once it is raised.

        Raises:
          UserError: if a process has died.
        """
        if self._pool is None:
            yield from ((item, function(self._make_here(), item)) for item in items)
            return
        pending: dict[Future, Any] = {}
        try:
            with self._report_death():
                for item in itertools.chain(items, itertools.repeat(_END)):
                    if item is not _END:
                        pending[self._pool.submit(_call_with_tool, function, item)] = item
                        if len(pending) <= self.workers:
                            continue
                    elif not pending:
                        return
                    for future in wait(pending, return_when=FIRST_COMPLETED).done:
                        yield pending.pop(future), future.result()
        finally:
            # Functions that run still write: nothing may be removed or reported before they end.
            for future in pending:
                future.cancel()
            wait(pending)

    @contextlib.contextmanager
    def _report_death(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool:
            raise UserError(
                f"a process has died, perhaps because memory ran out; see above, or {self._advice}"
            ) from None

    def close(self) -> None:
        """Ends the processes."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _start_worker(
    started: Any, workers: int, make: Callable, arguments: Sequence[Mapping[str, Any]]
) -> None:
    """Makes the tool in a new process, on a GPU of its own where there are several."""
    prepare_worker(workers)
    with started.get_lock():
        index = started.value
        started.value += 1
    if devices := os.environ.get("CUDA_VISIBLE_DEVICES"):
        names = devices.split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = names[index % len(names)]
    try:
        _made.append(make(**arguments[index]))
    except UserError as error:
        # An exception here would end the pool, and the main process would not get it.
        _made.append(error)


def _call_with_tool(function: Callable, *arguments: Any) -> Any:
    if isinstance(_made[0], UserError):
        raise _made[0]
    return function(_made[0], *arguments)


def end_with_parent() -> None:
    """Ends this process when the one that started it is gone, even if it was killed."""
    parent = multiprocessing.parent_process()

    def watch(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def prepare_worker(workers: int) -> None:
    """Prepares one of several processes that compute; it ends only when its parent ends.

    Unless the environment says otherwise, it gets its share of the cores. Call it before the
    libraries that compute are imported.
    """
    end_with_parent()
    # An interrupt is left to the parent, which ends the run in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = max(1, usable_cores() // workers)
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
