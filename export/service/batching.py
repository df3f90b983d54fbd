"""Requests that arrive together are computed together; too many are refused.

While a batch is computed, on a thread of its own, the requests that arrive wait in a queue of
bounded length; the next batch takes from it what fits. A request of more texts than a batch is
computed in pieces, between which it is the others' turn, and which end when nobody waits for it.
"""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Work = Callable[[list[Sequence[str]]], list[Any]]
"""Texts of several requests, or pieces of them -> result or exception of each."""

Join = Callable[[list[Any]], Any]
"""Results of the pieces of a request, in order -> its result."""


class Overloaded(Exception):
    """The queue is full; the request may be sent again later."""


class Closing(Exception):
    """The service ends and takes no more requests."""


class InputError(Exception):
    """One text of a request is at fault.

    Attributes:
      index: of the text; `Work` says it of the piece, a request gets it of all its texts.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a batch and of the queue.

    Attributes:
      batch_texts: most texts a batch; a request with more is computed in pieces of as many.
      wait_seconds: how long a request waits for others when nothing is computed. 0: not at all.
      queue_texts: texts that may wait. A request is refused when they are more with it.
    """

    batch_texts: int = 256
    wait_seconds: float = 0.002
    queue_texts: int = 8192


@dataclasses.dataclass(eq=False)
class _Job:
    texts: Sequence[str]
    result: asyncio.Future
    # Texts that are computed, or that a batch has taken, and the results of these pieces.
    taken: int = 0
    found: list[Any] = dataclasses.field(default_factory=list)


class Batcher:
    """Collects requests into batches: in the order of their arrival, large ones piece by piece.

    Attributes:
      waiting: texts in the queue.
      on_batch: called with the number of requests and of texts of each batch.
    """

    def __init__(self, work: Work, limits: Limits, join: Join) -> None:
        self.waiting = 0
        self.on_batch: Callable[[int, int], None] = lambda requests, texts: None
        self._work, self._limits, self._join = work, limits, join
        self._queue: deque[_Job] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "encode")
        self._closing = False
        self._task: asyncio.Task | None = None

    def start(self) -> None:
        """Begins to work; within a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def submit(self, texts: Sequence[str]) -> asyncio.Future:
        """Puts a request into the queue; cancel the future of one that nobody waits for.

        Raises:
          Overloaded: the queue is full.
          Closing: after `close`.
        """
        if self._closing:
            raise Closing
        if self.waiting + len(texts) > self._limits.queue_texts:
            raise Overloaded
        job = _Job(texts, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self.waiting += len(texts)
        job.result.add_done_callback(lambda _: self._forget(job))
        self._arrived.set()
        return job.result

    async def close(self) -> None:
        """Computes what is in the queue, and ends."""
        self._closing = True
        self._arrived.set()
        if self._task:
            await self._task
        self._thread.shutdown()

    def _forget(self, job: _Job) -> None:
        """Takes out of the queue what is left of a request that has its answer, or needs none."""
        if job in self._queue:
            self._queue.remove(job)
            self.waiting -= len(job.texts) - job.taken

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                await self._wait_for_others()
                continue
            jobs, texts = self._take()
            self.on_batch(len(jobs), sum(map(len, texts)))
            try:
                results = await loop.run_in_executor(self._thread, self._work, texts)
            except Exception as error:
                results = [error] * len(jobs)
            for job, piece, result in zip(jobs, texts, results):
                self._settle(job, len(piece), result)

    def _settle(self, job: _Job, size: int, result: Any) -> None:
        """Notes the result of the last piece that was taken of a request."""
        if job.result.done():
            return
        if isinstance(result, Exception):
            if isinstance(result, InputError):
                result.index += job.taken - size
            job.result.set_exception(result)
            # Now, as the next batch is taken before the callback runs.
            self._forget(job)
            return
        job.found.append(result)
        if job.taken == len(job.texts):
            job.result.set_result(self._join(job.found) if len(job.found) > 1 else result)

    async def _wait_for_others(self) -> None:
        """Waits until a batch is full, or for as long as is set."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._limits.wait_seconds
        while self.waiting < self._limits.batch_texts and not self._closing:
            left = end - loop.time()
            if left <= 0:
                return
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), left)
            except TimeoutError:
                return

    def _take(self) -> tuple[list[_Job], list[Sequence[str]]]:
        """Takes the next batch: at least one request, and all or a part of its texts."""
        jobs: list[_Job] = []
        pieces: list[Sequence[str]] = []
        most, size = self._limits.batch_texts, 0
        while self._queue:
            job = self._queue[0]
            piece = job.texts[job.taken : job.taken + most]
            if jobs and size + len(piece) > most:
                break
            self._queue.popleft()
            job.taken += len(piece)
            if job.taken < len(job.texts):
                # Behind those that wait already; its first piece has filled this batch.
                self._queue.append(job)
            jobs.append(job)
            pieces.append(piece)
            size += len(piece)
        self.waiting -= size
        return jobs, pieces
