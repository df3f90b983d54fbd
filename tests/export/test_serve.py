"""The HTTP service, asked by OpenAI's own client over loopback."""

import asyncio
import base64
import contextlib
import dataclasses
import html
import http.client
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import threading
from unittest import mock

import numpy as np
import pytest

from export.service import app
from export.service.batching import Limits
from export.service.connections import ConnectionLimits, http_protocol
from export.service.embedder import Prompt, TextEmbedder, embed_requests
from export.service.serve import _api_keys, _bound
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.encoder import OpenedEncoder
from official_cmlm.search import Index
from tests.binaries import call
from tests.docs.pages import ROOT
from tests.export.service_helpers import (
    Encoder,
    ask,
    connected,
    count_tokens,
    exchanged,
    expected,
    posted,
    raw,
    rest,
    served,
    started,
)
from tests.search.toy_encoder import WIDTH, Words

openai = pytest.importorskip("openai", reason="needs the package openai")
uvicorn = pytest.importorskip("uvicorn", reason="needs the extra serve")
_BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")


def client(port, key="none", **settings):
    settings = {"max_retries": 0} | settings
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, **settings)


@pytest.fixture(scope="module")
def service():
    with served() as found:
        yield found


@contextlib.contextmanager
def held_up(port, encoder, *more):
    """Yields a function that asks in a thread, while the encoder is held up by a first request.

    Args:
      more: texts of the first request besides the one that holds the encoder up.
    """
    threads = []

    def ask_meanwhile(texts):
        threads.append(threading.Thread(target=_embed, args=(port, texts)))
        threads[-1].start()

    encoder.open.clear()
    ask_meanwhile(["hold", *more])
    assert encoder.began.wait(60)
    yield ask_meanwhile
    encoder.open.set()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_vectors_come_in_order_and_are_the_encoders(service, form):
    texts = ["one", "two words", "", "Äpfel 五个 \U0001f600 \x00", "one", "words two", " "]
    asked = {} if form is None else {"encoding_format": form}
    found = client(service[0]).embeddings.create(model="toy", input=texts, **asked)
    assert [one.index for one in found.data] == list(range(len(texts)))
    rows = [
        np.frombuffer(base64.b64decode(one.embedding), "<f4")
        if isinstance(one.embedding, str)
        else one.embedding
        for one in found.data
    ]
    np.testing.assert_allclose(rows, expected(texts), atol=1e-6)
    assert found.model == "toy" and found.usage.prompt_tokens == count_tokens(texts).sum()


def test_a_lone_surrogate_is_a_text(service):
    body = b'{"model": "toy", "input": ["a \\ud800 b", "a"]}'
    status, _, answer = ask(service[0], body)
    assert status == 200 and len(json.loads(answer)["data"]) == 2


def test_2048_texts_are_taken_and_2049_are_not(service):
    texts = [f"text {i % 7} of {i}" for i in range(2048)]
    found = client(service[0]).embeddings.create(model="toy", input=texts)
    assert [one.index for one in found.data] == list(range(2048))
    rows = [found.data[i].embedding for i in (0, 1000, 2047)]
    np.testing.assert_allclose(rows, expected([texts[i] for i in (0, 1000, 2047)]), atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="2049 texts, at most 2048"):
        client(service[0]).embeddings.create(model="toy", input=[*texts, "more"])


@pytest.mark.parametrize(
    ("step", "call", "texts"),
    [("_object", 1, "a" * 20_000), ("_read", 1, "a" * 3000), ("_data", 3, ["a b"] * 2048)],
)
def test_health_answers_while_much_is_read_or_written(monkeypatch, step, call, texts):
    """A body's JSON, its texts that become tokens, and parts of an answer, on other threads."""
    held, go_on, calls, went_on = threading.Event(), threading.Event(), [], []
    make = getattr(app, step)

    def made(*args):
        calls.append(args)
        if len(calls) == call:
            held.set()
            went_on.append(go_on.wait(30))
        return make(*args)

    with served() as (port, _):
        monkeypatch.setattr(app, step, made)
        asking = threading.Thread(target=_embed, args=(port, texts))
        asking.start()
        assert held.wait(60)
        assert ask(port, None, path="/health", method="GET")[0] == 200
        go_on.set()
        asking.join(60)
    assert went_on == [True]


def test_shorter_vectors_are_the_first_dimensions_at_length_1(service):
    """Here of one text, which need not be in a list."""
    found = client(service[0]).embeddings.create(model="toy", input="a b", dimensions=5)
    first = expected(["a b"])[:, :5]
    np.testing.assert_allclose([found.data[0].embedding], first / np.linalg.norm(first), atol=1e-6)


