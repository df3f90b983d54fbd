"""Hostile requests of the HTTP service: (what is sent, the status that it gets).

`asgi_cases` are requests that need no socket, `PROTOCOL` bytes that a connection gets.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from export.service.fields import REQUESTS

NAME, MOST_TEXTS, MOST_BYTES, KEY = "tiny", 8, 200_000, "sécret"
JSON_TYPE = (b"content-type", b"application/json")
NAN, HUGE, HALF, LONG = float("nan"), 10**400, "\ud800", "x" * 50_000


@dataclasses.dataclass(frozen=True)
class Case:
    """One request.

    Attributes:
      kind: of the fault; the normal suite has the first case of each.
      name: the fault in words.
      status: of the answer.
      path, method, body, headers: of the request.
      app: which is asked: `open`, `keyed`, or `loopback`, which looks at Host.
    """

    kind: str
    name: str
    status: int
    path: str
    method: str = "POST"
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = (JSON_TYPE,)
    app: str = "open"


GOOD: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"model": NAME, "input": "a cat"},
    "/v1/classify": {"model": NAME, "input": ["a cat"]},
    "/search": {"query": "a cat"},
    "/tokenize": {"inputs": "a cat"},
    "/similarity": {"inputs": {"source_sentence": "a cat", "sentences": ["a dog"]}},
    "/rerank": {"query": "a cat", "texts": ["a dog"], "return_text": True},
}
"""Address -> a body that is right."""
READ = ("/v1/models", f"/v1/models/{NAME}", "/info", "/metrics")
OPEN = ("/", "/health", "/live", "/ready", "/openapi.json")

_TEXTS = [None, 3, True, {}, [], [None], [["a"]], [1.5], ["a", {}], NAN, ["a"] * (MOST_TEXTS + 1)]
# Ids of the tiny vocabulary's first and last tokens are 3 and 4.
_IDS = [[5], [[]], [[3]], [3, 10_000, 4], [[3, 5, 4], None], [[3, 4]] * (MOST_TEXTS + 1)]
_IDS += [[[3, wrong, 4]] for wrong in ("a", True, -1, HUGE, NAN, [5])]
_STRING = [3, True, [], {}, NAN, HUGE]
_NAME = ["no", "", HALF, LONG, *_STRING]
_BOOLEAN = ["true", 0, 1.5, [], {}, NAN]
_COUNT = [0, -1, HUGE, 1.5, True, "5", [], {}, NAN, float("inf")]
# A field of whatever address -> values that are wrong.
_WRONG: dict[str, list[Any]] = {
    "model": [None, "", *_STRING],
    "user": _STRING,
    **dict.fromkeys(("encoding_format", "prompt_name", "input_type"), _NAME),
    **dict.fromkeys(("truncate", "add_special_tokens", "raw_scores", "return_text"), _BOOLEAN),
    "dimensions": [17, *_COUNT],
    "k": [101, *_COUNT],
    "input": [*_TEXTS, *_IDS],
    "query": [None, *_STRING],
    "source_sentence": [None, *_STRING],
    **dict.fromkeys(("texts", "sentences"), _TEXTS),
    "inputs": [*_TEXTS, {"source_sentence": "a"}],
    "parameters": [3, "a", [3], True, NAN],
}
_BODIES = {
    "nothing": b"",
    "cut short": b'{"model": "tiny", "inp',
    "a list": b"[1]",
    "a number": b"3",
    "null": b"null",
    "a string": b'"a"',
    "no UTF-8": b'{"input": "\xff"}',
    "a byte order mark": b'\xef\xbb\xbf{"input": "a"}',
    "half a character in bytes": b'{"input": "\xed\xa0\x80"}',
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"input":' * 20_000,
    "a number of 5,000 digits": b'{"input": ' + b"9" * 5000 + b"}",
}
_UNKNOWN = ["normalize", "", HALF, LONG, "__class__", "a\nb\x1b[2J"]
_TYPES = [b"", b"text/plain", b"application/x-www-form-urlencoded", b"application/jsonx", b"\xff"]
_TYPES += [b"multipart/form-data; boundary=a", b"text/plain; application/json", b";" * 50_000]
_HOSTS = [b"", b"evil.example", b"localhost.evil.example", b"127.0.0.1.evil.example"]
_HOSTS += [b"127.evil.example", b"127.", b"localhost:80:80", b"localhost@evil.example", b"\xff"]
_HOSTS += [b"[::1].evil.example", b"[::1", b"0.0.0.0", b"10.0.0.1:8000", b"x" * 50_000]
_KEYS = [b"", b"Bearer", b"Bearer ", b"Bearer wrong", b"Basic " + KEY.encode(), KEY.encode()]
_KEYS += [b"Bearer \xff\xfe", b"Bearer s\xe9cret", b"Bearer " + b"x" * 50_000, b"Bearer \x00"]
_PATHS = ["/v1", "/v1/", "/V1/EMBEDDINGS", "/v1/embeddings/", "//v1/embeddings", "/../etc/passwd"]
_PATHS += ["", "*", "/v1/embeddings\x00", "/a\nb\x1b[2J", "/" + LONG, "/ä\ufffd", "/search/"]
_MODELS = ["..", "../../etc/passwd", "tiny/", "TINY", "a\nb\x1b[2J", LONG, "\ufffd"]


def asgi_cases() -> Iterator[Case]:
    """Yields the cases that need no socket."""
    for path, good in GOOD.items():
        for name, body in _BODIES.items():
            yield Case(f"body of {path}", name, 400, path, body=body)
        large = json.dumps(good).encode().ljust(MOST_BYTES + 1)
        yield Case("large body", path, 413, path, body=large)
        for field in _UNKNOWN:
            yield _wrong(f"unknown field of {path}", f"{field[:9]!r}", path, good | {field: 1})
        for field in REQUESTS[path]["properties"]:
            for i, value in enumerate(_WRONG[field]):
                name = f"{i} {value!r:.20}"
                yield _wrong(f"{field} of {path}", name, path, good | {field: value})
        for kind in _TYPES:
            body, headers = json.dumps(good).encode(), ((JSON_TYPE[0], kind),)
            yield Case("content type", f"{path} {kind[:40]}", 415, path, "POST", body, headers)
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "BREW"):
            yield Case("method", f"{method} {path}", 405, path, method)
    for part in ("inputs", "parameters"):
        good = GOOD["/similarity"]
        for field in (*REQUESTS["/similarity"]["properties"][part]["properties"], "other"):
            for i, value in enumerate(_WRONG.get(field, [1])):
                body = good | {part: good.get(part, {}) | {field: value}}
                yield _wrong(f"{part}.{field}", f"{i} {value!r:.20}", "/similarity", body)
    for name in ("other", HALF, LONG, "a\nb\x1b[2J"):
        for path in ("/v1/embeddings", "/v1/classify"):
            body = json.dumps(GOOD[path] | {"model": name}).encode()
            yield Case("another model", f"{path} {name[:9]!r}", 404, path, body=body)
    both = GOOD["/v1/embeddings"] | {"prompt_name": "query", "input_type": "query"}
    yield _wrong("two prompts", "both", "/v1/embeddings", both)
    for path in (*READ, *OPEN):
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
            yield Case("method", f"{method} {path}", 405, path, method, b"{}")
    for path in _PATHS:
        yield Case("path", repr(path[:40]), 404, path, "GET", headers=())
    for name in _MODELS:
        yield Case("name of a model", repr(name[:40]), 404, f"/v1/models/{name}", "GET", headers=())
    for path in (*GOOD, *READ):
        method, body = ("POST", json.dumps(GOOD[path]).encode()) if path in GOOD else ("GET", b"")
        for key in _KEYS:
            headers = (JSON_TYPE, (b"authorization", key))
            yield Case("key", f"{path} {key[:20]}", 401, path, method, body, headers, "keyed")
        for host in _HOSTS:
            headers = (JSON_TYPE, (b"host", host))
            yield Case("Host", f"{path} {host[:30]}", 403, path, method, body, headers, "loopback")


def _wrong(kind: str, name: str, path: str, body: dict[str, Any]) -> Case:
    return Case(kind, name, 400, path, body=json.dumps(body).encode())


def _post(
    *headers: bytes, body: bytes = b"", line: bytes = b"POST /v1/embeddings HTTP/1.1"
) -> bytes:
    lines = [line, b"Host: localhost", b"Content-Type: application/json", *headers]
    return b"\r\n".join([*lines, b"", body])


_BODY = json.dumps(GOOD["/v1/embeddings"]).encode()
_LENGTH = b"Content-Length: %d" % len(_BODY)
_CHUNKED = b"Transfer-Encoding: chunked"
_CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_BODY), _BODY)
_LIVE = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
_RIGHT = _post(_LENGTH, body=_BODY)

PROTOCOL: dict[str, tuple[bytes, list[int]]] = {
    # Right requests of odd form.
    "ends its side": (_RIGHT, [200]),
    "pipelined": (_RIGHT * 3 + _LIVE, [200, 200, 200, 200]),
    "one chunk": (_post(_CHUNKED, body=_CHUNKS), [200]),
    "asks to go on": (_post(_LENGTH, b"Expect: 100-continue", body=_BODY), [200]),
    "HTTP 1.0": (_RIGHT.replace(b"HTTP/1.1", b"HTTP/1.0"), [200]),
    "asks for a web socket": (
        _post(_LENGTH, b"Connection: upgrade", b"Upgrade: websocket", body=_BODY),
        [200],
    ),
    "asks for HTTP 2": (_post(_LENGTH, b"Connection: upgrade", b"Upgrade: h2c", body=_BODY), [200]),
    # A whole request is missing.
    "nothing": (b"", []),
    "half a line": (b"POST /v1/emb", []),
    "half of the headers": (_post(_LENGTH)[:60], []),
    "half a body": (_RIGHT[:-9], []),
    "pipelined, the last one half": (_RIGHT + _RIGHT[:-9], [200]),
    "half a chunk": (_post(_CHUNKED, body=_CHUNKS[:9]), []),
    # No HTTP.
    "nonsense": (b"nonsense\r\n\r\n", [400]),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n", [400]),
    "HTTP 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [404, 400]),
    "HTTP 3.0": (_post(_LENGTH, body=_BODY, line=b"POST /v1/embeddings HTTP/3.0"), [505]),
    "HTTP 0.9": (b"GET /live\r\n\r\n", [400]),
    "no method": (_post(line=b" /live HTTP/1.1"), [400]),
    "a control character in the address": (_post(line=b"GET /li\x01ve HTTP/1.1"), [400]),
    "a whole address": (_post(line=b"GET http://localhost/live HTTP/1.1"), [404]),
    "CONNECT": (_post(line=b"CONNECT localhost:80 HTTP/1.1"), [404]),
    "an address of 100,000 characters": (_post(line=b"GET /%b HTTP/1.1" % (b"x" * 100_000)), [400]),
    # Headers.
    "no Host": (_LIVE.replace(b"Host: localhost\r\n", b""), [400]),
    "two Hosts": (_post(b"Host: localhost", line=b"GET /live HTTP/1.1"), [400]),
    "a space before the colon": (_post(b"Header : a", line=b"GET /live HTTP/1.1"), [400]),
    "a zero in a header": (_post(b"Header: a\x00b", line=b"GET /live HTTP/1.1"), [400]),
    "a header of 100,000 characters": (_post(b"Header: " + b"x" * 100_000), [400]),
    "20,000 headers": (_post(*[b"A: b"] * 20_000), [400]),
    # Lengths.
    "two lengths": (_post(_LENGTH, b"Content-Length: 3", body=_BODY), [400]),
    "a list of lengths": (_post(b"Content-Length: 3, 4", body=_BODY), [400]),
    "a length with a sign": (_post(b"Content-Length: +3", body=_BODY), [400]),
    "a length of 30 digits": (_post(b"Content-Length: " + b"9" * 30, body=_BODY), [400]),
    "a length beyond the limit": (_post(b"Content-Length: 999999999999", body=_BODY), []),
    "a length too small": (_post(b"Content-Length: 3", body=_BODY), [400]),
    "both lengths": (_post(_LENGTH, _CHUNKED, body=_CHUNKS) + _LIVE, [400]),
    "an unknown coding": (_post(b"Transfer-Encoding: gzip", body=_BODY), [400]),
    "chunked twice": (_post(_CHUNKED, _CHUNKED, body=_CHUNKS), [400]),
    "no number as size of a chunk": (_post(_CHUNKED, body=b"zz\r\na\r\n0\r\n\r\n"), [400]),
    "a chunk of 2**100 bytes": (_post(_CHUNKED, body=b"1" + b"0" * 25 + b"\r\na\r\n"), [400]),
    "a chunk without its end": (_post(_CHUNKED, body=b"1\r\nab\r\n0\r\n\r\n"), [400]),
    "a chunk with 100,000 characters beside": (_post(_CHUNKED, body=b"1;" + b"a" * 100_000), [400]),
    "trailers of 100,000 characters": (_post(_CHUNKED, body=b"0\r\nA: " + b"b" * 100_000), [400]),
    "tiny chunks": (_post(_CHUNKED, body=b"1\r\n \r\n" * 20_000), [400]),
    # Several.
    "nonsense after a request": (_RIGHT + b"nonsense\r\n\r\n", [200, 400]),
    "a request after a refusal": (_post(b"Content-Length: 2", body=b"{}") + _LIVE, [400, 200]),
    "100 refusals": (_post(b"Content-Length: 2", body=b"{}") * 100, [400] * 100),
    "another Host": (_RIGHT.replace(b"localhost", b"127.evil.example"), [403]),
    "a form": (_RIGHT.replace(b"application/json", b"text/plain"), [415]),
}
"""Name -> (bytes of a connection whose client then ends its side, the statuses of the answers)."""
