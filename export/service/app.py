"""The web application: routes, limits, errors in OpenAI's form, metrics."""

import asyncio
import base64
import contextlib
import dataclasses
import hmac
import json
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np

from official_cmlm.errors import one_line
from official_cmlm.extras import check_extra
from official_cmlm.nearest import unit

from .batching import Batcher, Closing, Limits, Overloaded
from .embedder import Embedded, Embedder, TooLong, joined

# The rest of a body that is too large is read and dropped, so that its sender reads the answer;
# of one that is larger still the connection is closed.
_DROPPED_BYTES = 1 << 28
# Larger bodies are read on another thread, and larger answers are made there, so many rows at a
# time: what reads and writes JSON lets no other thread run until it is done.
_LARGE_BODY, _ROWS = 1 << 18, 16
_CLIENT_CLOSED = 499
# Seconds until a body has arrived, and those that clients are told to wait when there is too much.
_BODY_SECONDS = 60
_RETRY = {"Retry-After": "1"}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits of the service, its name and its key.

    Attributes:
      name: of the model, which requests must name.
      api_key: what `Authorization: Bearer …` must hold; None: nobody is asked.
      max_inputs: texts a request. Default 2048, OpenAI's.
      max_body_bytes: of a request. Default 8 MiB, 4 KiB for each of 2048 texts.
      max_characters: of a text; longer ones are cut, or refused. Default 100,000.
      cut: whether they are cut.
      held_bytes: of all bodies that are read and whose texts wait. Default 256 MiB.
      requests: of embeddings at once, from their whole body to their whole answer. Default 256.
      limits: of batches and of the queue.
    """

    name: str
    api_key: str | None = None
    max_inputs: int = 2048
    max_body_bytes: int = 8 << 20
    max_characters: int = 100_000
    cut: bool = True
    held_bytes: int = 256 << 20
    requests: int = 256
    limits: Limits = dataclasses.field(default_factory=Limits)


class Refused(Exception):
    """A request that gets an error.

    Attributes:
      status: HTTP's.
      code, param: OpenAI's name of the error, and the field that is wrong.
      headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.headers = status, code, param, headers


def create_app(embedder: Embedder, settings: Settings) -> Any:
    """Yields the application, for an ASGI server.

    Raises:
      UserError: if the packages of the extra `serve` are not installed.
    """
    check_extra("serve", "fastapi", "prometheus_client", "starlette")
    import fastapi
    from fastapi.responses import Response, StreamingResponse
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    batcher, metrics = Batcher(embedder, settings.limits, joined), _Metrics()
    created, held = int(time.time()), _Held(settings.held_bytes)
    # One at a time, as what is made of a body while it is read can be many times its size.
    reading = asyncio.Semaphore(1)
    batcher.on_batch = metrics.batch
    metrics.waiting.set_function(lambda: batcher.waiting)

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        batcher.start()
        yield
        await batcher.close()

    # Without the pages that load programs from elsewhere.
    app = fastapi.FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    def answer(content: bytes, status: int = 200, headers: dict | None = None) -> Response:
        return Response(content, status, headers, "application/json")

    def refusal(error: Refused) -> Response:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        body = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
        return answer(json.dumps({"error": body}).encode(), error.status, error.headers)

    def authorised(request: fastapi.Request) -> None:
        if settings.api_key is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # The bytes that were sent, which headers are decoded from as Latin-1; in constant time.
        sent = given.strip().encode("latin-1", "replace")
        same = hmac.compare_digest(sent, settings.api_key.encode("utf-8", "surrogateescape"))
        if scheme.lower() != "bearer" or not same:
            headers = {"WWW-Authenticate": "Bearer"}
            raise Refused(401, "the API key is missing or wrong", "invalid_api_key", None, headers)

    @app.post("/v1/embeddings")
    async def embeddings(request: fastapi.Request) -> Response:
        began = time.perf_counter()
        try:
            authorised(request)
            made = await embed(request)
        except Refused as error:
            made = refusal(error)
        except Exception:
            # An error of ours, or of the encoder: the server's operator sees it, no client.
            traceback.print_exc(file=sys.stderr)
            made = refusal(Refused(500, "the server failed to embed this request"))
        metrics.request(made.status_code, time.perf_counter() - began)
        return made

    async def embed(request: fastapi.Request) -> Response:
        with held.account() as account:
            body = await _body(request, settings, account)
            # Only now, as those that send no body keep nobody else from being served.
            try:
                request.scope["count"]()
            except Overloaded:
                raise _overloaded() from None
            if len(body) > _LARGE_BODY:
                async with reading:
                    wanted = await asyncio.to_thread(_parsed, body, settings, embedder.dimension)
            else:
                wanted = _parsed(body, settings, embedder.dimension)
            del body
            embedded = await _result(request, batcher, wanted.texts)
        metrics.texts.inc(len(wanted.texts))
        metrics.tokens.inc(embedded.tokens)
        parts = _answer(_wanted_part(embedded.vectors, wanted), embedded.tokens, wanted, settings)
        if len(wanted.texts) <= _ROWS:
            return answer(b"".join(parts))
        return StreamingResponse(parts, media_type="application/json")

    def described() -> dict[str, Any]:
        return {
            "id": settings.name,
            "object": "model",
            "created": created,
            "owned_by": "official-cmlm",
        }

    @app.get("/v1/models")
    async def models(request: fastapi.Request) -> Response:
        authorised(request)
        return answer(json.dumps({"object": "list", "data": [described()]}).encode())

    @app.get("/v1/models/{name:path}")
    async def model(request: fastapi.Request, name: str) -> Response:
        authorised(request)
        _check_model(name, settings)
        return answer(json.dumps(described()).encode())

    @app.get("/health")
    async def health() -> Response:
        return answer(b'{"status": "ok"}')

    @app.get("/metrics")
    async def measured(request: fastapi.Request) -> Response:
        authorised(request)
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def refused(_: fastapi.Request, error: Refused) -> Response:
        return refusal(error)

    async def unknown(request: fastapi.Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 404)
        message = f"{request.method} {request.url.path}: no such address"
        return refusal(Refused(status, one_line(message)))

    app.add_middleware(_AtOnce, most=settings.requests)
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(404, unknown)
    app.add_exception_handler(405, unknown)
    return app