def test_what_is_too_long_is_cut_and_counted():
    """Characters and tokens are limited; a text beyond both limits counts once."""
    texts = ["x" * 101, "w " * 30, "w " * 90, "w"]
    index = Index.build(Words(), ["a cat"])
    bodies = {
        "/v1/embeddings": ({"model": "toy", "input": texts}, "3"),
        "/similarity": ({"inputs": {"source_sentence": texts[0], "sentences": texts}}, "4"),
        "/rerank": ({"query": texts[1], "texts": texts}, "4"),
        "/search": ({"query": texts[1]}, "1"),
    }
    with served(max_characters=100, index=index) as (port, encoder):
        for path, (body, wanted) in bodies.items():
            status, headers, answer = ask(port, body, path=path)
            assert (status, headers["x-truncated-inputs"]) == (200, wanted), path
            if path == "/v1/embeddings":
                usage = json.loads(answer)["usage"]
                assert (usage["total_tokens"], usage["truncated_inputs"]) == (3 + 12 + 12 + 3, 3)
                assert encoder.texts[-1] == [text[:100] for text in texts]
                assert ask(port, body | {"truncate": False})[0] == 400


def test_models(service):
    found = client(service[0])
    assert [model.id for model in found.models.list()] == ["toy"]
    assert found.models.retrieve("toy").id == "toy"
    with pytest.raises(openai.NotFoundError, match="this server has 'toy'"):
        found.models.retrieve("gpt/x")
    with pytest.raises(openai.NotFoundError, match="this server has 'toy'") as caught:
        found.embeddings.create(model="text-embedding-3-small", input="a")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": []}, "not empty"),
        ({"input": [1, 2]}, "takes no token ids.*check_embedding_ctx_length"),
        ({"input": [[1, 2], "a"]}, "item 1 of input is not a list of token ids"),
        ({"input": ["a", None]}, "item 1 of input is not a string"),
        ({"model": None}, "model is missing"),
        ({"model": 3}, "must be a string"),
        ({"encoding_format": "int8"}, "float or base64"),
        ({"input_type": "other"}, "query, document, passage"),
        ({"input_type": "query", "prompt_name": "query"}, "takes the place"),
        ({"prompt_name": "no"}, "no prompt 'no'; the encoder has none"),
        ({"truncate": "NONE"}, "true or false"),
        ({"normalize": False}, "no field 'normalize'; it has dimensions"),
        ({"dimensions": 0}, f"1 to {WIDTH}"),
        ({"dimensions": WIDTH + 1}, f"1 to {WIDTH}"),
    ],
)
def test_wrong_requests_say_what_is_wrong(service, change, message):
    status, _, body = ask(service[0], {"model": "toy", "input": "a"} | change)
    error = json.loads(body)["error"]
    assert status == 400 and error["type"] == "invalid_request_error"
    assert re.search(message, error["message"])


def test_the_root_and_the_schema_name_what_is_taken(service):
    """Each address that is listed answers and is described, and no other field is taken."""
    found = {}
    for path in ("/", "/info", "/openapi.json"):
        status, _, body = ask(service[0], None, path=path, method="GET")
        found[path] = json.loads(body)
        assert status == 200
    described = found["/info"]
    assert (described["max_input_length"], described["dimension"]) == (12, WIDTH)
    for method, path in (line.split() for line in found["/"]["addresses"]):
        status = ask(service[0], "{}" if method == "POST" else None, path=path, method=method)[0]
        assert status in (200, 400, 404) and (status != 404 or "{" in path)
    paths = {line.split()[1].replace(":path", "") for line in found["/"]["addresses"]}
    described = found["/openapi.json"]
    assert described["openapi"] == "3.1.0" and set(described["paths"]) == paths
    for path, operations in described["paths"].items():
        if "post" in operations:
            content = operations["post"]["requestBody"]["content"]
            known = content["application/json"]["schema"]["properties"]
            status, _, body = ask(service[0], dict.fromkeys(known) | {"other": 1}, path=path)
            assert status == 400 and "no field 'other'" in json.loads(body)["error"]["message"]


def test_a_request_is_one_line_of_the_log():
    lines = []
    with served(log=lines.append) as (port, _):
        body = {"model": "toy", "input": ["a b", "w " * 50]}
        _, headers, _ = ask(port, body, {"X-Request-Id": "mine-1"})
        assert headers["x-request-id"] == "mine-1"
        for given in ('a b"{', "x" * 65):
            status, headers, _ = ask(port, {"model": "other"}, {"X-Request-Id": given})
            assert status == 404 and re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
        ask(port, None, path="/no%0A%22where", method="GET")
    assert not any("\n" in line for line in lines)
    first, *others = map(json.loads, lines)
    assert [one["status"] for one in others] == [404] * 3 and others[-1]["path"] == '/no\n"where'
    wanted = {"id": "mine-1", "client": "127.0.0.1", "path": "/v1/embeddings", "status": 200}
    wanted |= {"texts": 2, "tokens": 16, "cut_texts": 1}
    assert first == first | wanted


