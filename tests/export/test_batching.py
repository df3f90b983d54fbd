"""Requests are computed together, wait, or are refused."""

import asyncio
import threading
import types

import numpy as np
import pytest

from export.service.batching import Batcher, Closing, Limits, Overloaded


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
        return [ValueError(r[0]) if r[0] == "bad" else _upper(r) for r in requests]


def _upper(texts):
    return np.array([text.upper() for text in texts])


def _same(found, wanted):
    return [each.tolist() for each in found] == wanted


def _submit(batcher, texts, tokens=1):
    """Puts texts into the queue, each of so many tokens."""
    return batcher.submit(texts, np.full(len(texts), tokens))


async def _began(gate):
    assert await asyncio.to_thread(gate.began.wait, 60)


def _run(steps, work, **limits):
    async def run():
        batcher = Batcher(work, Limits(**limits))
        await steps(batcher)
        if isinstance(work, Gate):
            work.open.set()
        await batcher.close()
        assert batcher.waiting == 0

    asyncio.run(run())


def _batches(*requests, tokens=1, **limits):
    """Returns the batches of requests that arrive while a text `a` is computed."""
    gate = Gate(closed=True)

    async def steps(batcher):
        first = _submit(batcher, ["a"])
        await _began(gate)
        others = [_submit(batcher, request, tokens) for request in requests]
        assert batcher.waiting == tokens * sum(map(len, requests))
        gate.open.set()
        wanted = [[text.upper() for text in request] for request in (["a"], *requests)]
        assert _same(await asyncio.gather(first, *others), wanted)

    _run(steps, gate, **limits)
    return gate.batches[1:]


def test_what_arrives_while_one_is_computed_is_the_next_batch():
    batches = _batches(*([text, text] for text in "bcdef"), batch_tokens=6)
    assert batches == [[["b"] * 2, ["c"] * 2, ["d"] * 2], [["e"] * 2, ["f"] * 2]]


def test_nothing_waits_for_others_where_nothing_is_computed():
    gate = Gate()

    async def steps(batcher):
        for text in "ab":
            assert (await _submit(batcher, [text])).tolist() == [text.upper()]

    _run(steps, gate)
    assert gate.batches == [[["a"]], [["b"]]]


def test_a_request_larger_than_a_batch_is_computed_in_pieces():
    gate, texts = Gate(), [f"x{i}" for i in range(10)]

    async def steps(batcher):
        assert (await _submit(batcher, texts)).tolist() == [text.upper() for text in texts]

    _run(steps, gate, batch_tokens=4)
    assert gate.batches == [[texts[:4]], [texts[4:8]], [texts[8:]]]


def test_short_requests_come_before_the_pieces_of_long_ones():
    """A piece that is not due does not delay them, even where it has room beside them."""
    batches = _batches(["b"] * 5, ["c"] * 5, ["d"], ["e"], batch_tokens=3, delay_seconds=60)
    assert batches[0] == [["d"], ["e"]]


def test_many_long_requests_have_no_more_turns_than_one(monkeypatch):
    """One of three that are due has a piece, and then it is the turn of the short ones."""
    gate, now = Gate(closed=True), 0.0
    clock = types.SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("export.service.batching.time", clock)

    async def steps(batcher):
        nonlocal now
        first = _submit(batcher, ["a"])
        await _began(gate)
        large = [_submit(batcher, [name] * 9) for name in "bcd"]
        now = 10.0
        small = [_submit(batcher, [name]) for name in "efg"]
        gate.open.set()
        await asyncio.gather(first, *large, *small)

    _run(steps, gate, batch_tokens=3, delay_seconds=1)
    assert gate.batches[:4] == [[["a"]], [["b"] * 3], [["e"], ["f"], ["g"]], [["c"] * 3]]


