"""Preparation of processes that work for another one."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.processor import usable_cores

_made: list[Any] = []


class Processes:
    """Processes that each hold an encoder of their own; a context manager that ends them.

    Attributes:
      workers: number of processes.
    """

    def __init__(
        self, workers: int, make: Callable, arguments: Sequence[Mapping[str, Any]]
    ) -> None:
        """Starts processes when they are first needed.

        Each process makes its encoder by `make`, a function that other processes can import, from
        one of the `arguments`.
        """
        context = multiprocessing.get_context("spawn")
        self.workers = workers
        self._pool = ProcessPoolExecutor(
            workers, context, _start_worker, (context.Value("i", 0), workers, make, arguments)
        )

    def call(self, function: Callable, *arguments: Any) -> Any:
        """Returns `function(encoder, *arguments)`, computed by one of the processes.

        Raises:
          UserError: if a process has died.
        """
        return self._waited(self._pool.submit(_with_made, function, *arguments).result)

    def map(self, function: Callable, items: Iterable[Any]) -> list[Any]:
        """Returns `function(encoder, item)` of each item; raises as `call`."""
        found = [self._pool.submit(_with_made, function, item) for item in items]
        return self._waited(lambda: [one.result() for one in found])

    def _waited(self, result: Callable[[], Any]) -> Any:
        try:
            return result()
        except BrokenProcessPool:
            raise UserError(
                "a process that embeds texts has died, perhaps because memory ran out; use "
                "fewer processes"
            ) from None

    def close(self) -> None:
        """Ends the processes."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _start_worker(
    started: Any, workers: int, make: Callable, arguments: Sequence[Mapping[str, Any]]
) -> None:
    """Makes the encoder in a new process, on a GPU of its own where there are several."""
    prepare_worker(workers)
    with started.get_lock():
        index = started.value
        started.value += 1
    if devices := os.environ.get("CUDA_VISIBLE_DEVICES"):
        names = devices.split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = names[index % len(names)]
    _made.append(make(**arguments[index]))


def _with_made(function: Callable, *arguments: Any) -> Any:
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
