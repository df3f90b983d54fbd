"""Processes that work for another one: the only pool of the project."""

import contextlib
import functools
import itertools
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.processor import usable_cores

# The tool of this process, or the error that its making raised.
_made: list[Any] = []
# The function that gets the moves of this process, see `Moves`.
_moves: list[Callable[[int], object]] = []
# The end of the items of `Processes.as_completed`.
_END = object()
# Seconds between two looks at the moves.
_LOOK_INTERVAL = 0.2


class Processes:
    """Processes that each make a tool, such as an encoder, and call functions with it.

    A context manager that ends them; after Ctrl-C at once, whatever they do.

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
            # Each process has its own number here: it might be killed while it held a lock.
            self._moved = context.RawArray("q", workers)
            end, self._end = context.Pipe(duplex=False)
            start = (context.Value("i", 0), workers, make, by_process, self._moved, end)
            self._pool = ProcessPoolExecutor(workers, context, _start_worker, start)

    def call(self, function: Callable, *arguments: Any) -> Any:
        """Returns `function(tool, *arguments)`, computed by one of the processes.

        Raises:
          UserError: if a process has died.
        """
        if self._pool is None:
            return function(self._make_here(), *arguments)
        with self._report_death():
            return self._submit(function, *arguments).result()

    def map(self, function: Callable, items: Iterable[Any]) -> list[Any]:
        """Returns `function(tool, item)` of each item; raises as `call`."""
        if self._pool is None:
            return [function(self._make_here(), item) for item in items]
        futures = [self._submit(function, item) for item in items]
        with self._report_death():
            return [future.result() for future in futures]

    def _submit(self, function: Callable, *arguments: Any) -> Future:
        if not hasattr(signal, "pthread_sigmask"):
            return self._pool.submit(_call_with_tool, function, *arguments)
        # This may start a process, which inherits that it gets no interrupt; this one ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(_call_with_tool, function, *arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def as_completed(
        self,
        function: Callable,
        items: Iterable[Any],
        update: Callable[[int], object] = lambda count: None,
    ) -> Iterator[tuple[Any, Any]]:
        """Yields (item, `function(tool, item)`) as soon as each is computed.

        One item more than there are processes is read ahead, so that none waits for the reader.
        After an error nothing is computed any more once it is raised.

        Args:
          function, items: see above.
          update: called with each difference that the functions tell a `Moves`.

        Raises:
          UserError: if a process has died.
        """
        if self._pool is None:
            _moves[:] = [update]
            yield from ((item, function(self._make_here(), item)) for item in items)
            return
        seen = sum(self._moved)
        pending: dict[Future, Any] = {}
        try:
            with self._report_death():
                for item in itertools.chain(items, itertools.repeat(_END)):
                    if item is not _END:
                        pending[self._submit(function, item)] = item
                        if len(pending) <= self.workers:
                            continue
                    elif not pending:
                        return
                    done: Collection[Future] = ()
                    while not done:
                        done = wait(pending, _LOOK_INTERVAL, FIRST_COMPLETED).done
                        seen, before = sum(self._moved), seen
                        update(seen - before)
                    for future in done:
                        yield pending.pop(future), future.result()
        except KeyboardInterrupt:
            # The functions that run end with their processes.
            self._end.close()
            wait(pending)
            raise
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

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if self._pool and kind is not None and issubclass(kind, KeyboardInterrupt):
            self._end.close()
        self.close()


def _start_worker(
    started: Any,
    workers: int,
    make: Callable,
    arguments: Sequence[Mapping[str, Any]],
    moved: Any,
    end: Any,
) -> None:
    """Makes the tool in a new process, on a GPU of its own where there are several."""
    prepare_worker(workers, end)
    with started.get_lock():
        index = started.value
        started.value += 1

    def count_move(count: int) -> None:
        moved[index] += count

    _moves[:] = [count_move]
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


class Moves:
    """How much is done of an item of `Processes.as_completed`, told while it is computed.

    A context manager; at its end it counts as nothing again, as the whole item then counts.
    """

    def __init__(self, size: float = math.inf) -> None:
        self._size, self._done = size, 0

    def show(self, done: int) -> None:
        """Tells how much is done now, at most the size."""
        count = min(done, self._size) - self._done
        self._done += count
        for move in _moves:
            move(count)

    def add(self, count: int) -> None:
        """Tells that more is done."""
        self.show(self._done + count)

    def __enter__(self) -> "Moves":
        return self

    def __exit__(self, *exception: object) -> None:
        self.show(0)


def end_with_parent(*ends: Any) -> None:
    """Ends this process when the one that started it is gone, even if it was killed.

    It ends too when the other end of one of these connections is closed.
    """
    parent = multiprocessing.parent_process()

    def watch(sentinel: int) -> None:
        multiprocessing.connection.wait([sentinel, *ends])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def prepare_worker(workers: int, *ends: Any) -> None:
    """Prepares one of several processes that compute; `end_with_parent` ends it.

    Unless the environment says otherwise, it gets its share of the cores. Call it before the
    libraries that compute are imported.
    """
    end_with_parent(*ends)
    # An interrupt is left to the parent, which ends the run in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threads = max(1, usable_cores() // workers)
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))
