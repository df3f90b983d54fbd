"""The HTTP service, asked by OpenAI's own client and by others over loopback."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import pkgutil
import queue
import re
import shutil
import signal
import socket
import threading
from unittest import mock

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
from tests.binaries import call
from tests.docs.pages import ROOT
from tests.export.service_helpers import (
    ask,
    ask_error,
    ask_json,
    connect,
    count_tokens,
    embed,
    expect,
    make_service,
    read_rest,
    request_bytes,
    serve,
    start,
)
from tests.search.toy_encoder import WIDTH, Words

openai = pytest.importorskip("openai", reason="needs the package openai")


def client(port, key="none"):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def port():
    with serve() as (port, *_):
        yield port


@contextlib.contextmanager
def hold_up(port, encoder):
    """Yields a function that asks in a thread, while the encoder is held up by a first request."""
    threads = []

    def ask_meanwhile(texts):
        threads.append(threading.Thread(target=embed, args=(port, texts)))
        threads[-1].start()

    encoder.open.clear()
    ask_meanwhile(["hold"])
    assert encoder.began.wait(60)
    yield ask_meanwhile
    encoder.open.set()
    for thread in threads:
        thread.join(60)


def wait_for_queue(port, tokens):
    """Asks until so many tokens are in the queue."""
    for _ in range(3000):
        if f"cmlm_waiting_tokens {tokens}.0" in ask(port, path="/metrics")[2].decode():
            return
    raise AssertionError(f"never {tokens} tokens in the queue")


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_vectors_come_in_order_and_are_the_encoders(port, form):
    texts = ["one", "two words", "", "Äpfel 五个 \U0001f600 \x00", "one", "words two", " "]
    options = {} if form is None else {"encoding_format": form}
    answer = client(port).embeddings.create(model="toy", input=texts, **options)
    assert [item.index for item in answer.data] == list(range(len(texts)))
    rows = [
        np.frombuffer(base64.b64decode(item.embedding), "<f4")
        if isinstance(item.embedding, str)
        else item.embedding
        for item in answer.data
    ]
    np.testing.assert_allclose(rows, expect(texts), atol=1e-6)
    assert answer.model == "toy" and answer.usage.prompt_tokens == count_tokens(texts).sum()


@pytest.mark.parametrize(
    ("step", "texts"),
    [
        ("export.service.app.parse_body", "a" * 70_000),
        ("export.service.routes.list_vectors", ["a b"] * 200),
        ("pydantic.TypeAdapter.dump_json", ["a b"] * 200),
    ],
)
def test_health_is_told_while_a_large_body_is_parsed_or_answered(monkeypatch, port, step, texts):
    module, _, name = step.rpartition(".")
    owner = pkgutil.resolve_name(module)
    make, held, go_on, waits = getattr(owner, name), threading.Event(), threading.Event(), []

    def hold_first_call(*args):
        if not held.is_set():
            held.set()
            waits.append(go_on.wait(5))
        return make(*args)

    monkeypatch.setattr(owner, name, hold_first_call)
    asking = threading.Thread(target=embed, args=(port, texts))
    asking.start()
    assert held.wait(60)
    assert ask(port, path="/live")[0] == 200
    go_on.set()
    asking.join(60)
    assert waits == [True]


def test_half_a_surrogate_pair_counts_as_a_question_mark(port):
    body = b'{"model": "toy", "input": ["a \\ud800 b", "\\uDE00", "\\ud83d\\ude00", "a"]}'
    data = ask_json(port, body)[1]["data"]
    vectors = expect(["a ? b", "?", "\U0001f600", "a"])
    np.testing.assert_allclose([item["embedding"] for item in data], vectors, atol=1e-6)


def test_2048_texts_are_taken_and_2049_are_not(port):
    texts = [f"text {i % 7} of {i}" for i in range(2048)]
    answer = client(port).embeddings.create(model="toy", input=texts)
    assert [item.index for item in answer.data] == list(range(2048))
    rows = [answer.data[i].embedding for i in (0, 1000, 2047)]
    np.testing.assert_allclose(rows, expect([texts[i] for i in (0, 1000, 2047)]), atol=1e-6)
    with pytest.raises(openai.BadRequestError, match="input: has 2049 texts; 1 to 2048 are taken"):
        client(port).embeddings.create(model="toy", input=[*texts, "more"])


@pytest.mark.parametrize("normalize", [True, False])
def test_shorter_vectors_are_the_first_dimensions_at_the_former_length(normalize):
    """The text is a single one, which need not be in a list."""
    first = (expect if normalize else Words().encode)(["a b"])
    with serve(normalize=normalize) as (port, *_):
        for width in (WIDTH, 5):
            answer = client(port).embeddings.create(model="toy", input="a b", dimensions=width)
            expected = first[:, :width] * np.linalg.norm(first) / np.linalg.norm(first[:, :width])
            np.testing.assert_allclose([answer.data[0].embedding], expected, atol=1e-5)


def test_long_texts_are_cut_and_counted():
    """Characters and tokens are limited; a text beyond both limits counts once."""
    texts = ["x" * 101, "w " * 30, "w " * 90, "w"]
    bodies = {
        "/v1/embeddings": ({"model": "toy", "input": texts}, "3"),
        "/similarity": ({"inputs": {"source_sentence": texts[0], "sentences": texts}}, "4"),
        "/rerank": ({"query": texts[1], "texts": texts}, "4"),
        "/search": ({"query": texts[1]}, "1"),
    }
    parts = {"index": Index.build(Words(), ["a cat"])}
    with serve(max_characters=100, parts=parts) as (port, encoder, _):
        for path, (body, count) in bodies.items():
            status, headers, answer = ask(port, body, path)
            assert (status, headers["x-truncated-inputs"]) == (200, count), path
            if path == "/v1/embeddings":
                usage = json.loads(answer)["usage"]
                assert (usage["total_tokens"], usage["truncated_inputs"]) == (3 + 12 + 12 + 3, 3)
                assert encoder.texts[-1] == [text[:100] for text in texts]
                assert ask(port, body | {"truncate": False})[0] == 400


def test_long_texts_are_refused_if_the_service_is_told_so():
    with serve(on_long="error", max_characters=30) as (port, *_):
        for texts, words in (
            (["w", "w " * 10, "w " * 11], "input 2 has 13 tokens, at most 12"),
            (["w", "x" * 31], "input 1 has 31 characters, at most 30"),
        ):
            with pytest.raises(openai.BadRequestError, match=words):
                client(port).embeddings.create(model="toy", input=texts)
            embed(port, texts[:-1])


def test_models_are_listed(port):
    models = client(port).models
    assert [model.id for model in models.list()] == ["toy"]
    assert models.retrieve("toy").id == "toy"
    with pytest.raises(openai.NotFoundError, match="this server has 'toy'"):
        models.retrieve("gpt/x")
    with pytest.raises(openai.NotFoundError, match="this server has 'toy'") as caught:
        client(port).embeddings.create(model="text-embedding-3-small", input="a")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input": []}, "input: has 0 texts; 1 to 2048 are taken"),
        ({"input": 3}, "^input: Input should be a string or a list of strings$"),
        ({"model": None}, r"^model: Input should be a valid string \(this server has 'toy'\)$"),
        ({"input": [1, 2]}, "takes no token ids.*check_embedding_ctx_length"),
        ({"input": [[1, 2], "a"]}, "input.1: Input should be a valid array"),
        ({"input": ["a", None]}, "input.1: Input should be a valid string"),
        ({"model": 3, "truncate": 1}, "truncate: .* valid boolean; model: .* valid string"),
        ({"input_type": "other"}, "'query', 'document' or 'passage'"),
        ({"input_type": "query", "prompt_name": "query"}, "takes the place"),
        ({"prompt_name": "no"}, "no prompt 'no'; the encoder has none"),
        ({"normalize": False}, "normalize: Extra inputs are not permitted"),
        ({"dimensions": 0}, f"1 to {WIDTH}"),
        ({"dimensions": WIDTH + 1}, f"1 to {WIDTH}"),
        (b'{"model": "toy", "input": "\xff"}', "body: Invalid JSON"),
        (b'{"input": "\\ud800', "body: Invalid JSON"),
        (b"[" * 100_000, "body: Invalid JSON"),
        (b"[1]", "body: Input should be an object"),
    ],
)
def test_wrong_bodies_say_what_is_wrong(port, change, message):
    body = {"model": "toy", "input": "a"} | change if isinstance(change, dict) else change
    status, words = ask_error(port, body)
    assert status == 400 and re.search(message, words)
    embed(port, "a")


@pytest.mark.parametrize(
    ("body", "path", "param"),
    [
        ({"input": 3, "foo": 1}, "/v1/embeddings", "foo"),
        ({"foo": 1}, "/v1/embeddings", "foo"),
        ({"input": ["a", None], "model": "toy"}, "/v1/embeddings", "input"),
        ({"x" * 50_000: 1}, "/v1/embeddings", "x" * 60),
        ({"inputs": {"source_sentence": "a", "sentences": "b", "c": 1}}, "/similarity", "c"),
        ({"inputs": {"source_sentence": "a"}}, "/similarity", "inputs"),
    ],
)
def test_param_of_an_answer_is_the_wrong_field(port, body, path, param):
    """Unknown fields come first, and names are cut."""
    status, answer = ask_json(port, body, path)
    assert status == 400 and answer["error"]["param"] == param
    assert len(answer["error"]["message"]) < 200


@pytest.mark.parametrize(
    ("body", "path", "status", "message"),
    [
        ({"inputs": {"sentences": "a"}}, "/similarity", 400, "inputs.source_sentence: Field"),
        ({"inputs": "a"}, "/tokenize", 400, "does not show its tokens"),
        ({"query": "a"}, "/search", 404, "no such address"),
        ({"query": "a"}, "/a%0A%1Bb", 404, r"POST /a \\x1bb: no such address"),
        ({"query": "a"}, "/health", 405, "no such method"),
    ],
)
def test_wrong_addresses_say_what_is_wrong(port, body, path, status, message):
    answered, words = ask_error(port, body, path)
    assert answered == status and re.search(message, words)


def test_a_body_must_be_json(port):
    """A web page of another site can send other types without being asked."""
    for kind in ("text/plain", "application/jsonx", "multipart/form-data; boundary=a"):
        assert ask_error(port, {"model": "toy"}, headers={"Content-Type": kind})[0] == 415
    kind = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert ask(port, {"model": "toy", "input": "a"}, headers=kind)[0] == 200


def test_the_schema_names_the_fields_that_are_taken(port):
    """Each address that is listed answers and is described, and no other field is taken."""
    addresses = [line.split() for line in ask_json(port, path="/")[1]["addresses"]]
    schema = ask_json(port, path="/openapi.json")[1]
    assert schema["openapi"] == "3.1.0"
    assert set(schema["paths"]) == {path.replace(":path", "") for _, path in addresses}
    for method, path in addresses:
        status = ask(port, "{}" if method == "POST" else None, path, method=method)[0]
        assert status in (200, 400, 404) and (status != 404 or "{" in path)
        operation = schema["paths"][path.replace(":path", "")][method.lower()]
        if method == "POST":
            reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            names = schema["components"]["schemas"][reference.split("/")[-1]]["properties"]
            status, message = ask_error(port, dict.fromkeys(names) | {"other": 1}, path)
            assert status == 400 and "other: Extra inputs are not permitted" in message
    answer = schema["paths"]["/v1/embeddings"]["post"]["responses"]["200"]["content"]
    assert "Embedding" in answer["application/json"]["schema"]["$ref"]
    info = ask_json(port, path="/info")[1]
    assert (info["max_input_length"], info["dimension"]) == (12, WIDTH)
    assert (info["max_client_batch_size"], info["auto_truncate"]) == (2048, True)


def test_a_request_is_one_line_of_the_log():
    lines = []
    with serve(log=lines.append) as (port, *_):
        body = {"model": "toy", "input": ["a b", "w " * 50]}
        _, headers, _ = ask(port, body, headers={"X-Request-Id": "mine-1"})
        assert headers["x-request-id"] == "mine-1"
        for number in ('a b"{', "x" * 65):
            _, headers, _ = ask(port, {"model": "other"}, headers={"X-Request-Id": number})
            assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
        ask(port, path="/no%0A%22where")
    assert not any("\n" in line for line in lines)
    first, *others = map(json.loads, lines)
    assert [line["status"] for line in others] == [400, 400, 404]
    assert others[-1]["path"] == '/no\n"where'
    facts = {"id": "mine-1", "client": "127.0.0.1", "path": "/v1/embeddings", "status": 200}
    assert first == first | facts | {"texts": 2, "tokens": 16, "cut_texts": 1}


def test_many_texts_are_tokenised_part_by_part(monkeypatch):
    """Each has its own vector even so."""
    monkeypatch.setattr("export.service.service._TURN_TEXTS", 8)
    texts = [f"{'x' * (i % 50)} {i}" for i in range(200)]
    with serve() as (port, _, service):
        read = mock.Mock(side_effect=service.embedder.read)
        service.embedder.read = read
        data = ask_json(port, {"model": "toy", "input": texts})[1]["data"]
    np.testing.assert_allclose([item["embedding"] for item in data], expect(texts), atol=1e-6)
    assert read.call_count > 20


def test_similarity_and_rerank_are_cosines(port):
    texts = ["two words", "words two", "other"]
    inputs = {"source_sentence": "two words", "sentences": texts}
    cosines = ask_json(port, {"inputs": inputs}, "/similarity")[1]
    np.testing.assert_allclose(cosines, expect(texts) @ expect(["two words"])[0], atol=1e-6)
    body = {"query": "other", "texts": texts, "return_text": True}
    ranks = ask_json(port, body, "/rerank")[1]
    assert ranks[0]["text"] == "other" and sorted(rank["index"] for rank in ranks) == [0, 1, 2]
    scores = [rank["score"] for rank in ranks]
    assert scores == sorted(scores, reverse=True) and scores[0] == pytest.approx(1)
    assert "text" not in ask_json(port, body | {"return_text": False}, "/rerank")[1][0]


@pytest.fixture
def tokens_port(exported):
    """Serves an encoder that shows its tokens."""
    from export.service.embedder import TokenEmbedder

    with serve() as (port, _, service):
        embedder = TokenEmbedder(SentenceEncoder.load(exported[0], backend="onnx"), "toy")
        service.embedder, service.batcher._embed = embedder, embedder.embed
        yield port


def test_tokens_are_shown_and_taken(tokens_port):
    """Rows of ids of `/tokenize` have the vectors of their texts."""
    texts = ["the cat", "", "dog " * 50]
    rows = ask_json(tokens_port, {"inputs": texts}, "/tokenize")[1]
    assert [token["text"] for token in rows[0]] == ["[CLS]", "the", "cat", "[SEP]"]
    assert [token["special"] for token in rows[0]] == [True, False, False, True]
    assert [len(row) for row in rows] == [4, 2, 52]
    plain = {"inputs": "the", "add_special_tokens": False}
    assert ask_json(tokens_port, plain, "/tokenize")[1][0][0]["text"] == "the"
    vectors = [
        [item["embedding"] for item in ask_json(tokens_port, body)[1]["data"]]
        for body in (
            {"model": "toy", "input": texts},
            {"model": "toy", "input": [[token["id"] for token in row] for row in rows]},
        )
    ]
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert "/tokenize" in ask_error(tokens_port, {"model": "toy", "input": [5, 6]})[1]


def test_tokens_are_shown_up_to_a_number_and_many_on_another_thread(tokens_port, monkeypatch):
    from export.service import routes

    threads, list_tokens = [], routes.list_tokens

    def note_thread(*args):
        threads.append(threading.current_thread())
        return list_tokens(*args)

    monkeypatch.setattr(routes, "list_tokens", note_thread)
    for count in (1, 65_534):
        rows = ask_json(tokens_port, {"inputs": ["!" * count]}, "/tokenize")[1]
        assert len(rows[0]) == count + 2
    assert threads[0] is not threads[1]
    status, message = ask_error(tokens_port, {"inputs": ["!" * 65_535]}, "/tokenize")
    assert status == 400 and "65537 tokens, at most 65536" in message
    plain = {"inputs": ["!" * 65_536], "add_special_tokens": False}
    assert ask(tokens_port, plain, "/tokenize")[0] == 200


@pytest.fixture
def searched():
    """Serves an index of three passages of two files."""
    texts = ["the key is <b>here</b>", "a cat sat", "where a dog ran"]
    metadata = [{"file": f"{'ab'[i % 2]}.txt", "line": i + 1} for i in range(3)]
    with serve(parts={"index": Index.build(Words(), texts, metadata=metadata)}) as (port, *_):
        yield port


def test_an_index_is_searched(searched):
    status, answer = ask_json(searched, {"query": "a cat sat", "k": 2}, "/search")
    first, second = answer["hits"]
    assert status == 200 and first["score"] == pytest.approx(1) and second["score"] < 0.99
    assert (first["text"], first["metadata"]) == ("a cat sat", {"file": "b.txt", "line": 2})
    assert len(ask_json(searched, {"query": "cat"}, "/search")[1]["hits"]) == 3
    for wrong in ({"query": 3}, {}, {"query": "a", "k": 0}, {"query": "a", "k": 101}, {"q": "a"}):
        assert ask_error(searched, wrong, "/search")[0] == 400
    assert "POST /search" in ask_json(searched, path="/")[1]["addresses"]


def test_search_tells_the_nearest_sentence_and_no_folder_of_the_server():
    texts = ["Pets\nI have a dog. A cat sat.", "Pets\nMore of them.", "a dog ran"]
    metadata = [{"file": f"/home/me/{name}.md"} for name in "aab"]
    index = Index.build(Words(), texts, ids=[f"/home/me/{i}" for i in range(3)], metadata=metadata)
    index.settings = {"root": "/home/me", "near": 0.3, "files": {"a.md": [], "b.md": []}}
    with serve(parts={"index": index}, max_characters=100) as (port, *_):
        body = {"query": "A cat sat.", "k": 1, "sentences": True}
        answer = ask_json(port, body, "/search")[1]
        (hit,) = answer["hits"]
        assert (hit["sentence"], hit["id"], answer["near"]) == ("A cat sat.", "0", 0.3)
        assert hit["metadata"] == {"file": "a.md"}
        beside = ask_json(port, {"id": "0"}, "/passages")[1]["hits"]
        assert [one["text"] for one in beside] == texts[:2]
        assert ask_error(port, {"id": "9"}, "/passages")[0] == 404
        facts = ask_json(port, path="/info")[1]
        assert (facts["passages"], facts["files"]) == (3, 2)


def test_the_page_loads_nothing_from_elsewhere(searched, port):
    accept = {"Accept": "text/html,*/*"}
    status, headers, body = ask(searched, path="/", headers=accept)
    assert status == 200 and headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not re.search(rb"(src|href)\s*=(?!.data:,)|https?:|//\w", body)
    # A service without an index has none.
    assert ask(port, path="/", headers=accept)[1]["content-type"] == "application/json"


def test_labels_are_those_of_the_classifier():
    """Its probabilities are those of the encoder's own vectors, at whatever length."""
    kernel = np.random.default_rng(0).normal(size=[WIDTH, 3]).astype(np.float32)
    classifier = Classifier(None, kernel, np.zeros([3], np.float32))
    texts = ["two words", "other"]
    probabilities = classifier.probabilities(Words().encode(texts))
    best = probabilities.argmax(axis=1).tolist()
    named = dataclasses.replace(classifier, label_names=("a", "b", "c"))
    for served, labels in ((classifier, best), (named, ["abc"[label] for label in best])):
        with serve(parts={"classifier": served}) as (port, *_):
            body = {"model": "toy", "input": texts}
            status, answer = ask_json(port, body, "/v1/classify")
            assert ask(port, {"input": texts}, "/v1/classify")[0] == 400
            info = ask_json(port, path="/info")[1]
        assert (
            answer["labels"]
            == info["labels"]
            == (["a", "b", "c"] if served is named else [0, 1, 2])
        )
        rows = [item["probs"] for item in answer["data"]]
        np.testing.assert_allclose(rows, probabilities, atol=1e-5)
        assert status == 200 and answer["usage"]["total_tokens"] == 7
        assert [item["label"] for item in answer["data"]] == labels


