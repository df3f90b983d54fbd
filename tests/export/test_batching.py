"""Requests are computed together, wait, or are refused."""

import asyncio
import threading

import pytest

from export.service.batching import Batcher, Closing, InputError, Limits, Overloaded


class Gate:
    """Work that notes its batches, and waits for `open` where it is told to."""

    def __init__(self, closed=False):
        self.batches, self.open, self.began = [], threading.Event(), threading.Event()
        if not closed:
            self.open.set()

    def __call__(self, requests):
        self.batches.append([list(request) for request in requests])
        self.began.set()
        assert self.open.wait(60)
        return [ValueError(r[0]) if r[0] == "bad" else [t.upper() for t in r] for r in requests]


def _joined(pieces):
    return [text for piece in pieces for text in piece]


async def _began(gate):
    assert await asyncio.to_thread(gate.began.wait, 60)


def _run(steps, gate, **limits):
    async def run():
        batcher = Batcher(gate, Limits(**({"wait_seconds": 0} | limits)), _joined)
        batcher.start()
        await steps(batcher)
        if isinstance(gate, Gate):
            gate.open.set()
        await batcher.close()
        assert batcher.waiting == 0

    asyncio.run(run())


def test_what_arrives_while_one_is_computed_is_the_next_batch():
    gate = Gate(closed=True)

    async def steps(batcher):
        first = batcher.submit(["a"])
        await _began(gate)
        others = [batcher.submit([text, text]) for text in "bcdef"]
        assert batcher.waiting == 10
        gate.open.set()
        assert await asyncio.gather(first, *others) == [["A"], *([c, c] for c in "BCDEF")]

    _run(steps, gate, batch_texts=6)
    assert [[len(r) for r in batch] for batch in gate.batches] == [[1], [2, 2, 2], [2, 2]]


def test_requests_that_come_together_are_one_batch():
    gate = Gate()

    async def steps(batcher):
        found = await asyncio.gather(*(batcher.submit([text]) for text in "abc"))
        assert found == [["A"], ["B"], ["C"]]

    # The wait ends when the batch is full, long before its time.
    _run(steps, gate, wait_seconds=600, batch_texts=3)
    assert gate.batches == [[["a"], ["b"], ["c"]]]


def test_a_request_larger_than_a_batch_is_computed_in_pieces():
    gate, texts = Gate(), [f"x{i}" for i in range(10)]

    async def steps(batcher):
        assert await batcher.submit(texts) == [text.upper() for text in texts]

    _run(steps, gate, batch_texts=4, wait_seconds=600)
    assert gate.batches == [[texts[:4]], [texts[4:8]], [texts[8:]]]


def test_between_the_pieces_of_large_requests_it_is_the_others_turn():
    gate = Gate(closed=True)

    async def steps(batcher):
        first = batcher.submit(["a"])
        await _began(gate)
        large = [batcher.submit([name] * 5) for name in "bc"]
        small = [batcher.submit([name]) for name in "de"]
        assert batcher.waiting == 12
        gate.open.set()
        assert await asyncio.gather(*large) == [["B"] * 5, ["C"] * 5]
        await asyncio.gather(first, *small)

    _run(steps, gate, batch_texts=3)
    assert gate.batches == [
        [["a"]],
        [["b"] * 3],
        [["c"] * 3],
        [["d"], ["e"]],
        [["b"] * 2],
        [["c"] * 2],
    ]


def test_a_large_request_that_nobody_waits_for_ends_with_its_piece():
    gate = Gate(closed=True)

    async def steps(batcher):
        large = batcher.submit(["a"] * 10)
        await _began(gate)
        other = batcher.submit(["b"])
        assert batcher.waiting == 8
        large.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        gate.open.set()
        assert await other == ["B"]

    _run(steps, gate, batch_texts=3)
    assert gate.batches == [[["a"] * 3], [["b"]]]


def test_a_piece_that_fails_ends_its_request_and_says_which_text():
    batches = []

    def work(requests):
        batches.append(requests)
        return [InputError(r.index("bad")) if "bad" in r else list(r) for r in requests]

    async def steps(batcher):
        with pytest.raises(InputError) as caught:
            await batcher.submit(["a", "b", "c", "d", "bad", "e", "f"])
        assert caught.value.index == 4

    _run(steps, work, batch_texts=3)
    assert len(batches) == 2


def test_no_request_has_more_texts_than_may_wait():
    async def steps(batcher):
        with pytest.raises(Overloaded):
            batcher.submit(["x"] * 6)
        assert await batcher.submit(["x"] * 5) == ["X"] * 5

    _run(steps, Gate(), queue_texts=5)


def test_a_full_queue_refuses_and_takes_again():
    gate = Gate(closed=True)

    async def steps(batcher):
        first = batcher.submit(["a"])
        await _began(gate)
        second = batcher.submit(["b"] * 3)
        with pytest.raises(Overloaded):
            batcher.submit(["c"] * 2)
        third = batcher.submit(["d"])
        gate.open.set()
        await asyncio.gather(first, second, third)
        assert await batcher.submit(["c"] * 2) == ["C", "C"]

    _run(steps, gate, queue_texts=4)


def test_what_nobody_waits_for_is_not_computed():
    gate = Gate(closed=True)

    async def steps(batcher):
        first = batcher.submit(["a"])
        await _began(gate)
        gone, stays = batcher.submit(["b"] * 3), batcher.submit(["c"])
        gone.cancel()
        # One that is being computed is computed, and dropped.
        first.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        gate.open.set()
        assert await stays == ["C"]

    _run(steps, gate)
    assert gate.batches == [[["a"]], [["c"]]]


def test_an_error_belongs_to_its_request():
    gate = Gate()

    async def steps(batcher):
        bad, good = batcher.submit(["bad"]), batcher.submit(["good"])
        assert await good == ["GOOD"]
        with pytest.raises(ValueError, match="bad"):
            await bad

    _run(steps, gate)


def test_work_that_fails_as_a_whole_ends_no_other_work():
    calls = []

    def work(requests):
        calls.append(requests)
        if len(calls) == 1:
            raise RuntimeError("once")
        return requests

    async def steps(batcher):
        with pytest.raises(RuntimeError, match="once"):
            await batcher.submit(["a"])
        assert await batcher.submit(["b"]) == ["b"]

    async def run():
        batcher = Batcher(work, Limits(), _joined)
        batcher.start()
        await steps(batcher)
        await batcher.close()

    asyncio.run(run())


def test_closing_computes_what_waits_and_takes_no_more():
    gate = Gate(closed=True)

    async def steps(batcher):
        first, second = batcher.submit(["a"]), batcher.submit(["b"])
        closing = asyncio.ensure_future(batcher.close())
        await _began(gate)
        with pytest.raises(Closing):
            batcher.submit(["c"])
        gate.open.set()
        await closing
        assert (await first, await second) == (["A"], ["B"])

    async def run():
        batcher = Batcher(gate, Limits(), _joined)
        batcher.start()
        await steps(batcher)

    asyncio.run(run())
