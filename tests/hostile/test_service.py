"""Whatever is sent to the HTTP service: an answer in form, and it goes on serving."""

import asyncio
import contextlib
import json
import re
import socket
import threading
import tracemalloc

import numpy as np
import pytest

from export.service.app import Settings, create_app
from export.service.embedder import TokenEmbedder
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
from tests.docs.pages import ROOT
from tests.export.service_helpers import answered, ask, connected, rest, served, started
from tests.hostile.service_cases import (
    GOOD,
    JSON_TYPE,
    KEY,
    MOST_BYTES,
    MOST_TEXTS,
    NAME,
    OPEN,
    PROTOCOL,
    READ,
    Case,
    asgi_cases,
)

# Seconds until an answer, of which none of these takes one.
_SECONDS = 20


@pytest.fixture(scope="module")
def encoder(exported):
    return SentenceEncoder.load(exported[0], backend="onnx")


@contextlib.contextmanager
def _started(encoder, **settings):
    """Yields a function that asks an application of this process."""
    index = Index.build(encoder, ["a cat", "a dog"])
    app = create_app(
        TokenEmbedder(encoder, NAME),
        Settings(**({"name": NAME, "max_inputs": MOST_TEXTS} | settings)),
        index,
        Classifier(None, np.zeros([encoder.dimension, 3], np.float32), np.zeros([3], np.float32)),
    )
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        yield lambda *cases: runner.run(_together(app, cases))
        runner.run(lifespan.__aexit__(None, None, None))


async def _together(app, cases):
    answers = (answered(app, one.method, one.path, one.body, one.headers) for one in cases)
    return await asyncio.gather(*answers)


def _error_fault(status, headers, body):
    """Returns the fault of a refusal's form, or None."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return f"no error in form: {body[:100]}"
    wanted = {401: "www-authenticate", 405: "allow"}.get(status, "content-type")
    if set(error) != {"message", "type", "param", "code"} or wanted not in headers:
        return f"{wanted} or a field is missing: {error}"
    message = error["message"]
    if not message or not message.isprintable() or len(message) > 1100:
        return f"no line: {message!r}"
    return None if error["type"] == "invalid_request_error" else error


def _good(path, app="open"):
    headers = (JSON_TYPE, (b"host", b"localhost"), (b"authorization", f"Bearer {KEY}".encode()))
    method, body = ("POST", json.dumps(GOOD[path]).encode()) if path in GOOD else ("GET", b"")
    return Case("good", path, 200, path, method, body, headers, app)


def _faults(encoder, cases, capsys):
    """Returns name of a case -> its fault."""
    faults, good = {}, _good("/v1/embeddings")
    settings = {"open": {}, "keyed": {"api_keys": (KEY,)}, "loopback": {"loopback": True}}
    for name, more in settings.items():
        with _started(encoder, max_body_bytes=MOST_BYTES, **more) as asked:
            for path in (*GOOD, *READ, *OPEN):
                assert asked(_good(path))[0][0] == 200
            ((_, _, before),) = asked(good)
            for case in (case for case in cases if case.app == name):
                ((status, headers, body),) = asked(case)
                said = capsys.readouterr().err
                fault = _error_fault(status, headers, body) or said
                if status != case.status:
                    fault = f"{status}, not {case.status}: {body[:200]}"
                ((_, _, after),) = asked(good)
                if fault or after != before:
                    faults[f"{case.kind}: {case.name}"] = fault or "it serves no more"
    return faults


def test_hostile_requests(encoder, capsys):
    """The first of each kind of fault."""
    firsts = list({case.kind: case for case in reversed(list(asgi_cases()))}.values())
    assert len(firsts) > 40
    assert _faults(encoder, firsts, capsys) == {}


@pytest.mark.long
def test_all_hostile_requests(encoder, capsys):
    cases = list(asgi_cases())
    assert len({(case.kind, case.name) for case in cases}) == len(cases) > 500
    assert _faults(encoder, cases, capsys) == {}


def _protocol_fault(port, sent, wanted, honest):
    """Returns the fault of a connection's answers, or None."""
    with connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        found = rest(connection)
    # Each answer from its status on; the system may drop one whose client goes on sending.
    answers = re.split(
        rb"HTTP/1\.1 (?=\d{3} )", found.replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"")
    )
    statuses = [int(one[:3]) for one in answers[1:]]
    if statuses != wanted and not (len(sent) > 90_000 and not found):
        return statuses, found[:200]
    for status, one in zip(statuses, answers[1:]):
        head, _, body = one.partition(b"\r\n\r\n")
        names = {line.partition(b":")[0].decode().lower() for line in head.splitlines()}
        if status >= 400 and status != 505 and (fault := _error_fault(status, names, body)):
            return fault
    answer = ask(port, GOOD["/v1/embeddings"], {"Host": "localhost"})
    return None if answer[0] == 200 and answer[2] == honest else "it serves no more"