class _AtOnce:
    """Counts requests, from when they ask for it until their answers are sent."""

    def __init__(self, app: Any, most: int) -> None:
        self._app, self._free = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        counted = False

        def count() -> None:
            """Counts this request; raises `Overloaded` if there are as many."""
            nonlocal counted
            if not self._free:
                raise Overloaded
            self._free, counted = self._free - 1, True

        try:
            await self._app(scope | {"count": count}, receive, send)
        finally:
            self._free += counted


@dataclasses.dataclass(frozen=True)
class _Wanted:
    texts: list[str]
    dimensions: int | None
    base64: bool


class _Held:
    """Bytes of bodies that are in memory."""

    def __init__(self, most: int) -> None:
        self.free = most

    @contextlib.contextmanager
    def account(self) -> Iterator["_Account"]:
        """Yields the account of one request; its bytes are free when the block ends."""
        account = _Account(self)
        try:
            yield account
        finally:
            account.release()


@dataclasses.dataclass
class _Account:
    held: _Held
    size: int = 0

    def take(self, size: int, more: int) -> None:
        """Adds bytes; raises `Overloaded` if these, or `more` of them, do not fit."""
        if more > self.held.free:
            raise Overloaded
        self.held.free -= size
        self.size += size

    def release(self) -> None:
        """Gives all back."""
        self.held.free += self.size
        self.size = 0


def _overloaded() -> Refused:
    return Refused(503, "too much is to be embedded; try again later", "overloaded", None, _RETRY)


async def _body(request: Any, settings: Settings, account: _Account) -> bytes:
    """Returns the body, of any transfer encoding; what is refused is counted and never held."""
    from starlette.requests import ClientDisconnect

    parts, size = [], 0
    refused: Refused | None = None
    # A Content-Length beyond the limit is refused before the body arrives. Only bytes that
    # arrive are counted, so announcing a long body and sending nothing takes no memory.
    announced = request.headers.get("content-length", "")
    announced = int(announced) if announced.isdigit() and len(announced) < 19 else 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                try:
                    if refused is None:
                        if max(size, announced) > settings.max_body_bytes:
                            raise _too_large(settings)
                        account.take(len(part), max(announced - size, 0) + len(part))
                        parts.append(part)
                except (Refused, Overloaded) as error:
                    refused = error if isinstance(error, Refused) else _overloaded()
                    parts.clear()
                    account.release()
                if refused and size > _DROPPED_BYTES:
                    break
    except TimeoutError:
        raise Refused(408, f"the body took more than {_BODY_SECONDS} s") from None
    except ClientDisconnect:
        raise Refused(_CLIENT_CLOSED, "the client went away") from None
    if refused:
        raise refused
    return b"".join(parts)


def _too_large(settings: Settings) -> Refused:
    most = f"{settings.max_body_bytes / 2**20:g} MiB"
    # The connection may hold the rest of the body.
    close = {"Connection": "close"}
    return Refused(413, f"the body is larger than {most}; send fewer texts", None, None, close)


def _parsed(body: bytes, settings: Settings, dimension: int) -> _Wanted:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None
    if not isinstance(given, dict):
        raise Refused(400, "the body must be a JSON object")
    _check_model(given.get("model"), settings)
    form = given.get("encoding_format") or "float"
    if form not in ("float", "base64"):
        raise Refused(400, "must be float or base64", None, "encoding_format")
    dimensions = given.get("dimensions")
    if dimensions is not None and not (type(dimensions) is int and 1 <= dimensions <= dimension):
        raise Refused(400, f"dimensions must be 1 to {dimension}", None, "dimensions")
    return _Wanted(_texts(given.get("input"), settings), dimensions, form == "base64")