def test_a_large_body_is_refused_with_its_length_and_in_chunks():
    with serve(max_body_mb=1) as (port, *_):
        for chunks in (b"", b"Transfer-Encoding: chunked\r\n"):
            head = request_bytes("a").partition(b"Content-Length")[0]
            with connect(port) as sender:
                if chunks:
                    sender.sendall(
                        head + chunks + b"\r\n" + b"80000\r\n%b\r\n" % bytes(1 << 19) * 2
                    )
                    sender.sendall(b"1\r\nx\r\n")
                else:
                    sender.sendall(head + b"Content-Length: 1048577\r\n\r\n")
                answer = read_rest(sender)
            assert answer.startswith(b"HTTP/1.1 413") and b"larger than 1 MiB" in answer
        embed(port, "a")


def test_an_encoder_that_fails_fails_one_request_only(port):
    with pytest.raises(openai.InternalServerError, match="failed to embed"):
        client(port).embeddings.create(model="toy", input="fail")
    assert client(port).embeddings.create(model="toy", input="a").data


def test_metrics_count_requests_and_batches():
    with serve() as (port, *_):
        assert ask(port, path="/health")[0] == ask(port, path="/live")[0] == 200
        client(port).embeddings.create(model="toy", input=["a b", "c"])
        ask(port, {"model": "other", "input": "a"})
        _, headers, body = ask(port, path="/metrics")
    lines = body.decode().splitlines()
    assert headers["content-type"].startswith("text/plain")
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