_CHUNKED = (
    b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_1000_BYTES = b"3e8\r\n%b\r\n" % (b"x" * 1000)


@pytest.mark.parametrize(
    ("sent", "status", "path", "why"),
    [
        (b"nonsense\r\n\r\n", 400, None, "not valid HTTP"),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 400, None, "not valid HTTP"),
        (_CHUNKED.replace(b"Host", b"Content-Length: 3\r\nHost"), 400, None, "not valid HTTP"),
        (_CHUNKED + b"no size\r\n", 400, "/v1/embeddings", "not valid HTTP"),
        (_CHUNKED + b"1\r\nx\r\n" * 1200, 400, "/v1/embeddings", "many small chunks"),
        (_CHUNKED + _1000_BYTES * 5000, 400, "/v1/embeddings", "many small chunks"),
        (b"GET / HTTP/1.1\r\nHost:", 499, None, "headers took more than 0.3 s"),
        (b"", 499, None, "headers took more than 0.3 s"),
    ],
)
def test_what_is_refused_before_it_is_a_request_is_one_line_of_the_log(sent, status, path, why):
    lines = []
    limits = ConnectionLimits(header_seconds=0.3)
    with served(connections=limits, log=lines.append) as (port, _):
        exchanged(port, sent)
    [line] = map(json.loads, lines)
    assert (line["client"], line["status"], line.get("path")) == ("127.0.0.1", status, path)
    assert why in line["error"]


def test_clients_that_leave_are_one_line_of_the_log_each_and_nothing_is_computed_for_them():
    """Within the headers, within the body, and while they wait; not after an answer."""
    lines = []
    with served(log=lines.append) as (port, encoder), held_up(port, encoder):
        for sent, waiting in ((b"GET / HT", 0), (raw(["a"])[:-9], 0), (raw(["b"]), 3)):
            with connected(port) as gone:
                gone.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
                assert gone.recv(1000).startswith(b"HTTP/1.1 200")
                gone.sendall(sent)
                _until_waiting(port, waiting)
            _until_waiting(port, 0)
        connected(port).close()
    assert encoder.texts[-1] == ["hold"]
    found = [(one["status"], one.get("path")) for one in map(json.loads, lines)]
    assert sorted((one for one in found if one[1] != "/metrics"), key=str) == [
        *[(200, "/live")] * 3,
        (200, "/v1/embeddings"),
        *[(499, "/v1/embeddings")] * 2,
        (499, None),
    ]


def test_large_texts_are_tokenised_in_turn_with_those_of_others():
    """A request of many characters is read some of them at a time."""
    read = []

    def count(texts):
        read.append(len(texts))
        return count_tokens(texts)

    with served(count=count) as (port, _):
        read.clear()
        _embed(port, ["x" * 5000] * 20)
    assert sum(read) == 20 and max(read) == 4


def test_similarity_and_rerank_are_cosines(service):
    texts = ["two words", "words two", "other"]
    wanted = expected(texts) @ expected(["two words"])[0]
    inputs = {"source_sentence": "two words", "sentences": texts}
    status, _, body = ask(service[0], {"inputs": inputs}, path="/similarity")
    assert status == 200
    np.testing.assert_allclose(json.loads(body), wanted, atol=1e-6)
    asked = {"query": "other", "texts": texts, "return_text": True}
    found = json.loads(ask(service[0], asked, path="/rerank")[2])
    assert found[0]["text"] == "other" and sorted(one["index"] for one in found) == [0, 1, 2]
    scores = [one["score"] for one in found]
    assert scores == sorted(scores, reverse=True) and scores[0] == pytest.approx(1)
    for path, wrong in (("/similarity", {"inputs": "a"}), ("/rerank", asked | {"query": 3})):
        assert ask(service[0], wrong, path=path)[0] == 400


@pytest.fixture
def searched():
    """Serves an index of three passages of two files."""
    texts = ["the key is <b>here</b>", "a cat sat", "where a dog ran"]
    metadata = [{"file": f"{'ab'[i % 2]}.txt", "line": i + 1} for i in range(3)]
    index = Index.build(Words(), texts, metadata=metadata)
    with served(index=index) as (port, _):
        yield port


