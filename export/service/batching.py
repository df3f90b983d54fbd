"""Requests that arrive together are computed together; too many are refused.

While a batch is computed, on a thread of its own, the requests that arrive wait in a queue of
bounded length; the next batch takes what fits, counted in tokens. Short requests come first, in the
order of their arrival. A request of more tokens than a batch is long: it is computed in pieces,
which get the room that short requests leave, and at least one batch a second. The sooner of two
long requests is the one that would end first if each ran alone. Nothing waits while nothing is
computed.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .settings import Limits

# Seconds that a batch shall take, as larger ones are not faster on a CPU; tokens of a batch before
# their speed is measured, and with the slowest speed.
_BATCH_SECONDS, _FIRST_TOKENS, _LEAST_TOKENS = 0.25, 1024, 512
# Seconds between two batches that begin with a piece of a long request while short ones wait.
_LONG_SECONDS = 1.0


class Overloaded(Exception):
    """The queue is full; the request may be sent again later."""


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A part of a request; `number` is its place in it."""

    is_long: bool
    turn: float
    number: int
    arrived: float
    items: Sequence[Any]
    tokens: int
    result: asyncio.Future


class Batcher:
    """Collects requests into batches by their tokens, short ones first.

    Attributes:
      on_batch: called after each batch with its numbers of pieces, items and tokens, the seconds
        for which the requests that begin in it have waited, and the seconds that it took.
    """

    def __init__(self, embed: Callable[[list[Any]], np.ndarray], limits: Limits) -> None:
        """Takes a function of n items -> float array `[n, …]`, which is called on one thread."""
        self.on_batch: Callable[[tuple[int, ...], list[float], float], None] = lambda *_: None
        self._embed, self._limits = embed, limits
        self._batch_tokens = min(_FIRST_TOKENS, limits.max_batch_tokens)
        self._queue: list[_Piece] = []
        # When a piece of a long request comes before short ones.
        self._long_turn = 0.0
        self._thread = ThreadPoolExecutor(1, "encode")
        self._running: asyncio.Task | None = None

    @property
    def waiting(self) -> int:
        """Tokens in the queue."""
        return sum(piece.tokens for piece in self._queue if not piece.result.done())

    def submit(self, items: Sequence[Any], tokens: np.ndarray) -> list[asyncio.Future]:
        """Puts a request into the queue and returns the futures of its pieces' arrays, in order.

        Cancel the futures if nobody waits for them any more, and they are not computed.

        Args:
          items: the arguments of `embed`, at least one.
          tokens: int `[n]`, tokens of each item.

        Raises:
          Overloaded: the queue is full.
        """
        waiting, total, now = self.waiting, int(tokens.sum()), time.monotonic()
        if waiting and waiting + total > self._limits.max_queue_tokens:
            raise Overloaded
        is_long, results = total > self._batch_tokens, []
        turn = now + (_BATCH_SECONDS * total / self._batch_tokens if is_long else 0)
        for number, part in enumerate(_divide(tokens, self._batch_tokens)):
            size, result = int(tokens[part].sum()), asyncio.get_running_loop().create_future()
            self._queue.append(_Piece(is_long, turn, number, now, items[part], size, result))
            results.append(result)
        if self._running is None or self._running.done():
            # It begins after the requests that come in the same turn of the event loop.
            self._running = asyncio.create_task(self._run())
        return results

    @property
    def oldest_seconds(self) -> float:
        """How long the oldest request waits for its first batch."""
        firsts = (piece for piece in self._queue if not piece.number and not piece.result.done())
        return max((time.monotonic() - piece.arrived for piece in firsts), default=0.0)

    async def close(self) -> None:
        """Computes the queue, and ends the thread."""
        if self._running:
            await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        """Computes batches until the queue is empty."""
        while pieces := self._take():
            began, loop = time.monotonic(), asyncio.get_running_loop()
            results = await loop.run_in_executor(self._thread, self._compute, pieces)
            seconds, tokens = time.monotonic() - began, sum(piece.tokens for piece in pieces)
            if tokens >= min(_LEAST_TOKENS, self._limits.max_batch_tokens):
                # One slow batch of several changes the size by a quarter at most.
                change = _BATCH_SECONDS * tokens / max(seconds, 1e-6) - self._batch_tokens
                fitting = max(self._batch_tokens + int(change / 4), _LEAST_TOKENS)
                self._batch_tokens = min(fitting, self._limits.max_batch_tokens)
            for piece, result in zip(pieces, results):
                if isinstance(result, Exception) and not piece.result.done():
                    piece.result.set_exception(result)
                elif not piece.result.done():
                    piece.result.set_result(result)
            waits = [began - piece.arrived for piece in pieces if not piece.number]
            items = sum(len(piece.items) for piece in pieces)
            self.on_batch((len(pieces), items, tokens), waits, seconds)

    def _take(self) -> list[_Piece]:
        """Takes the pieces of the next batch from the queue, at least one if there is any."""
        room, now = self._batch_tokens, time.monotonic()
        is_turn_of_long = now >= self._long_turn
        waiting = [piece for piece in self._queue if not piece.result.done()]
        waiting.sort(key=lambda piece: (piece.is_long != is_turn_of_long, piece.turn, piece.number))
        pieces, self._queue = list[_Piece](), []
        for piece in waiting:
            if pieces and piece.tokens > room:
                self._queue.append(piece)
                continue
            pieces.append(piece)
            room -= piece.tokens
            if piece.is_long:
                self._long_turn = now + _LONG_SECONDS
        return pieces

    def _compute(self, pieces: list[_Piece]) -> list[np.ndarray | Exception]:
        """Computes pieces in one call; if it fails, each half, until the faulty one is alone."""
        try:
            vectors = self._embed([item for piece in pieces for item in piece.items])
        except BaseException as error:
            # An encoder of a user's module may even call `sys.exit`; the service goes on.
            if len(pieces) == 1:
                return [error if isinstance(error, Exception) else RuntimeError(repr(error))]
            half = len(pieces) // 2
            return self._compute(pieces[:half]) + self._compute(pieces[half:])
        ends = np.cumsum([len(piece.items) for piece in pieces])
        # Copies, as a view would hold the vectors of all requests.
        return [part.copy() for part in np.split(vectors, ends[:-1])]


def _divide(tokens: np.ndarray, most: int) -> list[slice]:
    """Returns the pieces of a request: as many items as have `most` tokens, and at least one."""
    pieces, start, size = [], 0, 0
    for end, count in enumerate(tokens.tolist()):
        if end > start and size + count > most:
            pieces.append(slice(start, end))
            start, size = end, 0
        size += count
    return [*pieces, slice(start, len(tokens))]