def test_a_client_that_leaves_is_not_computed_for():
    with serve() as (port, encoder, _):
        with hold_up(port, encoder):
            with connect(port) as sender:
                sender.sendall(request_bytes(["gone"]))
                wait_for_queue(port, 3)
            wait_for_queue(port, 0)
        assert encoder.texts == [["hold"]]


def test_client_that_leaves_between_short_pieces_is_not_computed_for(monkeypatch):
    """Each piece ends sooner than the client is looked for."""
    from export.service.service import Call, Refusal

    monkeypatch.setattr("export.service.service._GONE_SECONDS", 0.1)
    encoder, pieces = Words(), []

    def encode(texts):
        pieces.append(texts)
        threading.Event().wait(0.02)
        return Words().encode(texts)

    encoder.encode = encode
    service = make_service(encoder, max_batch_tokens=3)
    pieces.clear()
    request = mock.Mock(is_disconnected=mock.AsyncMock(return_value=True))

    async def ask_for_pieces():
        with pytest.raises(Refusal) as caught:
            await Call(service, request).embed([f"word{i}" for i in range(20)])
        await service.batcher.close()
        assert caught.value.status_code == 499

    asyncio.run(ask_for_pieces())
    assert 0 < len(pieces) < 20


def test_client_that_leaves_within_its_body_is_499_in_the_log():
    lines = queue.Queue()
    with serve(log=lines.put) as (port, *_):
        with connect(port) as sender:
            sender.sendall(request_bytes(["gone"])[:-9])
        assert json.loads(lines.get(timeout=60))["status"] == 499


