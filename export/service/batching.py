"""Requests that arrive together are computed together; too many are refused.

While a batch is computed, on a thread of its own, the requests that arrive wait in a queue of
bounded length; the next batch takes from it what fits, counted in tokens. Nothing waits while
nothing is computed. A request of more tokens than a batch is computed in pieces; other requests
have their turn between two pieces, and no further piece follows when nobody waits for the answer.
A batch has no more tokens than were last computed in a fraction of a second, as larger batches are
no faster on a CPU.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

# Tokens that a batch may have before it is known how long they take.
_FEW_TOKENS = 64

Work = Callable[[list[Sequence[Any]]], list[Any]]
"""Items of several requests, or pieces of them -> vectors or exception of each."""


class Overloaded(Exception):
    """The queue is full; the request may be sent again later."""


class Closing(Exception):
    """The service ends and takes no more requests."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a batch and of the queue.

    Attributes:
      batch_tokens: most tokens a batch; a request with more is computed in pieces of as many.
      queue_tokens: most tokens that may wait. A request that would exceed them is refused, unless
        nothing else waits.
      delay_seconds: how much later a request of a whole batch, or more, has its turn than a request
        of a few tokens. It waits as long after a piece of another such request, while shorter
        requests wait.
      batch_seconds: approximate time of a batch.
    """

    batch_tokens: int = 16_384
    queue_tokens: int = 2_000_000
    delay_seconds: float = 1.0
    batch_seconds: float = 0.25


@dataclasses.dataclass(eq=False)
class _Job:
    items: Sequence[Any]
    # Tokens of the first i items.
    sums: np.ndarray
    result: asyncio.Future
    arrived: float
    # The time of its turn; requests with earlier turns come first.
    turn: float = 0.0
    # Number of items that batches have taken, and the results of these pieces.
    taken: int = 0
    found: list[Any] = dataclasses.field(default_factory=list)

    @property
    def left(self) -> int:
        """Tokens of the items that no batch has taken."""
        return int(self.sums[-1] - self.sums[self.taken])


class Batcher:
    """Collects requests into batches: short ones first, large ones piece by piece.

    Attributes:
      waiting: tokens in the queue.
      on_batch: called with the number of requests, of items and of tokens of each batch, the
        seconds for which its new requests have waited, and the seconds that the batch took.
    """

    def __init__(self, work: Work, limits: Limits) -> None:
        self.waiting = 0
        self.on_batch: Callable[[int, int, int, list[float], float], None] = lambda *_: None
        self._work, self._limits = work, limits
        self._queue: list[_Job] = []
        # Tokens per second of the last batch that was not tiny.
        self._rate = 0.0
        # The earliest turn of another piece of any request that is larger than a batch.
        self._piece_turn = 0.0
        self._thread = ThreadPoolExecutor(1, "encode")
        self._closing, self._idle = False, asyncio.Event()
        self._idle.set()

    def submit(self, items: Sequence[Any], tokens: np.ndarray) -> asyncio.Future:
        """Puts a request into the queue and returns the future of its result.

        Cancel the future if nobody waits for it any more.

        Args:
          items: the arguments of `work`.
          tokens: int `[n]`, tokens of each item.

        Raises:
          Overloaded: the queue is full.
          Closing: after `close`.
        """
        if self._closing:
            raise Closing
        loop, sums = asyncio.get_running_loop(), np.concatenate([[0], np.cumsum(tokens)])
        if self.waiting and self.waiting + sums[-1] > self._limits.queue_tokens:
            raise Overloaded
        job = _Job(items, sums, loop.create_future(), time.monotonic())
        self._put(job)
        self.waiting += job.left
        job.result.add_done_callback(lambda _: self._forget(job))
        if self._idle.is_set():
            self._idle.clear()
            # Requests that come in the same turn of the event loop are in the same batch.
            loop.call_soon(self._next)
        return job.result

    def oldest_seconds(self) -> float:
        """Returns how long the oldest request waits for its first batch."""
        waits = (job.arrived for job in self._queue if not job.taken)
        return time.monotonic() - min(waits, default=time.monotonic())

    async def close(self, abandoned: bool = False) -> None:
        """Computes the queue, and ends; if `abandoned`, ends at once and leaves its thread."""
        self._closing = True
        if not abandoned:
            await self._idle.wait()
        self._thread.shutdown(wait=not abandoned, cancel_futures=True)

    def _put(self, job: _Job) -> None:
        """Queues a request; a long one has its turn later."""
        job.turn = time.monotonic() + self._delay(job)
        self._queue.append(job)

    def _delay(self, job: _Job) -> float:
        """Returns by how many seconds a request has its turn later than a short one."""
        return min(1.0, job.left / self._limits.batch_tokens) * self._limits.delay_seconds

    def _forget(self, job: _Job) -> None:
        """Removes the rest of a request that has its answer, or needs none, from the queue."""
        if job in self._queue:
            self._queue.remove(job)
            self.waiting -= job.left

    def _next(self) -> None:
        """Gives the next batch to the thread; with an empty queue, the batcher is idle."""
        if not self._queue:
            self._idle.set()
            return
        jobs, pieces, tokens, waits = self._take()
        loop = asyncio.get_running_loop()

        def compute() -> None:
            began = time.monotonic()
            try:
                results = self._work(pieces)
            except BaseException as error:
                # An encoder of a user's module may even call `sys.exit`; the service goes on.
                failed = error if isinstance(error, Exception) else RuntimeError(repr(error))
                results = [failed] * len(jobs)
            seconds = max(time.monotonic() - began, 1e-6)
            loop.call_soon_threadsafe(computed, results, seconds)

        def computed(results: list[Any], seconds: float) -> None:
            if tokens >= min(_FEW_TOKENS, self._limits.batch_tokens):
                self._rate = tokens / seconds
            self.on_batch(len(jobs), sum(map(len, pieces)), tokens, waits, seconds)
            for job, result in zip(jobs, results):
                self._settle(job, result)
            self._next()

        self._thread.submit(compute)

    def _settle(self, job: _Job, result: Any) -> None:
        """Notes the result of the last piece that was taken of a request."""
        if job.result.done():
            return
        if isinstance(result, Exception):
            job.result.set_exception(result)
            # It is removed now, as the next batch is taken before the future's callback runs.
            self._forget(job)
            return
        job.found.append(result)
        if job.taken == len(job.items):
            job.result.set_result(np.concatenate(job.found) if len(job.found) > 1 else result)

    def _take(self) -> tuple[list[_Job], list[Sequence[Any]], int, list[float]]:
        """Takes the next batch: at least one item, and of each request all or a part.

        Returns:
          The requests, the items of each, the number of their tokens, and the seconds for which
          the new requests among them have waited.
        """
        jobs: list[_Job] = []
        pieces: list[Sequence[Any]] = []
        size, waits, now = 0, [], time.monotonic()
        most = max(_FEW_TOKENS, int(self._rate * self._limits.batch_seconds))
        most = min(most, self._limits.batch_tokens)

        def turn(job: _Job) -> float:
            # Many large requests together have no more turns than a single one.
            return max(job.turn, self._piece_turn) if job.left > most else job.turn

        for job in sorted(self._queue, key=turn):
            room = most - size
            last = int(np.searchsorted(job.sums, job.sums[job.taken] + room, "right")) - 1
            if not jobs:
                # One item may have more tokens than a batch.
                last = max(last, job.taken + 1)
            elif last < len(job.items) and (job.left <= most or turn(job) > now):
                # A request that fits into a batch of its own is not divided, and a longer one does
                # not delay others before its turn.
                break
            if last <= job.taken:
                break
            self._queue.remove(job)
            if not job.taken:
                waits.append(now - job.arrived)
            if job.left > most:
                # The piece takes about the time of a batch.
                self._piece_turn = now + self._limits.batch_seconds + self._delay(job)
            tokens = int(job.sums[last] - job.sums[job.taken])
            pieces.append(job.items[job.taken : last])
            job.taken = last
            jobs.append(job)
            size += tokens
            if job.taken < len(job.items):
                self._put(job)
        self.waiting -= size
        return jobs, pieces, size, waits