def _protocol_faults(port, names):
    honest = ask(port, GOOD["/v1/embeddings"], {"Host": "localhost"})[2]
    found = {name: _protocol_fault(port, *PROTOCOL[name], honest) for name in names}
    return {name: fault for name, fault in found.items() if fault}


def test_hostile_connections():
    names = ("ends its side", "half a body", "nonsense", "both lengths", "another Host")
    with served(name=NAME, loopback=True) as (port, _):
        assert _protocol_faults(port, names) == {}


@pytest.mark.long
def test_all_hostile_connections(exported):
    """The binary answers them in form, and its standard error stays empty."""
    flags = (f"--model={exported[0]}", "--backend=onnx", f"--name={NAME}")
    with started(*flags, CMLM_API_KEY=None, PYTHONPATH=str(ROOT)) as (process, line):
        faults = _protocol_faults(int(re.search(r":(\d+)/v1$", line)[1]), PROTOCOL)
        process.terminate()
        said = process.stderr.read()
    assert (faults, said, process.wait(60)) == ({}, "ending …\n", 0)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank"])
def test_texts_are_counted_until_they_are_embedded(encoder, monkeypatch, path):
    """A word of many characters is one token, and yet all of it is held."""
    text, began, go_on = "x" * 3000, threading.Event(), threading.Event()
    embed = TokenEmbedder.embed
    with _started(encoder, held_bytes=9000) as asked:

        def held_up(self, items):
            began.set()
            assert go_on.wait(_SECONDS)
            return embed(self, items)

        monkeypatch.setattr(TokenEmbedder, "embed", held_up)
        bodies = {
            "/v1/embeddings": {"model": NAME, "input": [text] * 2},
            "/rerank": {"query": "a", "texts": [text] * 2, "return_text": True},
        }
        first, other = (
            Case("", "", 200, one, body=json.dumps(bodies[one]).encode())
            for one in (path, "/v1/embeddings")
        )
        # The one that is refused lets the other go on.
        threading.Thread(target=lambda: (began.wait(_SECONDS), go_on.set())).start()
        found = asked(first, other)
    assert [status for status, *_ in found] == [200, 429]


def test_shown_tokens_are_counted(encoder):
    """A body of two bytes a token is an answer of many more."""
    body = json.dumps({"inputs": "a " * 5000}).encode()
    for held, status in ((1 << 20, 429), (1 << 22, 200)):
        with _started(encoder, held_bytes=held) as asked:
            ((found, _, answer),) = asked(Case("", "", 200, "/tokenize", body=body))
        assert found == status
    (tokens,) = json.loads(answer)
    assert len(tokens) == 5002 and tokens[1]["text"] == "a"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *(("/v1/embeddings", "text"), ("/v1/embeddings", "ids"), ("/v1/classify", "ids")),
        *(("/v1/classify", "text"), ("/similarity", "text"), ("/rerank", "text")),
    ],
)
def test_what_is_not_read_is_not_kept_while_a_request_waits(encoder, monkeypatch, path, kind):
    """A body of 1 MB would be 4 MB of characters with an emoji, and 2 MB of a list of ids."""
    special = encoder.vocabulary.special_ids
    long = "a" * 1_000_000 + "\U0001f600"
    if kind == "ids":
        long = [special["cls"], *[5] * 250_000, special["sep"]]
    bodies = {
        "/v1/embeddings": {"model": NAME, "input": [long]},
        "/v1/classify": {"model": NAME, "input": [long]},
        "/similarity": {"inputs": {"source_sentence": "a", "sentences": [long]}},
        "/rerank": {"query": "a", "texts": [long]},
    }
    case = Case("", "", 200, path, body=json.dumps(bodies[path]).encode())
    embed, held = TokenEmbedder.embed, []

    def measured(self, items):
        held.append(tracemalloc.get_traced_memory()[0])
        return embed(self, items)

    with _started(encoder) as asked:
        assert asked(case)[0][0] == 200
        monkeypatch.setattr(TokenEmbedder, "embed", measured)
        tracemalloc.start()
        try:
            assert asked(case)[0][0] == 200
        finally:
            tracemalloc.stop()
    # The thread that has parsed the body may have kept it until now.
    assert max(held) < 1_500_000