def test_an_index_is_searched(searched):
    status, _, body = ask(searched, {"query": "a cat sat", "k": 2}, path="/search")
    first, second = json.loads(body)["hits"]
    assert status == 200 and first["score"] == pytest.approx(1) and second["score"] < 0.99
    assert (first["text"], first["metadata"]) == ("a cat sat", {"file": "b.txt", "line": 2})
    assert len(json.loads(ask(searched, {"query": "cat"}, path="/search")[2])["hits"]) == 3
    for wrong in ({"query": 3}, {}, {"query": "a", "k": 0}, {"query": "a", "k": 101}, {"q": "a"}):
        assert ask(searched, wrong, path="/search")[0] == 400
    listed = json.loads(ask(searched, None, path="/", method="GET")[2])["addresses"]
    assert "POST /search" in listed


def test_the_page_loads_nothing_from_elsewhere(searched, service):
    accept = {"Accept": "text/html,*/*"}
    status, headers, body = ask(searched, None, accept, "/", "GET")
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not re.search(rb"(src|href)\s*=|https?:|//\w", body)
    # A service without an index has none.
    assert ask(service[0], None, accept, "/", "GET")[1]["content-type"] == "application/json"
    assert ask(service[0], {"query": "a"}, path="/search")[0] == 404


@pytest.mark.long
def test_the_page_shows_passages_in_a_browser(searched):
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        pytest.skip("needs Chromium")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--virtual-time-budget=5000", f"http://127.0.0.1:{searched}/?q=the+key"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    shown = html.unescape(re.sub("<[^>]+>", " ", done.stdout.partition('<ol id="hits">')[2]))
    assert shown.split()[0] == "a.txt:1"
    assert "the key is <b>here</b>" in shown and "b.txt:2" in shown


def test_labels_are_those_of_the_classifier():
    """Its probabilities are those of the encoder's own vectors, at whatever length."""
    kernel = np.random.default_rng(0).normal(size=[WIDTH, 3]).astype(np.float32)
    classifier = Classifier(None, kernel, np.zeros([3], np.float32))
    texts = ["two words", "other"]
    wanted = classifier.probabilities(Words().encode(texts))
    with served(classifier=classifier) as (port, _):
        status, _, body = ask(port, {"model": "toy", "input": texts}, path="/v1/classify")
        assert ask(port, {"input": texts}, path="/v1/classify")[0] == 400
    found = json.loads(body)
    assert status == 200 and found["usage"]["total_tokens"] == 7
    np.testing.assert_allclose([one["probs"] for one in found["data"]], wanted, atol=1e-5)
    assert [one["label"] for one in found["data"]] == wanted.argmax(axis=1).tolist()
    named = dataclasses.replace(classifier, label_names=("a", "b", "c"))
    with served(classifier=named) as (port, _):
        _, _, body = ask(port, {"model": "toy", "input": texts}, path="/v1/classify")
    best = ["abc"[label] for label in wanted.argmax(axis=1)]
    assert [one["label"] for one in json.loads(body)["data"]] == best


def test_a_large_answer_of_labels_is_sent_in_parts_and_its_bytes_are_counted():
    kernel = np.random.default_rng(0).normal(size=[WIDTH, 500]).astype(np.float32)
    classifier = Classifier(None, kernel, np.zeros([500], np.float32))
    body = {"model": "toy", "input": [f"text {i}" for i in range(40)]}
    with served(classifier=classifier, held_bytes=100_000) as (port, _):
        status, headers, answer = ask(port, body, path="/v1/classify")
        assert ask(port, body | {"input": body["input"] * 2}, path="/v1/classify")[0] == 429
    assert status == 200 and headers["transfer-encoding"] == "chunked"
    assert [len(one["probs"]) for one in json.loads(answer)["data"]] == [500] * 40


def test_a_large_body_is_refused_however_it_is_sent(service):
    """With its length, in chunks without, of which the rest is not read, and the server goes on."""
    with pytest.raises(openai.APIStatusError, match="larger than 8 MiB") as caught:
        client(service[0]).embeddings.create(model="toy", input=["x" * (20 << 20)])
    assert caught.value.status_code == 413
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    answer = exchanged(service[0], _CHUNKED + chunk * 8 + b"1\r\nx\r\n")
    assert answer.startswith(b"HTTP/1.1 413") and b"larger than 8 MiB" in answer
    with connected(service[0]) as sender:
        sender.sendall(_CHUNKED)
        with pytest.raises(ConnectionError):
            for _ in range(100):
                sender.sendall(chunk)
    assert client(service[0]).embeddings.create(model="toy", input="a").data


def test_a_body_in_chunks_is_taken(service):
    """Small ones, and a large one of many short lines."""
    for parts in (
        (b'{"model": "toy",', b' "input"', b': "a"}'),
        (b'{"model": "toy",' + b"\r\n" * 4000, b'"input": "a"}'),
    ):
        assert ask(service[0], parts)[0] == 200


