"""The REST client of examples/ against a stand-in for TensorFlow Serving.

The real server is no Python package and no package of Debian. The stand-in below takes and gives
the bodies that TensorFlow Serving's documentation of its REST interface describes, and runs the
SavedModel; it shows that the client and the documented requests fit the model's signatures, not
that the server loads it. For that, `test_serving.py` compares the ops.
"""

import base64
import json
import runpy
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.sentence_encoder import SentenceEncoder
from tests.docs.pages import ROOT

CLIENT = ROOT / "examples" / "serving_client.py"
TEXTS = ["The cat sat on the mat.", "", "dog", 'a "bird" — élan']


def _strings(values):
    """Strings, or bytes as `{"b64": …}`."""
    return [base64.b64decode(v["b64"]) if isinstance(v, dict) else v for v in values]


@pytest.fixture(scope="module")
def url(exported):
    """Yields a stand-in on a free port of this machine."""
    serving = tf.saved_model.load(str(exported[1] / "serving" / "1"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                assert self.path == "/v1/models/sentence_encoder:predict"
                signature = serving.signatures[body.get("signature_name", "serving_default")]
                (name,) = signature.structured_input_signature[1]
                values = body["inputs"][name] if "inputs" in body else body["instances"]
                outputs = signature(**{name: tf.constant(_strings(values), tf.string)})
                found = {key: each.numpy().tolist() for key, each in outputs.items()}
                if len(found) == 1:
                    found = found.popitem()[1]
                elif "instances" in body:
                    found = [dict(zip(found, row)) for row in zip(*found.values())]
                status, key = 200, "predictions" if "instances" in body else "outputs"
            except Exception as error:
                status, key, found = 400, "error", str(error)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({key: found}).encode())

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _post(url, body):
    address = f"{url}/v1/models/sentence_encoder:predict"
    with urllib.request.urlopen(
        urllib.request.Request(address, json.dumps(body).encode())
    ) as found:
        return json.load(found)


def test_client_gets_the_vectors_of_encode(url, exported):
    embed = runpy.run_path(str(CLIENT))["embed"]
    expected = SentenceEncoder.load(exported[0]).encode(TEXTS)
    np.testing.assert_allclose(embed(url, TEXTS), expected, atol=1e-5)
    assert embed(url, []) == []


def test_client_prints_cosines(url, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["client", f"--url={url}", "the cat", "the cat", "red"])
    runpy.run_path(str(CLIENT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["1.000", "the", "cat"] and len(lines) == 2


def test_rows_bytes_and_examples(url):
    """The other forms of docs/serving.md."""
    vectors = _post(url, {"inputs": {"text": ["dog"]}})["outputs"]
    assert _post(url, {"instances": ["dog"]})["predictions"] == vectors
    encoded = {"b64": base64.b64encode(b"dog").decode()}
    assert _post(url, {"instances": [encoded]})["predictions"] == vectors
    value = tf.train.BytesList(value=[b"dog"])
    features = tf.train.Features(feature={"text": tf.train.Feature(bytes_list=value)})
    example = tf.train.Example(features=features).SerializeToString()
    body = {"signature_name": "serve_examples"}
    body["inputs"] = {"examples": [{"b64": base64.b64encode(example).decode()}]}
    assert _post(url, body)["outputs"] == vectors
    rows = _post(url, {"signature_name": "tokenize", "instances": ["dog"]})["predictions"]
    assert len(rows) == 1 and sorted(rows[0]) == ["input_mask", "input_word_ids"]


def test_a_refused_request_is_an_error(url):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        _post(url, {"instances": [["a matrix"]]})