def test_a_full_queue_is_429_and_clients_try_again():
    with serve(max_queue_tokens=9) as (port, encoder, _):
        with hold_up(port, encoder) as ask_meanwhile:
            ask_meanwhile(["b"] * 3)
            wait_for_queue(port, 9)
            with pytest.raises(openai.RateLimitError, match="overloaded; try again") as caught:
                client(port).embeddings.create(model="toy", input="c")
            assert caught.value.response.headers["retry-after"] == "1"
            assert caught.value.code == "overloaded"
        embed(port, "d")


def test_ready_is_503_while_the_oldest_request_waits_too_long(monkeypatch):
    monkeypatch.setattr("export.service.routes._READY_SECONDS", 0)
    with serve() as (port, encoder, _):
        with hold_up(port, encoder) as ask_meanwhile:
            assert ask(port, path="/ready")[0] == 200
            ask_meanwhile("a")
            wait_for_queue(port, 3)
            status, headers, _ = ask(port, path="/ready")
            assert (status, headers["retry-after"]) == (503, "1")
            assert ask(port, path="/live")[0] == 200
        assert ask(port, path="/ready")[0] == 200


def test_open_requests_get_503_when_the_service_ends():
    """They are a body that never ends, a request that is computed, and one that waits."""
    with serve(shutdown_seconds=1) as (port, encoder, _), contextlib.ExitStack() as stack:
        encoder.open.clear()
        senders = []
        for request in (request_bytes(["a"])[:-9], request_bytes(["hold"]), request_bytes(["b"])):
            senders.append(stack.enter_context(connect(port)))
            senders[-1].sendall(request)
            if b"hold" in request:
                assert encoder.began.wait(60)
        wait_for_queue(port, 3)
        encoder.end()
        for sender in senders:
            answer = b""
            while not answer.endswith(b"}}"):
                answer += sender.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 503") and b"the server is shutting down" in answer
        encoder.open.set()