def _check_model(name: Any, settings: Settings) -> None:
    if not isinstance(name, str) or not name:
        raise Refused(400, f"model is missing; this server has {settings.name!r}", None, "model")
    if name != settings.name:
        message = f"no model {name[:200]!r}; this server has {settings.name!r}"
        raise Refused(404, message, "model_not_found", "model")


def _texts(given: Any, settings: Settings) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        raise Refused(400, "input must be a string or a list of strings, not empty", None, "input")
    if len(texts) > settings.max_inputs:
        message = f"input has {len(texts)} texts, at most {settings.max_inputs} are taken"
        raise Refused(400, message, None, "input")
    for i, text in enumerate(texts):
        if isinstance(text, int | list):
            raise Refused(
                400,
                "input holds token ids, which are numbers of another tokenizer; send the texts as "
                "strings (LangChain: check_embedding_ctx_length=False)",
                None,
                "input",
            )
        if not isinstance(text, str):
            raise Refused(400, f"item {i} of input is not a string", None, "input")
        if len(text) > settings.max_characters and not settings.cut:
            message = (
                f"input {i} has {len(text)} characters, at most {settings.max_characters} are "
                "read; send shorter texts"
            )
            raise Refused(400, message, "context_length_exceeded", "input")
    return [text[: settings.max_characters] for text in texts]


async def _result(request: Any, batcher: Batcher, texts: list[str]) -> Embedded:
    """Returns the vectors, unless the client goes away before it is its turn."""
    try:
        result = batcher.submit(texts)
    except Overloaded:
        raise _overloaded() from None
    except Closing:
        raise Refused(503, "the server ends", "closing", None, _RETRY) from None
    # The body was read to its end, so the next message is that the client is gone.
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({result, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise Refused(_CLIENT_CLOSED, "the client went away")
        return result.result()
    except TooLong as error:
        message = f"{error}; send shorter texts"
        raise Refused(400, message, "context_length_exceeded", "input") from None
    finally:
        gone.cancel()
        result.cancel()


def _wanted_part(vectors: np.ndarray, wanted: _Wanted) -> np.ndarray:
    """Returns the dimensions that were asked for: float32 `[n, dimensions]`."""
    if wanted.dimensions is None:
        return vectors
    lengths = np.linalg.norm(vectors, axis=1)
    vectors = unit(vectors[:, : wanted.dimensions])
    # As long as before, which is 1 unless the service was told otherwise.
    vectors *= lengths[:, np.newaxis]
    return vectors


def _answer(
    vectors: np.ndarray, tokens: int, wanted: _Wanted, settings: Settings
) -> Iterator[bytes]:
    """Yields the parts of an answer, `_ROWS` vectors each."""
    yield b'{"object": "list", "data": ['
    for start in range(0, len(vectors), _ROWS):
        part = _data(vectors[start : start + _ROWS], start, wanted.base64)
        yield b", " + part if start else part
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    # The end of the object whose first brace is written above.
    yield b"], " + json.dumps({"model": settings.name, "usage": usage}).encode()[1:]


def _data(vectors: np.ndarray, first: int, as_base64: bool) -> bytes:
    """Returns some items of an answer's `data`, without the brackets."""
    if as_base64:
        rows = [base64.b64encode(row.tobytes()).decode() for row in vectors.astype("<f4")]
    else:
        rows = vectors.tolist()
    data = [
        {"object": "embedding", "index": i, "embedding": row}
        for i, row in enumerate(rows, start=first)
    ]
    return json.dumps(data).encode()[1:-1]


class _Metrics:
    """Prometheus's figures of one service."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("cmlm_requests", "Requests of embeddings.", ["status"], **here)
        self._seconds = Histogram(
            "cmlm_request_seconds",
            "From a request's headers to the first part of its answer.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            **here,
        )
        self.texts = Counter("cmlm_texts", "Texts that were embedded.", **here)
        self.tokens = Counter("cmlm_tokens", "Tokens that were read of them.", **here)
        sizes = tuple(2.0**i for i in range(12))
        self._batch_texts = Histogram("cmlm_batch_texts", "Texts a batch.", buckets=sizes, **here)
        self._batch_requests = Histogram(
            "cmlm_batch_requests", "Requests a batch.", buckets=sizes, **here
        )
        self.waiting = Gauge("cmlm_waiting_texts", "Texts in the queue.", **here)

    def request(self, status: int, seconds: float) -> None:
        self._requests.labels(status).inc()
        self._seconds.observe(seconds)

    def batch(self, requests: int, texts: int) -> None:
        self._batch_requests.observe(requests)
        self._batch_texts.observe(texts)
