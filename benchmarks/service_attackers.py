"""Clients that would spoil the HTTP service for others, for `benchmarks.service --attackers`.

Each kind is a function of (connect, end), which is called again and again until `end`, in
`time.monotonic`'s seconds. Each kind connects from an address of its own in 127.0.0.0/8, so that
the service can tell it from honest clients.
"""

import contextlib
import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable

Address = tuple[str, int]

# Connections that each slow kind holds at once.
_HELD = 32
# Seconds between two bytes of a slow client.
_PAUSE = 1.0
_HEAD = "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def start(address: Address, seconds: float) -> multiprocessing.Process:
    """Starts all kinds in a process of their own, which ends after `seconds`."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_attack, args=(address, seconds), daemon=True)
    process.start()
    return process


def _attack(address: Address, seconds: float) -> None:
    """Runs a thread of each kind."""
    end = time.monotonic() + seconds
    threads = []
    for number, kind in enumerate(KINDS.values(), 2):
        source = f"127.0.0.{number}"
        threads.append(threading.Thread(target=_repeat, args=(kind, address, source, end)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _repeat(kind: Callable, address: Address, source: str, end: float) -> None:
    def connect() -> socket.socket:
        return socket.create_connection(address, timeout=60, source_address=(source, 0))

    while time.monotonic() < end:
        # The service closes slow connections, as it should.
        with contextlib.suppress(OSError):
            kind(connect, end)


def _request(texts: list[str]) -> bytes:
    body = json.dumps({"model": "model", "input": texts}).encode()
    return f"{_HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _drip(connect: Callable, end: float, begin: bytes, rest: bytes) -> None:
    """Sends `begin` on many connections, then one byte of `rest` a second on each of them."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect()) for _ in range(_HELD)]
        for each in held:
            each.sendall(begin)
        for byte in rest:
            if time.monotonic() >= end:
                return
            for each in held:
                each.sendall(bytes([byte]))
            time.sleep(_PAUSE)


def _slow_header(connect: Callable, end: float) -> None:
    _drip(connect, end, _HEAD.encode(), b"X-Padding: " + b"a" * 1000)


def _slow_body(connect: Callable, end: float) -> None:
    whole = _request(["a slow text " * 80])
    _drip(connect, end, whole[:-900], whole[-900:])


def _slow_reader(connect: Callable, end: float) -> None:
    """Asks for large answers, of which it reads a byte a second."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect()) for _ in range(4)]
        for each in held:
            each.sendall(_request(["a text"] * 500))
        while time.monotonic() < end:
            for each in held:
                each.recv(1)
            time.sleep(_PAUSE)


def _flood(connect: Callable, end: float) -> None:
    """Opens connections that send nothing, more than the service holds."""
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            if time.monotonic() >= end:
                return
            stack.enter_context(connect())
            time.sleep(0.005)


def _long_texts(connect: Callable, end: float) -> None:
    """Asks for 2,048 long texts and waits for the answer."""
    with connect() as connection:
        connection.sendall(_request(["a long text of many words " * 40] * 2048))
        while time.monotonic() < end and connection.recv(1 << 16):
            pass


def _malformed(connect: Callable, end: float) -> None:
    with connect() as connection:
        connection.sendall(_request(["a text"])[:-2] + b"..")
        connection.recv(1 << 16)
    time.sleep(0.01)


KINDS = {
    "slow header": _slow_header,
    "slow body": _slow_body,
    "slow reader": _slow_reader,
    "flood of connections": _flood,
    "2,048 long texts": _long_texts,
    "malformed JSON": _malformed,
}