def test_an_encoder_that_fails_fails_one_request_only(service, capsys):
    with pytest.raises(openai.InternalServerError, match="failed to embed"):
        client(service[0]).embeddings.create(model="toy", input="fail")
    assert client(service[0]).embeddings.create(model="toy", input="a").data
    assert "told to fail" in capsys.readouterr().err


def test_health_and_metrics():
    with served() as (port, _):
        assert ask(port, None, path="/health", method="GET")[0] == 200
        client(port).embeddings.create(model="toy", input=["a b", "c"])
        ask(port, {"model": "other", "input": "a"})
        status, headers, body = ask(port, None, path="/metrics", method="GET")
    lines = body.decode().splitlines()
    assert status == 200 and headers["content-type"].startswith("text/plain")
    for line in (
        'cmlm_requests_total{status="200"} 1.0',
        'cmlm_requests_total{status="404"} 1.0',
        "cmlm_texts_total 2.0",
        "cmlm_tokens_total 7.0",
        "cmlm_batch_requests_count 1.0",
        "cmlm_waiting_tokens 0.0",
        "cmlm_queue_seconds_count 1.0",
        "cmlm_tokenize_seconds_count 1.0",
        "cmlm_batch_seconds_count 1.0",
        "cmlm_cut_texts_total 0.0",
    ):
        assert line in lines
    assert any(line.startswith("process_resident_memory_bytes ") for line in lines)


def test_requests_that_come_together_are_encoded_together():
    """The first is held up; those that come meanwhile are one call of the encoder."""
    with served() as (port, encoder):
        with held_up(port, encoder) as ask_meanwhile:
            for i in range(6):
                ask_meanwhile(f"text {i}")
            _until_waiting(port, 24)
            encoder.texts.clear()
        assert sorted(map(len, encoder.texts)) == [1, 6]


@pytest.mark.parametrize("header", [b"", b"Connection: close\r\n", b"Upgrade: h2c\r\n"])
def test_a_connection_is_read_after_a_large_body(header):
    """Only so is it seen that the client goes away; uvicorn pauses at such a body."""
    request = raw(["a b"] * 20_000).replace(b"Host:", header + b"Host:")
    state = {"reading": True, "whole": False}

    async def reader(scope, receive, send):
        while (await receive())["more_body"]:
            pass
        state["whole"] = True
        await asyncio.get_running_loop().create_future()

    async def run():
        config = uvicorn.Config(reader, log_level="error", ws="none")
        config.load()
        protocol = http_protocol(ConnectionLimits())(config, uvicorn.server.ServerState(), {})
        transport = mock.Mock(is_closing=lambda: False)
        transport.pause_reading = lambda: state.update(reading=False)
        transport.resume_reading = lambda: state.update(reading=True)
        protocol.connection_made(transport)
        # The application awaits the rest when it comes.
        for part in (request[:1000], request[1000:]):
            protocol.data_received(part)
            for _ in range(9):
                await asyncio.sleep(0)
        assert state == {"reading": True, "whole": True}

    asyncio.run(run())


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_ends_its_side_after_the_request_gets_its_answer(version):
    """Two requests of one connection, which ends within a third."""
    with served() as (port, encoder), held_up(port, encoder):
        with connected(port) as half:
            request = raw(["a b"]).replace(b"/1.1", f"/{version}".encode())
            half.sendall(request * 2 + request[:-9])
            half.shutdown(socket.SHUT_WR)
            _until_waiting(port, 4)
            encoder.open.set()
            answers = rest(half)
    assert answers.count(b"HTTP/1.1 200") == (1 if version == "1.0" else 2)
    assert answers.count(b'"embedding": [') == answers.count(b"HTTP/1.1 200")
    assert (b"HTTP/1.1 100" in answers) == (version == "1.1")


def test_a_full_queue_is_429_and_clients_try_again():
    with served(limits=Limits(queue_tokens=9)) as (port, encoder):
        with held_up(port, encoder) as ask_meanwhile:
            ask_meanwhile(["b"] * 3)
            _until_waiting(port, 9)
            with pytest.raises(openai.RateLimitError) as caught:
                client(port).embeddings.create(model="toy", input="c")
        assert caught.value.response.headers["retry-after"] == "1"
        _embed(port, "d")


def test_bodies_beyond_the_memory_for_them_are_429():
    """Large texts are few: those that wait are counted in bytes as well, and given back."""
    large = "x" * 3000
    with served(held_bytes=11_000) as (port, encoder):
        with held_up(port, encoder, large) as ask_meanwhile:
            ask_meanwhile([large] * 2)
            _until_waiting(port, 6)
            body = json.dumps({"model": "toy", "input": large}).encode()
            # Announced by its length, and in chunks.
            for sent in (body, (body[i : i + 100] for i in range(0, len(body), 100))):
                status, headers, answer = ask(port, sent)
                assert status == 429 and headers["retry-after"] == "1"
                assert json.loads(answer)["error"]["code"] == "overloaded"
            ask_meanwhile("small")
            _until_waiting(port, 9)
        for _ in range(3):
            _embed(port, [large] * 3)
            assert ask(port, {"model": "other", "input": large * 3})[0] == 404