def test_a_web_page_cannot_use_a_service_on_localhost():
    """A name that is pointed at this machine is refused, unless the request has the key."""
    body = {"model": "toy", "input": "a"}
    own = ("localhost:80", "[::1]", "127.1.2.3:8000", "LocalHost")
    others = ("localhost.a.b:80", "127.0.0.1.a.b", "", "0.0.0.0")
    for keys in ((), ("key",)):
        with serve(parts={"is_local": True, "keys": keys}) as (port, *_):
            for host in (*own, *others):
                headers = {"Host": host} | ({"Authorization": "Bearer key"} if keys else {})
                expected = 200 if keys or host in own else 403
                assert ask(port, body, headers=headers)[0] == expected, host
                assert ask(port, path="/live", headers={"Host": host})[0] == 200


def test_the_key_is_asked_for():
    with serve(parts={"keys": ("old", "sécret")}) as (port, *_):
        for key in ("wrong", "secret", "s"):
            with pytest.raises(openai.AuthenticationError):
                client(port, key).embeddings.create(model="toy", input="a")
        right = {"Authorization": "Bearer sécret".encode()}
        body = {"model": "toy", "input": "a"}
        assert ask(port, body)[1]["www-authenticate"] == "Bearer"
        for wrong in ("Basic sécret".encode(), "sécret".encode(), b"Bearer", b"Bearer \xff\xfe"):
            assert ask_error(port, body, headers={"Authorization": wrong})[0] == 401
        assert ask(port, body, headers=right)[0] == 200
        assert ask(port, body, headers={"Authorization": "bearer old"})[0] == 200
        for path in ("/v1/models", "/v1/models/toy", "/metrics", "/info"):
            assert ask(port, path=path)[0] == 401
            assert ask(port, path=path, headers=right)[0] == 200
        assert ask(port, path="/health")[0] == 200


