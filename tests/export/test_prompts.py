"""One rule for prompts in all channels: documents, questions, and the default one otherwise."""

import json

import numpy as np
import pytest
import tensorflow as tf

from export.embedding import worker
from export.formats import tfhub
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.checkpoints.encoder_directory import EncodingSettings, write_settings
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
from tests.conftest import write_encoder
from tests.export.serving_ops import CORE_OPS, TEXT_OPS, example_of, trace_ops

PROMPTS = {"query": "the bird ", "document": "a cat ", "other": "the old Über "}
TEXT = "the dog ran"


@pytest.fixture(scope="module")
def model(tmp_path_factory, vocabulary):
    folder = write_encoder(tmp_path_factory.mktemp("prompts") / "model", vocabulary)
    write_settings(folder, EncodingSettings(PROMPTS, "other"))
    return folder


@pytest.fixture(scope="module")
def encoder(model):
    return SentenceEncoder.load(model)


def _serve(encoder, **fields):
    """Asks the HTTP service."""
    pytest.importorskip("starlette")
    from starlette.testclient import TestClient

    from export.service.app import create_app
    from export.service.embedder import TokenEmbedder
    from export.service.service import Service
    from export.service.settings import Settings

    app = create_app(Service(TokenEmbedder(encoder, "tiny"), Settings(normalize=False)))
    with TestClient(app) as client:
        answer = client.post("/v1/embeddings", json={"model": "tiny", "input": [TEXT]} | fields)
    return answer.json()["data"][0]["embedding"]


def _embed(encoder, model, **settings):
    return worker.Settings(str(model), **settings).encode(encoder, [TEXT])[0]


def _search(encoder):
    """Returns a vector that gives the scores that a search of unit vectors gives."""
    axes = np.eye(encoder.dimension, dtype=np.float32)
    index = Index.build(encoder, ["a"] * len(axes), vectors=axes)
    scores = {int(hit.id): hit.score for hit in index.search(TEXT, k=len(axes))}
    return [scores[i] for i in range(len(axes))]


_CHANNELS = {
    "class, stored": ("document", lambda e, m: e.encode_document(TEXT)),
    "class, asked": ("query", lambda e, m: e.encode_query(TEXT)),
    "class": ("other", lambda e, m: e.encode(TEXT)),
    "embed": ("document", _embed),
    "embed, windows": ("document", lambda e, m: _embed(e, m, on_long="windows")),
    "embed, by name": ("query", lambda e, m: _embed(e, m, prompt_name="query")),
    "HTTP": ("other", lambda e, m: _serve(e)),
    "HTTP, stored": ("document", lambda e, m: _serve(e, input_type="document")),
    "HTTP, asked": ("query", lambda e, m: _serve(e, input_type="query")),
    "HTTP, by name": ("query", lambda e, m: _serve(e, prompt_name="query")),
    "search, stored": ("document", lambda e, m: Index.build(e, [TEXT]).vectors()[0]),
    "search, asked": ("query", lambda e, m: _search(e)),
}


@pytest.mark.parametrize("channel", _CHANNELS)
def test_every_channel_has_the_prompt_of_the_rule(channel, model, encoder):
    name, embed = _CHANNELS[channel]
    expected = encoder.encode(PROMPTS[name] + TEXT, prompt="")
    vectors = np.asarray(embed(encoder, model), np.float32)
    if "search" in channel:
        expected = expected / np.linalg.norm(expected)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


@pytest.mark.long
def test_the_exported_modules_have_the_default_prompt(model, encoder, tmp_path, saved):
    """The pair, and all signatures of the serving model that embed; `tokenize` adds nothing."""
    written = tfhub.export(TfhubOptions(model, tmp_path / "out"))
    assert written.prompt == PROMPTS["other"]
    preprocess, module, serving = (saved[part] for part in tfhub.PARTS)
    texts = tf.constant([TEXT, "a", ""])
    expected = encoder.encode([TEXT, "a", ""])
    np.testing.assert_allclose(module(preprocess(texts))["default"], expected, atol=1e-5)
    np.testing.assert_allclose(serving.serve(texts)["default"], expected, atol=1e-5)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(serving.serve_normalized(texts)["default"], unit, atol=1e-5)
    outputs = serving.serve_examples(tf.constant([example_of(TEXT)]))
    np.testing.assert_allclose(outputs["default"], expected[:1], atol=1e-5)
    assert preprocess.tokenize(tf.constant(["cat"])).row_lengths().numpy().tolist() == [1]
    assert serving.tokenize(tf.constant(["cat"]))["input_mask"].numpy().sum() == 3
    for function in (preprocess.__call__, serving.serve):
        assert trace_ops(function) <= CORE_OPS | TEXT_OPS
    described = json.loads(module.described)
    assert described["default_prompt_name"] == "other" and described["prompts"] == PROMPTS