def test_requests_beyond_those_at_once_are_429_and_health_is_not():
    with served(requests=1) as (port, encoder):
        with held_up(port, encoder):
            status, headers, body = ask(port, {"model": "toy", "input": "a"})
            assert status == 429 and headers["retry-after"] == "1"
            assert json.loads(body)["error"]["type"] == "invalid_request_error"
            assert ask(port, None, path="/health", method="GET")[0] == 200
        _embed(port, "a")


def test_a_connection_without_another_whole_request_is_closed():
    """After an answer, too, where uvicorn's own limit ends with the first byte."""
    request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with served(connections=ConnectionLimits(header_seconds=0.2)) as (port, _):
        answer = exchanged(port, request + b"GET")
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'"ok"}')


def test_connections_without_a_byte_make_room_for_others_first():
    """Then the newest of those that wait for a request; honest uploads are closed last."""
    limits, lines = ConnectionLimits(header_seconds=600, connections=3), []
    settings = {"connections": limits, "requests": 1, "log": lines.append}
    with served(**settings) as (port, _), contextlib.ExitStack() as stack:

        def another():
            return stack.enter_context(connected(port))

        upload, silent, between = another(), another(), another()
        request = raw(["a"])
        upload.sendall(request[:-9])
        between.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert between.recv(1000).startswith(b"HTTP/1.1 200")
        other = another()
        assert rest(silent) == b""
        other.sendall(b"G")
        newest = another()
        assert rest(other) == b"" or rest(between) == b""
        upload.sendall(request[-9:])
        assert upload.recv(1000).startswith(b"HTTP/1.1 200")
        newest.close()
    found = [json.loads(line).get("error") for line in lines]
    assert sorted(found, key=str) == [None, None, *["closed for another connection"] * 2]


def test_connections_that_read_nothing_keep_nobody_out():
    """Each has asked for many answers, and one of them is closed for a newcomer."""
    limits = ConnectionLimits(stalled_seconds=600, connections=3)
    with served(connections=limits, buffer=4096) as (port, _), contextlib.ExitStack() as stack:
        for _ in range(3):
            stuck = stack.enter_context(socket.socket())
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", port))
            stuck.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 300)
            assert stuck.recv(1) == b"H"
        # Until their buffers are full it is closed itself.
        assert any(_is_served(port) for _ in range(1000))


def test_connections_that_come_together_are_bounded_too():
    """One is closed for each, though all come before any is lost."""
    limits = ConnectionLimits(header_seconds=600, connections=3)
    with served(connections=limits) as (port, encoder), contextlib.ExitStack() as stack:
        go_on = threading.Event()
        encoder.on_loop(go_on.wait, 60)
        made = [stack.enter_context(connected(port)) for _ in range(20)]
        go_on.set()
        assert [rest(one) for one in made[:17]] == [b""] * 17
        for one in made[17:]:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one.recv(12) == b"HTTP/1.1 200"


def test_others_have_their_turn_while_chunks_are_parsed():
    """A request that comes after 400 chunks is answered before they are refused."""
    lines = []
    with served(log=lines.append) as (port, encoder):
        go_on = threading.Event()
        encoder.on_loop(go_on.wait, 60)
        with connected(port) as sender:
            sender.sendall(_CHUNKED + b"3c\r\n%b\r\n" % (b"x" * 60) * 400)
            with connected(port) as other:
                other.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n")
                go_on.set()
                assert other.recv(12) == b"HTTP/1.1 200"
            rest(sender)
    assert [json.loads(line)["status"] for line in lines] == [200, 400]


@pytest.mark.parametrize(
    "request_line", ["POST /v1/nothing", "GET /v1/embeddings", "GET /health", "POST /tokenize"]
)
def test_a_connection_whose_body_is_not_read_is_closed(request_line):
    """One byte a second would keep it open otherwise."""
    with served(api_keys=("key",)) as (port, _):
        head = f"{request_line} HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{{"
        assert exchanged(port, head.encode()).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("localhost:80", 200), ("[::1]", 200), ("127.1.2.3:8000", 200), ("LocalHost", 200)),
        ("localhost.a.b:80", 403),
    ],
)
def test_a_web_page_cannot_use_a_service_on_localhost(host, status):
    """Not under a name that is pointed at this machine, unless it has the key."""
    body = {"model": "toy", "input": "a"}
    with served(loopback=True) as (port, _):
        assert ask(port, body, {"Host": host})[0] == status
    with served(loopback=True, api_keys=("key",)) as (port, _):
        assert ask(port, body, {"Host": host, "Authorization": "Bearer key"})[0] == 200


