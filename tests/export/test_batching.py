"""Requests are computed together, wait, or are refused."""

import asyncio
import threading

import numpy as np
import pytest

from export.service.batching import Batcher, Overloaded, _divide
from export.service.settings import Limits


class Gate:
    """Work that notes its batches, and waits for `open` where it is told to."""

    def __init__(self, closed=False, fault=None):
        self.batches, self.open, self.began = [], threading.Event(), threading.Event()
        self.fault = fault or ValueError("bad")
        if not closed:
            self.open.set()

    def __call__(self, items):
        self.batches.append("".join(items))
        self.began.set()
        assert self.open.wait(60)
        if "!" in items:
            raise self.fault
        return np.array([text.upper() for text in items])

    async def wait_until_closed(self):
        assert await asyncio.to_thread(self.began.wait, 60)


def submit(batcher, texts, tokens=1):
    """Puts a text a letter into the queue, each of so many tokens; awaits the result as a text."""
    pieces = batcher.submit(list(texts), np.full(len(texts), tokens))

    async def join():
        return "".join(np.concatenate(await asyncio.gather(*pieces)))

    task = asyncio.ensure_future(join())
    task.pieces = pieces
    return task


def run(steps, gate, **limits):
    async def run_steps():
        batcher = Batcher(gate, Limits(**limits))
        await steps(batcher)
        gate.open.set()
        await batcher.close()
        assert batcher.waiting == 0 and batcher.oldest_seconds == 0

    asyncio.run(run_steps())


def batches_of(*requests, tokens=1, **limits):
    """Returns the batches of requests that arrive while a text `a` is computed."""
    gate = Gate(closed=True)

    async def steps(batcher):
        first = submit(batcher, "a")
        await gate.wait_until_closed()
        others = [submit(batcher, request, tokens) for request in requests]
        assert batcher.waiting == tokens * sum(map(len, requests))
        gate.open.set()
        expected = [text.upper() for text in ("a", *requests)]
        assert await asyncio.gather(first, *others) == expected

    run(steps, gate, **limits)
    assert gate.batches[0] == "a"
    return gate.batches[1:]


def test_requests_that_arrive_during_a_batch_are_the_next_one():
    requests = ["bb", "cc", "dd", "ee", "ff"]
    assert batches_of(*requests, max_batch_tokens=6) == ["bbccdd", "eeff"]


def test_nothing_waits_where_nothing_is_computed():
    gate = Gate()

    async def steps(batcher):
        assert [await submit(batcher, text) for text in "ab"] == ["A", "B"]

    run(steps, gate)
    assert gate.batches == ["a", "b"]


def test_a_request_larger_than_a_batch_is_computed_in_pieces():
    assert batches_of("bcdefghijk", max_batch_tokens=4) == ["bcde", "fghi", "jk"]


def test_short_requests_come_before_the_pieces_of_long_ones(monkeypatch):
    """Long ones get one piece a second even so, and the room that is left."""
    for seconds, expected in (
        (60, ["ccc", "bbb", "fgc", "ddd"]),
        (0, ["ccc", "cdd", "ddd", "bbb"]),
    ):
        monkeypatch.setattr("export.service.batching._LONG_SECONDS", seconds)
        batches = batches_of("bbb", "cccc", "ddddd", "f", "g", max_batch_tokens=3)
        assert batches[:4] == expected


def test_a_batch_takes_about_so_many_seconds(monkeypatch):
    """A batch has as many tokens as their speed allows, and never very few."""
    monkeypatch.setattr("export.service.batching._LEAST_TOKENS", 64)
    for seconds, sizes in ((0, [100, 75, 64, 64]), (1e9, [100, 100, 100, 100])):
        monkeypatch.setattr("export.service.batching._BATCH_SECONDS", seconds)
        gate = Gate()

        async def steps(batcher):
            for _ in range(4):
                await submit(batcher, "a" * batcher._batch_tokens)

        run(steps, gate, max_batch_tokens=100)
        assert [*map(len, gate.batches)] == sizes


def test_a_piece_has_few_tokens_or_one_item():
    assert _divide(np.array([2, 1, 9, 1, 1]), 3) == [slice(0, 2), slice(2, 3), slice(3, 5)]
    assert _divide(np.array([9]), 3) == [slice(0, 1)]
    assert batches_of("bb", tokens=9, max_batch_tokens=4) == ["b", "b"]


def test_a_request_that_nobody_waits_for_is_not_computed():
    """A large request ends with its piece."""
    gate = Gate(closed=True)

    async def steps(batcher):
        large = submit(batcher, "a" * 10)
        await gate.wait_until_closed()
        other = submit(batcher, "b")
        assert batcher.waiting == 8
        gone = submit(batcher, "c" * 3)
        for piece in (*large.pieces, *gone.pieces):
            piece.cancel()
        assert batcher.waiting == 1
        gate.open.set()
        assert await other == "B"
        await asyncio.gather(large, gone, return_exceptions=True)

    run(steps, gate, max_batch_tokens=3)
    assert gate.batches == ["aaa", "b"]


def test_a_full_queue_refuses_and_takes_again():
    """A request larger than the queue is taken where nothing waits."""
    gate = Gate(closed=True)

    async def steps(batcher):
        first = submit(batcher, "a" * 9)
        await gate.wait_until_closed()
        second = submit(batcher, "bbb")
        with pytest.raises(Overloaded):
            submit(batcher, "cc")
        third = submit(batcher, "d")
        assert batcher.oldest_seconds > 0
        gate.open.set()
        await asyncio.gather(first, second, third)
        assert await submit(batcher, "cc") == "CC"

    run(steps, gate, max_queue_tokens=4)


@pytest.mark.parametrize("fault", [ValueError("bad"), SystemExit("bad")])
def test_a_batch_that_fails_is_halved_until_the_fault_is_alone(fault):
    """One bad request of sixteen costs four halvings, and the others get their own results."""
    gate = Gate(closed=True, fault=fault)

    async def steps(batcher):
        first = submit(batcher, "a")
        await gate.wait_until_closed()
        requests = [submit(batcher, "!" if i == 5 else chr(98 + i)) for i in range(16)]
        gate.open.set()
        results = await asyncio.gather(first, *requests, return_exceptions=True)
        assert "bad" in str(results.pop(6))
        assert "".join(results) == "ABCDEFHIJKLMNOPQ"

    run(steps, gate)
    assert len(gate.batches) == 1 + 9


def test_closing_computes_the_queue():
    gate = Gate(closed=True)

    async def steps(batcher):
        results = [submit(batcher, text) for text in "ab"]
        closing = asyncio.ensure_future(batcher.close())
        await gate.wait_until_closed()
        gate.open.set()
        await closing
        assert await asyncio.gather(*results) == ["A", "B"]

    run(steps, gate)
