"""Limits that uvicorn lacks: for clients that send no request, send a bad one, or do not read.

uvicorn's `limit_concurrency` counts connections, silent ones too, and has no time limit before the
first request; `timeout_keep_alive` is for the time between requests.
"""

import asyncio
import collections
import dataclasses
import json
import socket
import time
from collections.abc import Callable
from typing import Any

# Bytes that are parsed before the size of their chunks is checked; chunks that are parsed before
# other connections have their turn, as a chunk takes some 10 µs.
_SLICE, _TURN_CHUNKS = 4096, 50
# This many chunks of a body may have any size; the mean size of more chunks must reach this many
# bytes.
_CHUNKS, _CHUNK_BYTES = 200, 1024
# Seconds of `stalled_seconds` that a client gets back for reading the data, some 48 KiB, at which
# writing was paused.
_READ_SECONDS = 3.0
# Status in the log for an answer that is not whole.
CLIENT_CLOSED = 499
# Seconds between two checks whether a client that sends no more is still there.
_GONE_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the time and the number of connections.

    Attributes:
      header_seconds: time until the headers of a request must be complete, from the connection or
        the first byte after the last answer.
      stalled_seconds: time for which a client may keep answers waiting in all, and 3 s more for
        each 48 KiB that it reads.
      connections: most connections at once. With more, the oldest that sent no byte is closed. If
        all have sent some, the newest is closed that sent no whole request or keeps its answer
        waiting, of the address with most such connections.
    """

    header_seconds: float = 10.0
    stalled_seconds: float = 60.0
    connections: int = 512


def http_protocol(
    limits: ConnectionLimits, log: Callable[[str], None] | None = None
) -> type[asyncio.Protocol]:
    """Returns uvicorn's protocol with these limits, for `uvicorn.Config(http=…)`.

    Args:
      limits: of connections.
      log: called with a line of JSON for a connection that is closed without a request. For a
        request that gets no whole answer, `unanswered` of its scope gets the status and the reason
        for the log, and `lost` of its scope, if there, is called.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    # Connections without a whole request, and those whose client does not read its answer, in the
    # order in which the service began to wait for them.
    waiting: dict[Any, None] = {}
    # States of a client whose request has arrived to its end.
    whole = (h11.DONE, h11.MUST_CLOSE, h11.MIGHT_SWITCH_PROTOCOL)

    class Protocol(H11Protocol):
        _stalled: asyncio.TimerHandle | None = None
        _headers: asyncio.TimerHandle | None = None
        _ended: asyncio.TimerHandle | None = None
        _sent, _noted, _chunks, _chunk_bytes, _paused = False, False, 0, 0, 0.0
        _patience, _rest = limits.stalled_seconds, b""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            next_event = self.conn.next_event

            def counted() -> Any:
                event = next_event()
                if isinstance(event, h11.Data):
                    self._chunks += event.chunk_start
                    self._chunk_bytes += len(event.data)
                elif isinstance(event, h11.Request):
                    if {b"content-length", b"transfer-encoding"} <= dict(event.headers).keys():
                        # RFC 9112, 6.1: a proxy before this server may have taken the other length.
                        raise h11.RemoteProtocolError("two lengths")
                return event

            self.conn.next_event = counted
            self._watch()
            if len(self.connections) > limits.connections:
                self._make_room()

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.pop(self, None)
            for timer in (self._headers, self._stalled, self._ended):
                _stop(timer)
            self._headers = self._stalled = None
            begun = self.conn.their_state in (h11.IDLE, h11.DONE) and self.conn.trailing_data[0]
            if begun or self._unanswered():
                self._note("the connection ended before the answer")
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._sent = True
            if self._rest:
                self._rest += data
            else:
                self._parse(data)

        def _parse(self, data: bytes) -> None:
            """Parses data, with small chunks part by part, in turn with other connections."""
            before, self._rest = self._chunks, b""
            for start in range(0, len(data), _SLICE):
                if self.transport.is_closing():
                    return
                part = data[start : start + _SLICE]
                super().data_received(part)
                if self._chunks > _CHUNKS and self._chunk_bytes < _CHUNK_BYTES * self._chunks:
                    self._refuse("the body comes in many small chunks; send larger ones")
                    return
                self._rest = data[start + _SLICE :] if self._chunks > before + _TURN_CHUNKS else b""
                if self._rest:
                    self.transport.pause_reading()
                    self.loop.call_soon(lambda: self._parse(self._rest))
                    break
            if not self.transport.is_closing():
                if self.conn.their_state in whole and not self.conn.trailing_data[0]:
                    # uvicorn pauses at a large body, but only reading shows whether a client left.
                    self.flow.resume_reading()
                if not self._rest and not self.flow.read_paused:
                    self.transport.resume_reading()
                self._watch()

        def eof_received(self) -> bool:
            """Returns whether the connection stays open for the answer to a whole request."""
            if self.conn.their_state not in whole:
                return False
            if self.conn.our_state is h11.SEND_RESPONSE and self.conn.their_http_version != b"1.0":
                # Only a client that has closed its reading side too answers this with a reset.
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # After a pause of reading this method is called again, so an earlier timer is stopped.
            _stop(self._ended)
            self._look()
            return True

        def send_400_response(self, msg: str) -> None:
            self._refuse("the request is not valid HTTP")

        def on_response_complete(self) -> None:
            unread = self.conn.their_state is h11.SEND_BODY
            self._chunks, self._chunk_bytes = 0, 0
            super().on_response_complete()
            if unread:
                # The rest of a body that was refused is not parsed.
                self.transport.close()
                return
            if self._ended and self.conn.their_state is not h11.DONE:
                self.transport.close()
                return
            # uvicorn's own timer until the next request has begun.
            self._watch(timed=False)

        def pause_writing(self) -> None:
            super().pause_writing()
            _stop(self._stalled)
            self._paused = time.monotonic()
            why = "the client did not read its answer"
            self._stalled = self.loop.call_later(self._patience, self._abort, why)
            self._await()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._stalled = _stop(self._stalled)
            left = self._patience - (time.monotonic() - self._paused) + _READ_SECONDS
            self._patience = min(limits.stalled_seconds, left)
            self._await()

        def _look(self) -> None:
            """Ends a connection that its client has reset, which nothing else shows by then."""
            if self.transport.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_ERROR
            ):
                self.transport.abort()
            else:
                self._ended = self.loop.call_later(_GONE_SECONDS, self._look)

        def _refuse(self, message: str) -> None:
            """Answers 400 in OpenAI's form if no answer has begun; closes the connection."""
            begun = self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE)
            self._note(message, CLIENT_CLOSED if begun else 400)
            if not begun:
                error = {"message": message, "type": "invalid_request_error"}
                body = json.dumps({"error": error | {"param": None, "code": None}}).encode()
                headers = [("content-type", "application/json"), ("connection", "close")]
                length = [("content-length", str(len(body)))]
                answer = h11.Response(status_code=400, headers=headers + length)
                for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event))
            if self._unanswered():
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            self.transport.close()

        def _abort(self, why: str) -> None:
            self._note(why)
            self.transport.abort()

        def _unanswered(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _note(self, why: str, status: int = CLIENT_CLOSED) -> None:
            """Logs why the connection ends; if a request is open, together with the request."""
            if self._unanswered():
                self.cycle.scope.setdefault("unanswered", (status, why))
                self.cycle.scope.get("lost", lambda: None)()
            elif log and not self._noted:
                line = {"time": round(time.time(), 3), "client": _address(self) or None}
                log(json.dumps(line | {"status": status, "error": why}))
            self._noted = True

        def _make_room(self) -> None:
            others = [one for one in waiting if one is not self]
            silent = [one for one in others if not one._sent]
            if silent or not others:
                closed = silent[0] if silent else self
            else:
                counts = collections.Counter(_address(one) for one in others)
                most = max(counts.values())
                closed = next(one for one in reversed(others) if counts[_address(one)] == most)
            # It is removed now, as others may connect before `connection_lost` is called.
            waiting.pop(closed, None)
            closed._abort("closed for another connection")

        def _await(self) -> None:
            """Notes whether the connection waits for its client to send a request or to read."""
            if self._stalled or self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                waiting.setdefault(self)
            else:
                waiting.pop(self, None)

        def _watch(self, timed: bool = True) -> None:
            """Notes whether a request is awaited; bytes that arrive do not prolong the wait."""
            if self.transport.is_closing():
                return
            self._await()
            if self.conn.their_state is not h11.IDLE:
                self._headers = _stop(self._headers)
            elif timed and not self._headers:
                why = f"the headers took more than {limits.header_seconds:g} s"
                self._headers = self.loop.call_later(limits.header_seconds, self._abort, why)

    return Protocol


def _address(connection: Any) -> str:
    return connection.client[0] if connection.client else ""


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer:
        timer.cancel()