def test_ready_is_503_while_the_oldest_request_waits_too_long(monkeypatch):
    monkeypatch.setattr(app, "_READY_SECONDS", 0)
    with served() as (port, encoder):
        with held_up(port, encoder) as ask_meanwhile:
            assert ask(port, None, path="/ready", method="GET")[0] == 200
            ask_meanwhile("a")
            _until_waiting(port, 3)
            status, headers, _ = ask(port, None, path="/ready", method="GET")
            assert status == 503 and headers["retry-after"] == "1"
            assert ask(port, None, path="/live", method="GET")[0] == 200
        assert ask(port, None, path="/ready", method="GET")[0] == 200


def test_what_is_open_when_the_service_ends_gets_503():
    """A body that never ends, a request that is computed and one that waits for it."""
    with served() as (port, encoder), contextlib.ExitStack() as stack:
        encoder.open.clear()
        asking = []
        for request in (raw(["a"])[:-9], raw(["hold"]), raw(["b"])):
            asking.append(stack.enter_context(connected(port)))
            asking[-1].sendall(request)
            if b"hold" in request:
                assert encoder.began.wait(60)
        _until_waiting(port, 3)
        encoder.end()
        for one in asking:
            answer = b""
            while not answer.endswith(b"}}"):
                answer += one.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 503") and b'"code": "closing"' in answer
        assert ask(port, None, path="/ready", method="GET")[0] == 503
        assert ask(port, None, path="/live", method="GET")[0] == 200


def test_a_client_that_reads_nothing_keeps_no_request_out_and_is_left():
    """Its answer is larger than what the system holds; its connection ends, as the log says."""
    limits, logged = ConnectionLimits(stalled_seconds=0.2), queue.Queue()
    settings = {"requests": 1, "buffer": 4096, "log": logged.put, "max_inputs": 20_000}
    # Answers that are sent in parts, and one that is sent at once.
    inputs = {"source_sentence": "a", "sentences": ["a b"] * 20_000}
    for request in (raw(["a b"] * 2048), posted({"inputs": inputs}, "/similarity")):
        with served(connections=limits, **settings) as (port, _), socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", port))
            stuck.sendall(request)
            assert stuck.recv(1) == b"H"
            # One request at once is taken, and this one is computed.
            _embed(port, "a")
            first, last = (json.loads(logged.get(timeout=60)) for _ in range(2))
            # Bytes that the answer holds are given back when it ends.
            assert not rest(stuck).endswith((b"0\r\n\r\n", b"]"))
        assert (first["status"], last["status"]) == (200, 499)
        assert "did not read" in last["error"]


def test_the_key_is_asked_for():
    with served(api_keys=("old", "sécret")) as (port, _):
        for key in ("wrong", "secret", "s"):
            with pytest.raises(openai.AuthenticationError):
                client(port, key).embeddings.create(model="toy", input="a")
        right = {"Authorization": "Bearer sécret".encode()}
        body = {"model": "toy", "input": "a"}
        assert ask(port, body)[0] == 401
        assert ask(port, body, {"Authorization": "Basic sécret".encode()})[0] == 401
        assert ask(port, body, right)[0] == 200
        assert ask(port, body, {"Authorization": "bearer old"})[0] == 200
        for path in ("/v1/models", "/v1/models/toy", "/metrics"):
            assert ask(port, None, path=path, method="GET")[0] == 401
            assert ask(port, None, right, path, "GET")[0] == 200
        assert ask(port, None, path="/health", method="GET")[0] == 200


def test_what_is_too_long_is_refused_where_that_is_wanted():
    with served(on_long="error", max_characters=30) as (port, _):
        for texts, says in (
            (["w", "w " * 10, "w " * 11], "input 2 has 13 tokens, at most 12"),
            (["w", "x" * 31], "input 1 has 31 characters, at most 30"),
        ):
            with pytest.raises(openai.BadRequestError, match=says):
                client(port).embeddings.create(model="toy", input=texts)
            _embed(port, texts[:-1])


def _embed(port, texts):
    assert ask(port, {"model": "toy", "input": texts})[0] == 200


def _is_served(port):
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        return ask(port, {"model": "toy", "input": "a"})[0] == 200
    return False


