"""The web application: routes, limits, errors in OpenAI's form, metrics."""

import asyncio
import base64
import contextlib
import dataclasses
import gc
import hmac
import ipaddress
import itertools
import json
import re
import sys
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.extras import check_extra
from official_cmlm.vectors.nearest import unit

from .batching import Batcher, Closing, Limits, Overloaded
from .connections import CLIENT_CLOSED
from .embedder import (
    INPUT_TYPES,
    Embedder,
    Prompt,
    Rows,
    TokenEmbedder,
    UnknownPrompt,
    embed_requests,
)
from .fields import MOST_HITS, REQUESTS, openapi

if TYPE_CHECKING:
    from official_cmlm.encoding.classifier import Classifier
    from official_cmlm.search import Index

# The rest of a body that is too large is read and dropped, so that its sender reads the answer. If
# the body is larger than this, or comes in chunks, which take longer, the connection is closed.
_DROPPED_BYTES = 1 << 28
# Larger bodies are read on another thread, as the worst bodies of this size take 2 ms, and larger
# answers are made there, `_ROWS` at a time: no other thread runs while JSON is read or written.
_LARGE_BODY, _ROWS = 1 << 14, 16
# Answers of `/tokenize` with more tokens are made on another thread; bytes of memory that a token
# takes meanwhile.
_LARGE_ANSWER, _SHOWN_BYTES = 1 << 12, 400
# Texts of more bytes in memory are tokenised on another thread, `_TURN_BYTES` at a time; then other
# requests have their turn.
_LARGE_TEXTS, _TURN_BYTES = 1 << 11, 1 << 14
# This is uvicorn's high-water mark: after a larger part of an answer, uvicorn waits for the client.
_BUFFERED_BYTES = 1 << 16
# An id that a client gives its request is kept in the log if it matches this.
_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
# Seconds that the oldest request may wait for its first batch; with more, `/ready` is 503.
_READY_SECONDS = 30
_NO_IDS = (
    "this encoder takes no token ids; send texts (LangChain: check_embedding_ctx_length=False)"
)
# Seconds until a body must have arrived; seconds that clients are told to wait before another try.
_BODY_SECONDS = 60
_RETRY = {"Retry-After": "1"}
# Types of JSON Schema: the class of their values, and its name in an error.
_TYPES = {
    "string": (str, "a string"),
    "boolean": (bool, "true or false"),
    "object": (dict, "an object"),
}
# The page can load nothing from elsewhere, and no other page can show it in a frame.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Limits of the service, its name and its key.

    Attributes:
      name: name of the model, which requests must give.
      api_keys: keys, one of which `Authorization: Bearer …` must hold; empty: no key is needed.
      max_inputs: texts a request. Default 2048, OpenAI's.
      max_body_bytes: of a request. Default 8 MiB, 4 KiB for each of 2048 texts.
      max_characters: of a text; longer ones are cut, or refused. Default 100,000.
      cut: whether longer texts are cut if the request does not say.
      normalize: whether vectors are scaled to length 1.
      prompt: prompt of texts whose request chooses none. Default: the encoder's default.
      loopback: whether only this machine is served; then `Host` must name it.
      held_bytes: most bytes of bodies, texts and vectors in memory. Default 256 MiB.
      requests: most requests at once; each counts from the end of its body until its answer is
        computed. Default 256.
      log: called with a line of JSON a request. Default: no log.
      limits: of batches and of the queue.
    """

    name: str
    api_keys: tuple[str, ...] = ()
    max_inputs: int = 2048
    max_body_bytes: int = 8 << 20
    max_characters: int = 100_000
    cut: bool = True
    normalize: bool = True
    prompt: Prompt = dataclasses.field(default_factory=Prompt)
    loopback: bool = False
    held_bytes: int = 256 << 20
    requests: int = 256
    log: Callable[[str], None] | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)


class Refused(Exception):
    """A request that gets an error.

    Attributes:
      status: HTTP's status.
      param, code: the field that is wrong, and OpenAI's name of the error.
      headers: of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers


def create_app(
    embedder: Embedder,
    settings: Settings,
    index: "Index | None" = None,
    classifier: "Classifier | None" = None,
) -> Any:
    """Returns the application, for an ASGI server.

    Its `state.end()` answers all requests that are open with 503.

    Args:
      embedder: the encoder.
      settings: limits, name and keys.
      index: texts that `/search` finds, and the page of `/`.
      classifier: labels of the encoder's vectors, for `/v1/classify`.

    Raises:
      UserError: if the packages of the extra `serve` are not installed.
    """
    check_extra("serve", "prometheus_client", "starlette")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    batcher = Batcher(lambda pieces: embed_requests(embedder, pieces), settings.limits)
    metrics, created = _Metrics(), int(time.time())
    # Large bodies and texts are read one at a time, as this can take many times their memory.
    reading = asyncio.Semaphore(1)
    open_tasks: set[asyncio.Task] = set()
    batcher.on_batch = metrics.batch
    metrics.waiting.set_function(lambda: batcher.waiting)
    metrics.oldest.set_function(batcher.oldest_seconds)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await batcher.close(app.state.ended)

    def answer(content: Any, status: int = 200, headers: dict | None = None) -> Response:
        made = content if isinstance(content, bytes) else json.dumps(content).encode()
        return Response(made, status, headers, "application/json")

    def in_parts(parts: Iterator[bytes], short: bool, headers: dict | None = None) -> Response:
        """Returns an answer; one that is not short is made on another thread while it is sent."""
        if short:
            return answer(b"".join(parts), headers=headers)
        return StreamingResponse(parts, headers=headers, media_type="application/json")

    def refusal(error: Refused) -> Response:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        body = {"message": str(error), "type": kind, "param": error.param, "code": error.code}
        return answer({"error": body}, error.status, error.headers)

    def authorised(request: Request) -> None:
        if request.scope["http_version"] not in ("1.0", "1.1"):
            raise Refused(505, "the version of HTTP must be 1.0 or 1.1")
        if not settings.api_keys:
            if settings.loopback and not _names_this_machine(request.headers.get("host", "")):
                # This may be a web page whose host name has been pointed at this machine.
                raise Refused(403, "Host must be localhost or an address of this machine")
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        # Headers are decoded as Latin-1, so encoding gives the bytes that were sent. They are
        # compared in constant time.
        sent = given.strip().encode("latin-1", "replace")
        keys = [key.encode("utf-8", "surrogateescape") for key in settings.api_keys]
        same = [hmac.compare_digest(sent, key) for key in keys]
        if scheme.lower() != "bearer" or not any(same):
            headers, message = {"WWW-Authenticate": "Bearer"}, "the API key is missing or wrong"
            raise Refused(401, message, None, "invalid_api_key", headers)

    def posted(handler: Callable[[Request], Awaitable[Response]]) -> Any:
        """Returns a handler that checks the key, answers errors and measures the request."""

        async def handled(request: Request) -> Response:
            began, task = time.perf_counter(), asyncio.current_task()
            open_tasks.add(task)
            try:
                authorised(request)
                made = await handler(request)
            except Refused as error:
                made = refusal(error)
            except Overloaded:
                made = refusal(_overloaded())
            except asyncio.CancelledError:
                if not app.state.ended:
                    raise
                task.uncancel()
                made = refusal(_closing())
            except Exception:
                # The error is ours, or the encoder's: only the server's operator sees it.
                traceback.print_exc(file=sys.stderr)
                made = refusal(Refused(500, "the server failed to embed this request"))
            finally:
                open_tasks.discard(task)
                # Only the answer is still to be sent.
                request.scope["slot"].uncount()
            metrics.request(made.status_code, time.perf_counter() - began)
            return made

        return handled

    def end() -> None:
        app.state.ended = True
        for task in open_tasks:
            task.cancel()

    async def read_json(request: Request, parse: Callable[[dict[str, Any]], Any]) -> Any:
        """Returns the result of `parse` for the body's object, which is not kept.

        The slot holds the body's bytes until it is told to hold another number.
        """
        kind = request.headers.get("content-type", "").partition(";")[0]
        if kind.strip().lower() != "application/json":
            raise Refused(415, "Content-Type must be application/json")
        slot = request.scope["slot"]
        body = await _body(request, settings, slot)
        # The request counts only now, so that clients that send no body do not block others.
        slot.count()
        schema = REQUESTS[request.scope["path"]]

        def parsed() -> Any:
            given = _object(body)
            _check_fields(given, schema)
            return parse(given)

        if len(body) <= _LARGE_BODY:
            return parsed()
        async with reading:
            return await asyncio.to_thread(parsed)

    async def read(slot: _Slot, texts: list[str], prompt: Prompt, reader: Callable) -> Rows:
        """Tokenises texts, many of them in parts, in turn with other requests.

        The slot holds the bytes of the ids too.
        """
        sizes = np.cumsum([*map(sys.getsizeof, texts)])
        if sizes[-1] <= _LARGE_TEXTS:
            rows = _read(reader, texts, prompt, metrics)
            slot.hold(slot.size + rows.size)
            return rows
        turns = np.flatnonzero(np.diff(sizes // _TURN_BYTES)) + 1
        parts = np.split(np.arange(len(texts)), turns)
        found = []
        for part in parts:
            async with reading:
                some = texts[part[0] : part[-1] + 1]
                found.append(await asyncio.to_thread(_read, reader, some, prompt, metrics))
            slot.hold(slot.size + found[-1].size)
        items = [item for rows in found for item in rows.items]
        return Rows(items, np.concatenate([rows.tokens for rows in found]), found[0].exact)

    async def embedded(
        request: Request, inputs: "_Inputs", prompt: Prompt, truncate: bool, besides: int = 0
    ) -> tuple[np.ndarray, int, int]:
        """Returns vectors of texts or rows of ids, the tokens read, and the number of cut texts.

        The slot holds the bytes of all of them until the answer is sent, and `besides` more.
        """
        slot, rows, cut = request.scope["slot"], inputs.rows, inputs.cut
        slot.hold(besides + inputs.size)
        if rows is None:
            rows = await read(slot, inputs.texts, prompt, embedder.read)
        tokens, most = rows.tokens, embedder.max_seq_length
        if most is not None and rows.exact:
            if not truncate and (tokens > most).any():
                first = int(np.argmax(tokens > most))
                raise _too_long(first, f"{tokens[first]} tokens, at most {most}")
            cut = cut | (tokens > most)
            tokens = np.minimum(tokens, most)
        elif not truncate:
            raise Refused(400, "the encoder does not say which texts are cut", "truncate")
        cut, total = int(np.count_nonzero(cut)), int(tokens.sum())
        slot.hold(slot.size + 4 * len(tokens) * embedder.dimension)
        vectors = await _result(request, batcher, rows.items, tokens)
        total = total if rows.exact else 0
        counts = {"texts": len(vectors), "tokens": total, "cut_texts": cut}
        metrics.count(counts)
        slot.counts = {name: slot.counts.get(name, 0) + n for name, n in counts.items()}
        return vectors, total, cut

    async def embeddings(request: Request) -> Response:
        def parse(given: dict[str, Any]) -> tuple[_Inputs, Prompt, bool, int | None, bool]:
            _check_model(given.get("model"), settings)
            form, most = given.get("encoding_format"), embedder.dimension
            if form not in (None, "float", "base64"):
                raise Refused(400, "must be float or base64", "encoding_format")
            width = given.get("dimensions")
            if width is not None and not (type(width) is int and 1 <= width <= most):
                raise Refused(400, f"dimensions must be 1 to {most}", "dimensions")
            truncate = _truncate(given, settings)
            inputs, prompt = _input(given, settings, embedder, truncate), _prompt(given, settings)
            return inputs, prompt, truncate, width, form == "base64"

        inputs, prompt, truncate, width, as_base64 = await read_json(request, parse)
        vectors, tokens, cut = await embedded(request, inputs, prompt, truncate)
        if settings.normalize:
            vectors = unit(vectors, in_place=True)
        data = _vectors(_first(vectors, width), as_base64)
        parts = _answer(data, tokens, cut, settings)
        return in_parts(parts, len(vectors) <= _ROWS, _cut_header(cut))

    async def tokenize(request: Request) -> Response:
        def parse(given: dict[str, Any]) -> tuple[_Inputs, Prompt, bool]:
            if not isinstance(embedder, TokenEmbedder):
                raise Refused(400, "this encoder does not show its tokens")
            inputs = _cut(_texts(given.get("inputs"), settings, "inputs"), settings)
            return inputs, _prompt(given, settings), given.get("add_special_tokens", True)

        inputs, prompt, with_special = await read_json(request, parse)
        slot = request.scope["slot"]
        slot.hold(inputs.size)
        rows = await read(slot, inputs.texts, prompt, partial(embedder.read, whole=True))
        total = int(rows.tokens.sum())
        slot.hold(slot.size + _SHOWN_BYTES * int(rows.tokens.max()))
        vocabulary = embedder.encoder.vocabulary
        around = vocabulary.special_ids if with_special else {}
        first, last = ([around[name]] if around else [] for name in ("cls", "sep"))
        special = set(vocabulary.special_ids.values())
        shown = (
            [
                {"id": one, "text": vocabulary.tokens[one], "special": one in special}
                for one in (*first, *ids.tolist(), *last)
            ]
            for ids in rows.items
        )
        return in_parts(_list(shown, 1), total <= _LARGE_ANSWER)

    async def similarity(request: Request) -> Response:
        def parse(given: dict[str, Any]) -> tuple[_Inputs, Prompt, bool]:
            inputs, parameters = given.get("inputs"), given.get("parameters") or {}
            if not isinstance(inputs, dict) or not isinstance(inputs.get("source_sentence"), str):
                raise Refused(400, "must have source_sentence and sentences", "inputs")
            for name, one in (("inputs", inputs), ("parameters", parameters)):
                _check_fields(one, REQUESTS["/similarity"]["properties"][name])
            texts = _texts(inputs.get("sentences"), settings, "sentences")
            truncate = _truncate(parameters, settings)
            cut = _cut([inputs["source_sentence"], *texts], settings, truncate)
            return cut, _prompt(parameters, settings), truncate

        vectors, _, cut = await embedded(request, *await read_json(request, parse))
        vectors = unit(vectors, in_place=True)
        return answer((vectors[1:] @ vectors[0]).tolist(), headers=_cut_header(cut))

    async def rerank(request: Request) -> Response:
        def parse(given: dict[str, Any]) -> tuple[_Inputs, _Inputs, bool, list[str] | None]:
            if not isinstance(given.get("query"), str):
                raise Refused(400, "query must be a string", "query")
            texts = _texts(given.get("texts"), settings, "texts")
            truncate = _truncate(given, settings)
            query = _cut([given["query"]], settings, truncate)
            shown = texts if given.get("return_text") else None
            return query, _cut(texts, settings, truncate), truncate, shown

        query, texts, truncate, shown = await read_json(request, parse)
        # Texts in the answer are whole; texts that were not cut are the same objects.
        whole = sum(sys.getsizeof(shown[i]) for i in np.flatnonzero(texts.cut)) if shown else 0
        role = Prompt(role="query")
        first, _, cut = await embedded(request, query, role, truncate, whole + texts.size)
        found, _, more = await embedded(request, texts, Prompt(role="document"), truncate, whole)
        scores = unit(found, in_place=True) @ unit(first, in_place=True)[0]
        ranked = (
            {"index": i, "score": float(scores[i])} | ({"text": shown[i]} if shown else {})
            for i in np.argsort(-scores, kind="stable").tolist()
        )
        short = sum(map(sys.getsizeof, shown or texts.texts)) <= _LARGE_BODY
        return in_parts(_list(ranked), short, _cut_header(cut + more))

    async def search(request: Request) -> Response:
        def parse(given: dict[str, Any]) -> tuple[_Inputs, bool, int]:
            query, k = given.get("query"), given.get("k", 10)
            if not isinstance(query, str):
                raise Refused(400, "query must be a string", "query")
            if type(k) is not int or not 1 <= k <= MOST_HITS:
                raise Refused(400, f"k must be 1 to {MOST_HITS}", "k")
            truncate = _truncate(given, settings)
            return _cut([query], settings, truncate), truncate, k

        query, truncate, k = await read_json(request, parse)
        vectors, _, cut = await embedded(request, query, Prompt(role="query"), truncate)
        rows, scores = await asyncio.to_thread(index.search_vectors, vectors, k)
        found = await asyncio.to_thread(index.hits, rows[0], scores[0])
        made = json.dumps({"hits": [hit._asdict() for hit in found]}).encode()
        request.scope["slot"].hold(len(made))
        return answer(made, headers=_cut_header(cut))

    async def classify(request: Request) -> Response:
        def parse(given: dict[str, Any]) -> tuple[_Inputs, bool]:
            _check_model(given.get("model"), settings)
            truncate = _truncate(given, settings)
            return _input(given, settings, embedder, truncate), truncate

        inputs, truncate = await read_json(request, parse)
        # The classifier was trained on texts with the default prompt.
        size = 4 * len(inputs.cut) * len(classifier.bias)
        vectors, tokens, cut = await embedded(request, inputs, Prompt(), truncate, size)
        found = await asyncio.to_thread(classifier.probabilities, vectors)
        names, best = classifier.label_names, found.argmax(axis=1).tolist()
        data = (
            {
                "index": i,
                "label": names[best[i]] if names else best[i],
                "probs": row.tolist(),
                "num_classes": len(row),
            }
            for i, row in enumerate(found)
        )
        parts = _answer(_list(data), tokens, cut, settings)
        return in_parts(parts, found.size <= _LARGE_ANSWER, _cut_header(cut))

    def described() -> dict[str, Any]:
        return {
            "id": settings.name,
            "object": "model",
            "created": created,
            "owned_by": "official-cmlm",
        }

    async def models(request: Request) -> Response:
        authorised(request)
        return answer({"object": "list", "data": [described()]})

    async def model(request: Request) -> Response:
        authorised(request)
        _check_model(request.path_params["name"], settings)
        return answer(described())

    async def info(request: Request) -> Response:
        authorised(request)
        return answer(
            {
                "model_id": settings.name,
                "backend": embedder.how,
                "dimension": embedder.dimension,
                "prompts": embedder.prompts,
                "max_input_length": embedder.max_seq_length,
                "max_concurrent_requests": settings.requests,
                "max_batch_tokens": settings.limits.batch_tokens,
                "max_client_batch_size": settings.max_inputs,
                "auto_truncate": settings.cut,
            }
        )

    async def root(request: Request) -> Response:
        if index is not None and "text/html" in request.headers.get("accept", ""):
            return Response(page, headers=_PAGE_HEADERS, media_type="text/html")
        addresses = [f"{'|'.join(sorted(r.methods - {'HEAD'}))} {r.path}" for r in routes]
        return answer({"model": settings.name, "addresses": addresses})

    async def schema(_: Request) -> Response:
        paths = {route.path: route.methods for route in routes}
        return answer(openapi(settings.name, paths, bool(settings.api_keys)))

    async def live(_: Request) -> Response:
        return answer(b'{"status": "ok"}')

    async def ready(_: Request) -> Response:
        if app.state.ended or batcher.oldest_seconds() > _READY_SECONDS:
            return answer({"status": "ending" if app.state.ended else "overloaded"}, 503, _RETRY)
        return answer(b'{"status": "ok"}')

    async def measured(request: Request) -> Response:
        authorised(request)
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def refused(_: Request, error: Refused) -> Response:
        return refusal(error)

    async def unknown(request: Request, error: HTTPException) -> Response:
        why = "no such method here" if error.status_code == 405 else "no such address; see /"
        message = f"{request.method[:20]} {request.scope['path'][:200]}: {why}"
        return refusal(Refused(error.status_code, one_line(message), headers=error.headers))

    page = Path(__file__).with_name("search.html").read_bytes()
    routes = [
        Route("/v1/embeddings", posted(embeddings), methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/tokenize", posted(tokenize), methods=["POST"]),
        Route("/similarity", posted(similarity), methods=["POST"]),
        Route("/rerank", posted(rerank), methods=["POST"]),
        *([Route("/search", posted(search), methods=["POST"])] if index is not None else []),
        *([Route("/v1/classify", posted(classify), methods=["POST"])] if classifier else []),
        Route("/info", info),
        Route("/openapi.json", schema),
        Route("/health", live),
        Route("/live", live),
        Route("/ready", ready),
        Route("/metrics", measured),
        Route("/", root),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(_Slots, settings)],
        exception_handlers={Refused: refused, 404: unknown, 405: unknown},
    )
    app.router.redirect_slashes = False
    app.state.ended, app.state.end = False, end
    return app


def _request_id(scope: Any) -> str:
    """Returns the id that a client has given its request, or a new one."""
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


class _Slots:
    """The application with a `_Slot` for each request, until its answer is sent."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self.app, self.log = app, settings.log
        # Requests that may still be counted, and bytes that may still be held.
        self.free, self.free_bytes = settings.requests, settings.held_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        slot, began = _Slot(self), time.time()
        name, status = self.log and _request_id(scope), 500

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.log:
                    message["headers"] = [*message["headers"], (b"x-request-id", name.encode())]
            elif len(message.get("body", b"")) > _BUFFERED_BYTES:
                # The next message waits until the client has read this one.
                await send(message | {"more_body": True})
                message = message | {"body": b""}
            await send(message)

        try:
            scope["slot"] = slot
            await self.app(scope, receive, sent)
        finally:
            slot.uncount()
            slot.hold(0)
            if self.log:
                client = scope["client"][0] if scope["client"] else None
                line = {"time": round(began, 3), "id": name, "client": client}
                line |= {"method": scope["method"], "path": scope["path"][:200]}
                status, why = scope.get("unanswered", (status, None))
                line |= {"status": status, "seconds": round(time.time() - began, 4)} | slot.counts
                self.log(json.dumps(line | ({"error": why} if why else {})))


@dataclasses.dataclass
class _Slot:
    """The share of one request in the limits: a place among the requests at once, and bytes."""

    slots: _Slots
    size: int = 0
    counted: bool = False
    # Texts, tokens and texts that were cut, for the log.
    counts: dict[str, int] = dataclasses.field(default_factory=dict)

    def count(self) -> None:
        """Counts this request until its answer is computed; raises `Overloaded`."""
        if not self.slots.free:
            raise Overloaded
        self.slots.free, self.counted = self.slots.free - 1, True

    def uncount(self) -> None:
        """Lets another request be counted in place of this one."""
        self.slots.free, self.counted = self.slots.free + self.counted, False

    def hold(self, size: int, expected: int = 0) -> None:
        """Sets the bytes that are held; raises `Overloaded` if `size` or `expected` has no room."""
        if size > self.size and max(size, expected) - self.size > self.slots.free_bytes:
            raise Overloaded
        self.slots.free_bytes -= size - self.size
        self.size = size


def _names_this_machine(host: str) -> bool:
    name = re.sub(r":\d*$", "", host).lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _read(reader: Callable, texts: list[str], prompt: Prompt, metrics: "_Metrics") -> Rows:
    try:
        with metrics.tokenizing.time():
            return reader(texts, prompt)
    except UnknownPrompt as error:
        raise Refused(400, str(error), "prompt_name") from None


def _too_long(index: int, what: str) -> Refused:
    message = f"input {index} has {what} are read; send shorter texts"
    return Refused(400, message, "input", "context_length_exceeded")


@dataclasses.dataclass(frozen=True)
class _Inputs:
    """The texts of a request, cut to the characters that are read, or its rows of ids.

    Attributes:
      texts: the texts; empty for rows of ids.
      cut: bool `[n]`, whether a text was cut.
      rows: the rows of ids; None for texts.
    """

    texts: list[str]
    cut: np.ndarray
    rows: Rows | None = None

    @property
    def size(self) -> int:
        """Bytes of the texts or ids in memory."""
        return self.rows.size if self.rows else sum(map(sys.getsizeof, self.texts))


def _overloaded() -> Refused:
    return Refused(429, "too much is to be embedded; try again later", None, "overloaded", _RETRY)


def _closing() -> Refused:
    return Refused(503, "the server ends", None, "closing", _RETRY)


async def _body(request: Any, settings: Settings, slot: _Slot) -> bytes:
    """Returns the body, in any transfer encoding; bytes of a refused one are counted, not held."""
    from starlette.requests import ClientDisconnect

    parts, size = [], 0
    refused: Refused | None = None
    # A Content-Length beyond the limit is refused before the body arrives. Only bytes that
    # arrive are counted, so announcing a long body and sending nothing takes no memory.
    announced = request.headers.get("content-length", "")
    announced = int(announced) if announced.isdigit() and len(announced) < 19 else 0
    chunked = "transfer-encoding" in request.headers
    dropped = settings.max_body_bytes if chunked else _DROPPED_BYTES
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                try:
                    if refused is None:
                        if max(size, announced) > settings.max_body_bytes:
                            most = f"{settings.max_body_bytes / 2**20:g} MiB"
                            message = f"the body is larger than {most}; send fewer texts"
                            # The connection may hold the rest of the body.
                            raise Refused(413, message, headers={"Connection": "close"})
                        slot.hold(size, max(announced, size))
                        parts.append(part)
                except (Refused, Overloaded) as error:
                    refused = error if isinstance(error, Refused) else _overloaded()
                    parts.clear()
                    slot.hold(0)
                if refused and size > dropped:
                    break
    except TimeoutError:
        raise Refused(408, f"the body took more than {_BODY_SECONDS} s") from None
    except ClientDisconnect:
        raise Refused(CLIENT_CLOSED, "the client went away") from None
    if refused:
        raise refused
    return b"".join(parts)


def _object(body: bytes) -> dict[str, Any]:
    # JSON has no cycles, and garbage collection, which looks for cycles, would take several times
    # as long as reading.
    gc.disable()
    try:
        # UTF-8 is decoded strictly here, as the module json lets lone surrogates pass.
        given = json.loads(str(body, "utf-8"))
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not valid JSON") from None
    finally:
        gc.enable()
    if not isinstance(given, dict):
        raise Refused(400, "the body must be a JSON object")
    return given


def _check_fields(given: dict[str, Any], schema: dict[str, Any]) -> None:
    """Refuses wrong types, and unknown fields, which might be meant to change the vectors."""
    known = schema["properties"]
    if unknown := sorted(set(given) - set(known)):
        message = f"no field {unknown[0]!r:.60}; it has {', '.join(sorted(known))}"
        raise Refused(400, message, unknown[0][:60])
    for name, value in given.items():
        kind, what = _TYPES.get(known[name].get("type"), (object, ""))
        if value is not None and not isinstance(value, kind):
            raise Refused(400, f"must be {what}", name)


def _prompt(given: dict[str, Any], settings: Settings) -> Prompt:
    name, role = given.get("prompt_name"), given.get("input_type")
    if name is not None and role is not None:
        raise Refused(400, "takes the place of input_type; send one of them", "prompt_name")
    if role is not None and (not isinstance(role, str) or role not in INPUT_TYPES):
        raise Refused(400, f"must be one of {', '.join(INPUT_TYPES)}", "input_type")
    return settings.prompt if name is role is None else Prompt(name, INPUT_TYPES.get(role))


def _truncate(given: dict[str, Any], settings: Settings) -> bool:
    found = given.get("truncate")
    return settings.cut if found is None else found


def _input(
    given: dict[str, Any], settings: Settings, embedder: Embedder, truncate: bool
) -> _Inputs:
    inputs = given.get("input")
    if isinstance(inputs, list) and inputs and type(inputs[0]) in (int, list):
        given_ids = _ids(inputs, settings)
        if not isinstance(embedder, TokenEmbedder):
            raise Refused(400, _NO_IDS, "input")
        try:
            rows = embedder.rows_of_ids(given_ids)
        except UserError as error:
            raise Refused(400, str(error), "input") from None
        return _Inputs([], np.zeros([len(rows.items)], bool), rows)
    return _cut(_texts(inputs, settings), settings, truncate)


def _cut(texts: list[str], settings: Settings, truncate: bool = True) -> _Inputs:
    """Returns the texts without the characters that are not read."""
    most = settings.max_characters
    cut = np.array([len(text) > most for text in texts])
    if not truncate and cut.any():
        first = int(np.argmax(cut))
        raise _too_long(first, f"{len(texts[first])} characters, at most {most}")
    return _Inputs([text[:most] for text in texts], cut)


def _ids(given: list[Any], settings: Settings) -> list[list[int]]:
    rows = [given] if type(given[0]) is int else given
    _check_count(len(rows), settings, "input")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or {*map(type, row)} - {int}:
            raise Refused(400, f"item {i} of input is not a list of token ids", "input")
    return rows


def _check_model(name: Any, settings: Settings) -> None:
    if not isinstance(name, str) or not name:
        raise Refused(400, f"model is missing; this server has {settings.name!r}", "model")
    if name != settings.name:
        message = f"no model {name[:200]!r}; this server has {settings.name!r}"
        raise Refused(404, message, "model", "model_not_found")


def _texts(given: Any, settings: Settings, field: str = "input") -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts:
        message = f"{field} must be a string or a list of strings, not empty"
        raise Refused(400, message, field)
    _check_count(len(texts), settings, field)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise Refused(400, f"item {i} of {field} is not a string", field)
    return texts


def _check_count(count: int, settings: Settings, field: str) -> None:
    if count > settings.max_inputs:
        message = f"{field} has {count} texts, at most {settings.max_inputs} are taken"
        raise Refused(400, message, field)


async def _result(request: Any, batcher: Batcher, items: list[Any], tokens: Any) -> np.ndarray:
    """Returns the vectors, unless the client goes away before its turn."""
    gone = Refused(CLIENT_CLOSED, "the client went away")
    if "unanswered" in request.scope:
        raise gone
    try:
        result = batcher.submit(items, tokens)
    except Closing:
        raise _closing() from None
    # The connection calls it when the client is gone; a task for each request, which awaits its
    # next message, would take longer.
    request.scope["lost"] = lambda: result.done() or result.set_exception(gone)
    return await result


def _first(vectors: np.ndarray, width: int | None) -> np.ndarray:
    """Returns the first dimensions of vectors, scaled to the former lengths; with None, all."""
    if width is None:
        return vectors
    # The length is 1 unless the service was told otherwise.
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = unit(vectors[:, :width])
    vectors *= lengths
    return vectors


def _answer(data: Iterator[bytes], tokens: int, cut: int, settings: Settings) -> Iterator[bytes]:
    """Yields the parts of an answer, with the parts of its list `data` among them."""
    yield b'{"object": "list", "data": '
    yield from data
    # The end of the object whose first brace is written above.
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "truncated_inputs": cut}
    yield b", " + json.dumps({"model": settings.name, "usage": usage}).encode()[1:]


def _vectors(vectors: np.ndarray, as_base64: bool) -> Iterator[bytes]:
    """Yields the parts of an answer's `data`, `_ROWS` vectors each."""
    yield b"["
    for start in range(0, len(vectors), _ROWS):
        part = _data(vectors[start : start + _ROWS], start, as_base64)
        yield b", " + part if start else part
    yield b"]"


def _list(items: Iterator[Any], size: int = _ROWS) -> Iterator[bytes]:
    """Yields the parts of a list in JSON, `size` items each."""
    yield b"["
    between = b""
    while some := list(itertools.islice(items, size)):
        yield between + json.dumps(some).encode()[1:-1]
        between = b", "
    yield b"]"


def _cut_header(cut: int) -> dict[str, str] | None:
    return {"X-Truncated-Inputs": str(cut)} if cut else None


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
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Gauge,
            Histogram,
            ProcessCollector,
        )

        self.registry = CollectorRegistry()
        # Memory, processor time and open files of this process.
        ProcessCollector(registry=self.registry)
        here: dict[str, Any] = {"registry": self.registry}
        self._requests = Counter("cmlm_requests", "Requests of embeddings.", ["status"], **here)
        self._seconds = Histogram(
            "cmlm_request_seconds",
            "From a request's headers to the first part of its answer.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            **here,
        )
        what = {
            "texts": "Texts that were embedded.",
            "tokens": "Tokens that were read of them.",
            "cut_texts": "Texts of which only the first part was read.",
        }
        self._counts = {name: Counter(f"cmlm_{name}", text, **here) for name, text in what.items()}
        here_sizes = here | {"buckets": tuple(2.0**i for i in range(16))}
        self._sizes = [
            Histogram(f"cmlm_batch_{name}", f"{name.capitalize()} a batch.", **here_sizes)
            for name in ("requests", "texts", "tokens")
        ]
        self._queue_seconds = Histogram(
            "cmlm_queue_seconds", "From a request's whole body to its first batch.", **here
        )
        self.tokenizing = Histogram("cmlm_tokenize_seconds", "Tokenising of texts.", **here)
        self._inference = Histogram("cmlm_batch_seconds", "Computing of a batch.", **here)
        self.waiting = Gauge("cmlm_waiting_tokens", "Tokens in the queue.", **here)
        self.oldest = Gauge("cmlm_oldest_seconds", "How long the oldest request waits.", **here)

    def count(self, counts: dict[str, int]) -> None:
        for name, number in counts.items():
            self._counts[name].inc(number)

    def request(self, status: int, seconds: float) -> None:
        self._requests.labels(status).inc()
        self._seconds.observe(seconds)

    def batch(
        self, requests: int, texts: int, tokens: int, waits: list[float], seconds: float
    ) -> None:
        self._inference.observe(seconds)
        for histogram, size in zip(self._sizes, (requests, texts, tokens)):
            histogram.observe(size)
        for seconds in waits:
            self._queue_seconds.observe(seconds)
