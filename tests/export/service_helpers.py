"""A service in a thread of the tests, and requests without OpenAI's client."""

import asyncio
import contextlib
import functools
import http.client
import json
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from export.service.app import Settings, create_app
from export.service.connections import ConnectionLimits, http_protocol
from export.service.embedder import TextEmbedder
from official_cmlm.evaluation.encoder import OpenedEncoder
from tests.docs.pages import ROOT
from tests.search.toy_encoder import Words


class Encoder(Words):
    """Words, which can be held up, and fails on the text `fail`."""

    def __init__(self):
        super().__init__()
        self.open, self.began, self.texts = threading.Event(), threading.Event(), []
        self.open.set()

    def encode(self, texts):
        if "fail" in texts:
            raise RuntimeError("told to fail")
        if "hold" in texts:
            self.began.set()
            assert self.open.wait(60)
        self.texts.append(list(texts))
        return super().encode(texts)


def count_tokens(texts):
    return np.array([len(text.split()) + 2 for text in texts])


def opened(encoder, count=count_tokens, length=12):
    return TextEmbedder(OpenedEncoder("toy", "python", "", encoder.encode, None, {}, length, count))


@contextlib.contextmanager
def served(
    encoder=None,
    on_long="cut",
    connections=None,
    buffer=None,
    count=count_tokens,
    index=None,
    classifier=None,
    **settings,
):
    """Serves in a thread of this process; yields (port, encoder)."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra serve")
    encoder = encoder or Encoder()
    embedder = opened(encoder, count)
    limits = Settings(**({"name": "toy", "cut": on_long == "cut"} | settings))
    made = create_app(embedder, limits, index, classifier)
    http = http_protocol(connections or ConnectionLimits(), settings.get("log"))
    config = uvicorn.Config(made, log_level="warning", access_log=False, http=http)
    ready = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            loop = asyncio.get_running_loop()
            encoder.on_loop = loop.call_soon_threadsafe
            encoder.end = functools.partial(encoder.on_loop, made.state.end)
            ready.set()

    server = Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if buffer:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            assert ready.wait(60)
            yield listening.getsockname()[1], encoder
        finally:
            encoder.open.set()
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


def ask(port, body, headers=None, path="/v1/embeddings", method="POST"):
    """Sends a request without OpenAI's client; returns (status, headers, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps(body) if isinstance(body, dict) else body
    json_type = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, body, json_type | (headers or {}))
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


def expected(texts):
    vectors = Words().encode(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def connected(port):
    return socket.create_connection(("127.0.0.1", port), 60)


def rest(connection):
    """Returns all that comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def exchanged(port, sent):
    """Sends bytes on a connection of their own; returns all that comes until it is closed."""
    with connected(port) as sender:
        with contextlib.suppress(ConnectionError):
            sender.sendall(sent)
        return rest(sender)


def raw(texts, model="toy"):
    """Returns the bytes of a request of embeddings."""
    return posted({"model": model, "input": texts})


def posted(body, path="/v1/embeddings"):
    """Returns the bytes of a request."""
    body = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def answered(app, method, path, body, headers):
    """Asks an application without a socket; returns status, headers and body of its answer."""
    scope = {"type": "http", "http_version": "1.1", "method": method, "path": path}
    scope |= {"raw_path": b"", "query_string": b"", "root_path": "", "scheme": "http"}
    scope |= {"headers": [*headers], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
    messages, sent = [{"type": "http.request", "body": body, "more_body": False}], []

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    # No answer takes so long.
    async with asyncio.timeout(20):
        await app(scope, receive, send)
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(one.get("body", b"") for one in sent[1:])


@contextlib.contextmanager
def started(*flags, **environment):
    """Starts the binary on a free port; yields the process and the line with its address.

    Args:
      environment: variables besides those of this process; None removes one.
    """
    command = [sys.executable, "-m", "export.service.serve", *flags, "--port=0"]
    variables = {k: v for k, v in (os.environ | environment).items() if v is not None}
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = next(line for line in process.stderr if line.startswith("serving "))
            yield process, line.strip()
        finally:
            process.kill()