def _until_waiting(port, count):
    """Asks until so many tokens are in the queue."""
    for _ in range(3000):
        body = ask(port, None, path="/metrics", method="GET")[2].decode()
        if f"cmlm_waiting_tokens {count}.0" in body.splitlines():
            return
    raise AssertionError(f"never {count} tokens in the queue")


def test_a_batch_that_fails_is_halved_until_the_fault_is_found():
    """One bad request of sixteen costs four halvings, and the others get their own vectors."""
    encoder, calls = Encoder(), []

    def encode(texts):
        calls.append(len(texts))
        return encoder.encode(texts)

    embedder = TextEmbedder(OpenedEncoder("toy", "python", "", encode))
    calls.clear()
    texts = [[f"text {i} {j}" for j in range(1 + i % 5)] for i in range(16)]
    texts[5][0] = "fail"
    requests = [embedder.read(each, Prompt()).items for each in texts]
    found = embed_requests(embedder, requests)
    assert len(calls) == 9
    assert isinstance(found[5], UserError) and "told to fail" in str(found[5])
    for i in set(range(16)) - {5}:
        np.testing.assert_allclose(found[i], Words().encode(texts[i]), atol=1e-5)


_MODULE = """
import numpy as np

def encode(texts):
    return np.ones([len(texts), 3]) * [[len(text) + 1] for text in texts] + [1, 2, 3]
"""


@pytest.mark.long
def test_the_binary_serves_and_ends_in_order(tmp_path):
    """It serves on a free port; SIGTERM ends it with status 0, a body that never ends gets 503."""
    (tmp_path / "mine.py").write_text(_MODULE)
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CMLM_API_KEY": "key"}
    flags = ("--model=mine:encode", "--name=m", "--shutdown_seconds=1")
    with started(*flags, **environment) as (process, line):
        assert line.startswith("serving m (3 dimensions, python) at http://127.0.0.1:")
        port = int(line.removesuffix("/v1").rpartition(":")[2])
        found = client(port, "key").embeddings.create(model="m", input=["a", "bcd"])
        assert len(found.data) == 2
        assert ask(port, {"model": "m", "input": "a"})[0] == 401
        slow = connected(port)
        key = b"Host: localhost\r\nAuthorization: Bearer key"
        slow.sendall(raw(["a"], "m")[:-9].replace(b"Host: x", key))
        process.send_signal(signal.SIGTERM)
        said = process.stderr.read()
        assert rest(slow).startswith(b"HTTP/1.1 503")
        assert process.wait(60) == 0 and said == "ending …\n"


def test_a_folder_is_served_with_what_is_in_it(exported, tmp_path, monkeypatch):
    """An index has the page, a classifier the labels of its own vector, an encoder neither."""
    encoder = SentenceEncoder.load(exported[0], backend="tensorflow")
    index = Index.build(encoder, ["a cat", "a dog"])
    chosen = {"model": str(exported[0]), "precision": "float32", "pooling": None}
    index.settings = {"encoder": chosen}
    index.save(tmp_path / "my.index")
    shutil.copytree(exported[0], tmp_path / "classifier")
    layer = np.ones([encoder.dimension + 1, 3], np.float32)
    np.save(tmp_path / "classifier" / "classifier.npy", layer)
    made = mock.MagicMock()
    monkeypatch.setattr(app, "create_app", made)
    monkeypatch.setattr("export.service.serve._server", mock.MagicMock())
    monkeypatch.setattr(signal, "signal", mock.MagicMock())

    def served_as(folder, *more):
        options = ("--backend=tensorflow", "--port=0", *more)
        assert call("export.service.serve", f"--model={folder}", *options) == 0
        embedder, _, found, classifier = made.call_args.args
        return embedder.name, found and found.texts, bool(classifier)

    assert served_as(tmp_path / "my.index") == ("my.index", ["a cat", "a dog"], False)
    assert served_as(tmp_path / "classifier") == ("classifier", None, True)
    assert served_as(tmp_path / "classifier", "--pooling=max") == ("classifier", None, False)
    assert served_as(exported[0])[1:] == (None, False)
    made.reset_mock()
    assert call("export.service.serve", f"--model={tmp_path / 'my.index'}", "--pooling=max") == 1
    made.assert_not_called()


def test_an_address_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--port={port}: cannot be listened at"):
            _bound("127.0.0.1", port)
    with pytest.raises(UserError, match="cannot be listened at"):
        _bound("no.such.host.invalid", 80)


def test_a_blank_key_is_refused_and_white_space_is_not_part_of_one():
    assert _api_keys({}) == ()
    assert _api_keys({"CMLM_API_KEY": " secret\nnew "}) == ("secret", "new")
    for blank in ("", " ", "\n"):
        with pytest.raises(UserError, match="CMLM_API_KEY: is set and blank"):
            _api_keys({"CMLM_API_KEY": blank})