_MODULE = """
import os
import signal

import numpy as np

os.kill(os.getpid(), signal.SIGHUP)

def encode(texts):
    return np.ones([len(texts), 3]) * [[len(text) + 1] for text in texts] + [1, 2, 3]
"""


@pytest.mark.long
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_the_binary_serves_and_ends_in_order(tmp_path, ending):
    """It serves on a free port; signals end it with status 0, a body that never ends gets 503.

    SIGHUP while the encoder is opened does nothing.
    """
    (tmp_path / "mine.py").write_text(_MODULE)
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "CMLM_API_KEY": "key"}
    flags = ("--model=mine:encode", "--name=m", "--shutdown_seconds=1")
    with start(*flags, **environment) as (process, port, line):
        assert line.startswith("serving m (3 dimensions, python) at http://127.0.0.1:")
        answer = client(port, "key").embeddings.create(model="m", input=["a", "bcd"])
        assert len(answer.data) == 2
        assert ask(port, {"model": "m", "input": "a"})[0] == 401
        slow = connect(port)
        slow.sendall(request_bytes(["a"], "m", Authorization="Bearer key")[:-9])
        process.send_signal(ending)
        words = process.stderr.read()
        assert read_rest(slow).startswith(b"HTTP/1.1 503")
        assert process.wait(60) == 0 and words.startswith("ending …\n") and "Traceback" not in words