@pytest.mark.parametrize(("seconds", "largest"), [(0, 64), (1e9, 100)])
def test_a_batch_takes_about_so_many_seconds(seconds, largest):
    """A few tokens are computed first, then as many as the last ones' speed allows."""
    gate = Gate()

    async def steps(batcher):
        assert len(await _submit(batcher, ["a"] * 400)) == 400

    _run(steps, gate, batch_tokens=100, batch_seconds=seconds)
    sizes = [len(batch[0]) for batch in gate.batches]
    assert sizes[0] == 64 and max(sizes) == largest and sum(sizes) == 400


def test_a_long_request_waits_no_longer_than_the_bound():
    """With a bound of 0 the order is that of arrival."""
    batches = _batches(["b"] * 3, ["c"], batch_tokens=3, delay_seconds=0)
    assert batches == [[["b"] * 3], [["c"]]]


def test_a_batch_is_full_by_tokens_and_one_text_may_have_more():
    assert _batches(["b"] * 2, tokens=9, batch_tokens=4) == [[["b"]], [["b"]]]
    two = {"tokens": 2, "batch_tokens": 4}
    assert _batches(["b"], ["c"], ["d"], **two) == [[["b"], ["c"]], [["d"]]]


def test_what_nobody_waits_for_is_not_computed():
    """A large request ends with its piece."""
    gate = Gate(closed=True)

    async def steps(batcher):
        large = _submit(batcher, ["a"] * 10)
        await _began(gate)
        other = _submit(batcher, ["b"])
        assert batcher.waiting == 8
        gone = _submit(batcher, ["c"] * 3)
        large.cancel()
        gone.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        gate.open.set()
        assert (await other).tolist() == ["B"]

    _run(steps, gate, batch_tokens=3)
    assert gate.batches == [[["a"] * 3], [["b"]]]


def test_a_piece_that_fails_ends_its_request():
    batches = []

    def work(requests):
        batches.append(requests)
        return [ValueError("bad") if "bad" in r else _upper(r) for r in requests]

    async def steps(batcher):
        with pytest.raises(ValueError, match="bad"):
            await _submit(batcher, ["a", "b", "c", "d", "bad", "e", "f"])

    _run(steps, work, batch_tokens=3)
    assert len(batches) == 2


def test_a_full_queue_refuses_and_takes_again():
    gate = Gate(closed=True)

    async def steps(batcher):
        first = _submit(batcher, ["a"])
        await _began(gate)
        second = _submit(batcher, ["b"] * 3)
        with pytest.raises(Overloaded):
            _submit(batcher, ["c"] * 2)
        third = _submit(batcher, ["d"])
        gate.open.set()
        await asyncio.gather(first, second, third)
        assert (await _submit(batcher, ["c"] * 2)).tolist() == ["C", "C"]

    _run(steps, gate, queue_tokens=4)


def test_an_error_belongs_to_its_request():
    gate = Gate()

    async def steps(batcher):
        bad, good = _submit(batcher, ["bad"]), _submit(batcher, ["good"])
        assert (await good).tolist() == ["GOOD"]
        with pytest.raises(ValueError, match="bad"):
            await bad

    _run(steps, gate)


def test_work_that_fails_as_a_whole_ends_no_other_work():
    calls = []

    def work(requests):
        calls.append(requests)
        if len(calls) == 1:
            raise RuntimeError("once")
        return [_upper(r) for r in requests]

    async def steps(batcher):
        with pytest.raises(RuntimeError, match="once"):
            await _submit(batcher, ["a"])
        assert (await _submit(batcher, ["b"])).tolist() == ["B"]

    _run(steps, work)


def test_closing_computes_what_waits_and_takes_no_more():
    gate = Gate(closed=True)

    async def steps(batcher):
        first, second = _submit(batcher, ["a"]), _submit(batcher, ["b"])
        closing = asyncio.ensure_future(batcher.close())
        await _began(gate)
        with pytest.raises(Closing):
            _submit(batcher, ["c"])
        gate.open.set()
        await closing
        assert _same([await first, await second], [["A"], ["B"]])

    _run(steps, gate)
