"""A service in a thread of the tests, and requests without OpenAI's client."""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from official_cmlm.evaluation.encoder import OpenedEncoder
from tests.docs.pages import ROOT
from tests.search.toy_encoder import Words

pytest.importorskip("uvicorn", reason="needs the extra serve")


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


def make_service(encoder, parts=None, length=12, **settings):
    """Returns a service of a toy encoder that is called toy.

    Args:
      parts: arguments of `Service`, such as the index.
      settings: fields of `Settings` and of its limits.
    """
    from export.service.embedder import TextEmbedder
    from export.service.service import Service
    from export.service.settings import Limits, Settings

    names = {field.name for field in dataclasses.fields(Limits)}
    limits = Limits(**{name: settings.pop(name) for name in names & set(settings)})
    opened = OpenedEncoder("toy", "python", "", encoder.encode, None, {}, length, count_tokens)
    return Service(TextEmbedder(opened), Settings(limits=limits, **settings), **(parts or {}))


@contextlib.contextmanager
def serve(log=None, parts=None, **settings):
    """Serves `make_service` in a thread of this process; yields (port, encoder, service)."""
    import uvicorn

    from export.service.app import create_app

    encoder, ready = Encoder(), threading.Event()
    service = make_service(encoder, parts, **settings)
    encoder.texts.clear()
    seconds = service.settings.limits.shutdown_seconds
    config = uvicorn.Config(
        create_app(service, log),
        log_level="critical",
        timeout_graceful_shutdown=seconds,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            ready.set()

    server = Server(config)
    encoder.end = lambda: setattr(server, "should_exit", True)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            assert ready.wait(60)
            yield listening.getsockname()[1], encoder, service
        finally:
            encoder.open.set()
            server.should_exit = True
            thread.join(60)
    assert not thread.is_alive()


def ask(port, body=None, path="/v1/embeddings", headers=None, method=None):
    """Sends a request without OpenAI's client; returns (status, headers, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    method = method or ("GET" if body is None else "POST")
    body = json.dumps(body) if isinstance(body, dict) else body
    json_type = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, body, json_type | (headers or {}))
    answer = connection.getresponse()
    result = answer.status, answer.headers, answer.read()
    connection.close()
    return result


def ask_json(port, body=None, path="/v1/embeddings", **options):
    """Returns (status, value of the answer's JSON)."""
    status, _, answer = ask(port, body, path, **options)
    return status, json.loads(answer)


def ask_error(port, body, path="/v1/embeddings", **options):
    """Returns (status, message) of a request that is refused in OpenAI's form."""
    status, answer = ask_json(port, body, path, **options)
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    return status, answer["error"]["message"]


def embed(port, texts):
    assert ask(port, {"model": "toy", "input": texts})[0] == 200


def expect(texts):
    """Returns the vectors of texts, of length 1."""
    vectors = Words().encode(texts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def request_bytes(texts, model="toy", **headers):
    """Returns the bytes of a request of embeddings."""
    body = json.dumps({"model": model, "input": texts}).encode()
    headers = {"Host": "localhost", "Content-Type": "application/json"} | headers
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    head = f"POST /v1/embeddings HTTP/1.1\r\n{''.join(lines)}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 60)


def read_rest(connection):
    """Returns all that comes until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


@contextlib.contextmanager
def start(*flags, **environment):
    """Starts the binary on a free port; yields the process, its port and the line with it.

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
            yield process, int(re.search(r":(\d+)/v1$", line)[1]), line.strip()
        finally:
            process.kill()