def write_index(encoder, model, folder, texts):
    index = Index.build(encoder, texts)
    encoder_settings = {"model": str(model), "precision": "float32", "pooling": None}
    index.settings = {"encoder": encoder_settings, "files": {}}
    index.save(folder, overwrite=True)


@pytest.mark.long
def test_an_index_is_opened_again_on_sighup(exported, tmp_path):
    """A folder that is damaged leaves the former index in its place."""
    encoder, folder = SentenceEncoder.load(exported[0], backend="onnx"), tmp_path / "my.index"

    def search(port):
        return {hit["text"] for hit in ask_json(port, {"query": "cat"}, "/search")[1]["hits"]}

    write_index(encoder, exported[0], folder, ["a cat"])
    flags = (f"--model={folder}", "--backend=onnx")
    with start(*flags, CMLM_API_KEY=None, PYTHONPATH=str(ROOT)) as (process, port, _):
        assert search(port) == {"a cat"}
        write_index(encoder, exported[0], folder, ["a cat", "a dog"])
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline().endswith("again: 2 texts\n")
        assert search(port) == {"a cat", "a dog"}
        (folder / "index.json").write_text("{")
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline().endswith("the former index is still served\n")
        assert search(port) == {"a cat", "a dog"}


def test_a_folder_is_served_with_its_index_or_classifier(exported, tmp_path, monkeypatch):
    """An index has the page, a classifier the labels of its own vector, an encoder neither."""
    encoder = SentenceEncoder.load(exported[0], backend="tensorflow")
    write_index(encoder, exported[0], tmp_path / "my.index", ["a cat", "a dog"])
    shutil.copytree(exported[0], tmp_path / "classifier")
    layer = np.ones([encoder.dimension + 1, 3], np.float32)
    np.save(tmp_path / "classifier" / "classifier.npy", layer)
    make_server = mock.MagicMock()
    monkeypatch.setattr("export.service.serve.make_server", make_server)
    monkeypatch.setattr(signal, "signal", mock.MagicMock())

    def open_folder(folder, *flags):
        options = ("--backend=tensorflow", "--port=0", *flags)
        assert call("export.service.serve", f"--model={folder}", *options) == 0
        service = make_server.call_args.args[0]
        return service.name, service.index and len(service.index), bool(service.classifier)

    assert open_folder(tmp_path / "my.index") == ("my.index", 2, False)
    assert open_folder(tmp_path / "classifier") == ("classifier", None, True)
    assert open_folder(tmp_path / "classifier", "--pooling=max") == ("classifier", None, False)
    assert open_folder(exported[0], "--name=mine") == ("mine", None, False)
    make_server.reset_mock()
    assert call("export.service.serve", f"--model={tmp_path / 'my.index'}", "--pooling=max") == 1
    make_server.assert_not_called()


