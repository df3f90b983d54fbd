"""Limits that uvicorn lacks: for connections that send no request, or read no answer.

uvicorn's `limit_concurrency` counts connections, silent ones too, and has no time limit before the
first request; `timeout_keep_alive` is for the time between requests.
"""

import asyncio
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """How long, and how many, connections are kept.

    Attributes:
      header_seconds: until the headers of a request are complete, from the connection or the first
        byte after the last answer.
      stalled_seconds: for which a client may read nothing of an answer that waits for it.
      connections: at once; with more, that is closed which has waited longest for a whole request.
    """

    header_seconds: float = 10.0
    stalled_seconds: float = 60.0
    connections: int = 512


def http_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Returns uvicorn's protocol with these limits, for `uvicorn.Config(http=…)`."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    # Connections without a whole request, in the order in which they began to wait.
    waiting: dict[asyncio.Protocol, None] = {}

    class Protocol(H11Protocol):
        _stalled: asyncio.TimerHandle | None = None
        _headers: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._watch()
            if len(self.connections) > limits.connections and waiting:
                oldest: Any = next(iter(waiting))
                oldest.transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            self._headers, self._stalled = _stop(self._headers), _stop(self._stalled)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # uvicorn's own time until the next request has begun.
            self._watch(timed=False)

        def pause_writing(self) -> None:
            super().pause_writing()
            _stop(self._stalled)
            self._stalled = self.loop.call_later(limits.stalled_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stalled = _stop(self._stalled)

        def _watch(self, timed: bool = True) -> None:
            """Notes whether a request is awaited; bytes that arrive do not prolong the wait."""
            if self.transport.is_closing():
                return
            if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                waiting.setdefault(self)
            else:
                waiting.pop(self, None)
            if self.conn.their_state is not h11.IDLE:
                self._headers = _stop(self._headers)
            elif timed and not self._headers:
                self._headers = self.loop.call_later(limits.header_seconds, self.transport.abort)

    return Protocol


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer:
        timer.cancel()
