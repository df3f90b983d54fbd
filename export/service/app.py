"""The web application: who may ask, how a body is read, errors in OpenAI's form, measurements."""

import asyncio
import contextlib
import functools
import hmac
import ipaddress
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pydantic
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from official_cmlm.common.errors import one_line

from .models import IDS, TEXT, Body
from .routes import Operation, list_operations
from .service import Call, Refusal, Service

# Seconds until a body must have arrived.
_BODY_SECONDS = 60
# An id that a client gives its request is kept in the log if it matches this.
_REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
# The escape of half a surrogate pair in JSON.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Faults of a body that its answer names, and characters of a field's name in them.
_MOST_FAULTS, _MOST_NAME = 5, 60


def create_app(service: Service, log: Callable[[str], None] | None = None) -> Starlette:
    """Returns the application of a service, for an ASGI server.

    Args:
      service: the service.
      log: called with a line of JSON a request. Default: no log.
    """

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await service.batcher.close()

    routes = [
        Route(
            operation.path,
            functools.partial(answer, service, operation),
            methods=[operation.method],
        )
        for operation in list_operations(service)
    ]
    handlers = {HTTPException: refuse, Exception: report_failure}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    app.add_middleware(Observer, service=service, log=log)
    return app


async def answer(service: Service, operation: Operation, request: Request) -> Response:
    """Answers a request, in the order: may it be asked, what is its body, what is the answer."""
    call = Call(service, request)
    request.scope["counts"] = call.counts
    try:
        if not operation.is_open:
            check_caller(service, request)
        if operation.body is None:
            result = await operation.function(call)
        else:
            result = await operation.function(call, await read_body(call, operation.body))
    except asyncio.CancelledError:
        # The server has waited for --shutdown_seconds.
        message = "the server is shutting down"
        raise Refusal(503, message, code="closing", Retry_After="1") from None
    if isinstance(result, Response):
        return result
    cut = call.counts["cut_texts"]
    headers = {"X-Truncated-Inputs": str(cut)} if cut else None
    content = await call.run(operation.answer.dump_json, result)
    return Response(content, 200, headers, "application/json")


def check_caller(service: Service, request: Request) -> None:
    """Refuses a request without a key, or from a web page."""
    if not service.keys:
        if service.is_local and not is_this_machine(request.headers.get("host", "")):
            # This may be a web page whose host name has been pointed at this machine.
            raise Refusal(403, "Host must be localhost or an address of this machine")
        return
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    # Headers are decoded as Latin-1, so encoding gives the bytes that were sent. They are compared
    # in constant time.
    sent = key.strip().encode("latin-1", "replace")
    matches = [
        hmac.compare_digest(sent, key.encode("utf-8", "surrogateescape")) for key in service.keys
    ]
    if scheme.lower() != "bearer" or not any(matches):
        message, code = "the API key is missing or wrong", "invalid_api_key"
        raise Refusal(401, message, code=code, WWW_Authenticate="Bearer")


def is_this_machine(host: str) -> bool:
    """Returns whether a header `Host` is a name or address of this machine for itself."""
    name = re.sub(r":\d*$", "", host).lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


async def read_body(call: Call, kind: type[Body]) -> Body:
    """Reads and checks the body of a request, of bounded size, within bounded time."""
    headers, limits = call.request.headers, call.service.settings.limits
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "Content-Type must be application/json")
    body, length, most = bytearray(), headers.get("content-length", ""), limits.max_body_mb << 20
    size = int(length) if length.isdecimal() else 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            parts = call.request.stream()
            while size <= most and (part := await anext(parts, b"")):
                body += part
                size = max(size, len(body))
    except TimeoutError:
        raise Refusal(408, f"the body took more than {_BODY_SECONDS} s") from None
    except ClientDisconnect:
        raise Refusal(499, "the client went away") from None
    if size > most:
        message = f"the body is larger than {limits.max_body_mb} MiB; send fewer texts"
        # The connection may hold the rest of the body.
        raise Refusal(413, message, Connection="close")
    call.size += len(body)
    return await call.run(parse_body, bytes(body), kind, call.service)


def parse_body(body: bytes, kind: type[Body], service: Service) -> Body:
    """Parses and checks a body of a type; half a surrogate pair without the other becomes `?`.

    Raises:
      Refusal: names the faults, unknown fields first.
    """
    if _SURROGATE.search(body):
        # pydantic takes half a pair for invalid JSON. It also reports what else is invalid.
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(body.decode()), ensure_ascii=False)
            body = text.encode(errors="replace")
    try:
        return kind.model_validate_json(body, context=service.settings.limits.max_inputs)
    except pydantic.ValidationError as error:
        faults = error.errors(include_url=False)
    faults.sort(key=lambda fault: fault["type"] != "extra_forbidden")
    words, params = [], []
    for fault in faults[:_MOST_FAULTS]:
        parts = [str(part)[:_MOST_NAME] for part in fault["loc"] if part not in (TEXT, IDS)]
        served = f" (this server has {service.name!r})" if parts == ["model"] else ""
        words.append(f"{'.'.join(parts) or 'body'}: {fault['msg']}{served}")
        # An unknown field is named itself, and not the object that it is in.
        params.append(parts[-1 if fault["type"] == "extra_forbidden" else 0] if parts else "")
    raise Refusal(400, "; ".join(words), params[0])


async def refuse(request: Request, error: HTTPException) -> Response:
    """Returns the answer to a request that is refused, in the form of OpenAI's errors."""
    message, status = error.detail, error.status_code
    if not isinstance(error, Refusal):
        why = "no such method here" if status == 405 else "no such address; see /"
        message = f"{request.method[:20]} {request.scope['path'][:200]}: {why}"
    kind = "server_error" if status >= 500 else "invalid_request_error"
    param, code = (getattr(error, name, None) for name in ("param", "code"))
    fault = {"message": one_line(message), "type": kind, "param": param, "code": code}
    return JSONResponse({"error": fault}, status, error.headers)


async def report_failure(request: Request, _: Exception) -> Response:
    """Answers if the fault is ours, or the encoder's; the server logs it for its operator."""
    return await refuse(request, Refusal(500, "the server failed to embed this request"))


class Observer:
    """The application, with metrics of requests with a body, and a line of the log for each."""

    def __init__(self, app: Any, service: Service, log: Callable[[str], None] | None) -> None:
        self.app, self.service, self.log = app, service, log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        client_id = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        number = client_id if _REQUEST_ID.fullmatch(client_id) else uuid.uuid4().hex
        began, status = time.time(), 500

        async def send_on(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.log:
                    message["headers"] = [*message["headers"], (b"x-request-id", number.encode())]
            await send(message)

        try:
            await self.app(scope, receive, send_on)
        finally:
            seconds, counts = time.time() - began, scope.get("counts", {})
            if scope["method"] == "POST":
                self.service.metrics.count_request(status, seconds, counts)
            if self.log:
                client = scope["client"][0] if scope["client"] else None
                line = {"time": round(began, 3), "id": number, "client": client}
                line |= {"method": scope["method"], "path": scope["path"][:200], "status": status}
                self.log(json.dumps(line | {"seconds": round(seconds, 4)} | counts))