def test_other_machines_need_a_key_or_the_flag(monkeypatch, capsys):
    opened = mock.MagicMock(side_effect=UserError("opened"))
    monkeypatch.setattr("export.service.serve.open_service", opened)
    monkeypatch.delenv("CMLM_API_KEY", raising=False)
    flags = ("--model=mini-en", "--port=0")

    def refuse(*more):
        assert call("export.service.serve", *flags, *more) == 1
        return "set CMLM_API_KEY, or pass --allow_anyone" in capsys.readouterr().err

    assert refuse("--host=0.0.0.0")
    assert not refuse("--host=127.0.0.1") and not refuse("--host=0.0.0.0", "--allow_anyone")
    monkeypatch.setenv("CMLM_API_KEY", "key")
    assert not refuse("--host=0.0.0.0")


def test_an_address_that_is_taken_is_one_line():
    from export.service.serve import bind

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen on 127.0.0.1:{port} "):
            bind("127.0.0.1", port)
    with pytest.raises(UserError, match="cannot listen on no.such.host.invalid:80 "):
        bind("no.such.host.invalid", 80)


def test_a_blank_key_is_refused_and_white_space_is_not_part_of_a_key():
    from export.service.serve import read_keys

    assert read_keys({}) == ()
    assert read_keys({"CMLM_API_KEY": " secret\nnew "}) == ("secret", "new")
    for blank in ("", " ", "\n"):
        with pytest.raises(UserError, match="CMLM_API_KEY: is set and blank"):
            read_keys({"CMLM_API_KEY": blank})
