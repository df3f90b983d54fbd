"""The REST client of examples/ against a stand-in for TensorFlow Serving.

The real server is no Python package and no package of Debian. The stand-in below takes and gives
the bodies that TensorFlow Serving's documentation of its REST interface describes, and runs the
SavedModel; it shows that the client fits the model's signatures, not that the server loads it. For
that, `test_serving.py` compares the ops.
"""

import json
import runpy
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from tests.docs.pages import ROOT

CLIENT = ROOT / "examples" / "serving_client.py"
TEXTS = ["The cat sat on the mat.", "", "dog", 'a "bird" — élan']


@pytest.fixture(scope="module")
def url(exported):
    """Yields a stand-in on a free port of this machine."""
    serving = tf.saved_model.load(str(exported[1] / "serving" / "1"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/models/sentence_encoder:predict"
            ((name, strings),) = body["inputs"].items()
            signature = serving.signatures[body["signature_name"]]
            outputs = signature(**{name: tf.constant(strings, tf.string)})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"outputs": outputs["default"].numpy().tolist()}).encode())

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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
