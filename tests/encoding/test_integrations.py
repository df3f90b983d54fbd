"""Encoders in LangChain and LlamaIndex: what is stored and what is asked for get their prompts."""

import asyncio
import types

import numpy as np
import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.encoding import integrations
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from tests.encoding.test_encoding import Waves

TEXTS = ["the cat ran", "a dog", "the bird sat"]


@pytest.fixture
def encoder(vocabulary):
    encoder = SentenceEncoder(Waves(), vocabulary, 12)
    encoder.prompts |= {"query": "the ", "document": "a "}
    return encoder


def test_langchain(encoder):
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore

    found = integrations.langchain_embeddings(encoder, normalize_embeddings=True)
    assert isinstance(found, Embeddings)
    stored = encoder.encode_document(TEXTS, normalize_embeddings=True)
    asked = encoder.encode_query("a dog", normalize_embeddings=True)
    np.testing.assert_allclose(found.embed_documents(TEXTS), stored)
    np.testing.assert_allclose(found.embed_query("a dog"), asked)
    np.testing.assert_allclose(asyncio.run(found.aembed_query("a dog")), asked)
    store = InMemoryVectorStore(found)
    store.add_texts(TEXTS)
    nearest = store.similarity_search("a dog", k=1)[0].page_content
    assert nearest == TEXTS[int(np.argmax(stored @ asked))]


def test_llama_index(encoder):
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from llama_index.core.base.embeddings.base import BaseEmbedding

    found = integrations.llama_index_embedding(encoder, batch_size=2)
    assert isinstance(found, BaseEmbedding)
    stored = encoder.encode_document(TEXTS)
    np.testing.assert_allclose(found.get_text_embedding_batch(TEXTS), stored, atol=1e-6)
    np.testing.assert_allclose(found.get_text_embedding("a dog"), stored[1], atol=1e-6)
    asked = encoder.encode_query("a dog")
    np.testing.assert_allclose(found.get_query_embedding("a dog"), asked)
    np.testing.assert_allclose(asyncio.run(found.aget_query_embedding("a dog")), asked)


@pytest.mark.parametrize(
    "asked, prompt",
    [
        ({"prompt_type": "query"}, "the "),
        ({"prompt_type": types.SimpleNamespace(value="document")}, "a "),
        ({"prompt_type": "passage"}, "a "),
        ({"task_metadata": types.SimpleNamespace(name="STS12", type="STS")}, "one bird "),
        ({"task_name": "Other"}, "every "),
    ],
)
def test_mteb(encoder, asked, prompt):
    """Texts come as lists (mteb 1) or batches (mteb 2), with what they are for."""
    encoder.prompts |= {"STS": "one bird ", "own": "every "}
    encoder.default_prompt_name = "own"
    found = integrations.mteb_model(encoder, truncate_dim=3)
    expected = encoder.encode(TEXTS, prompt=prompt, truncate_dim=3)
    for texts in (TEXTS, [{"text": TEXTS[:2]}, {"text": TEXTS[2:]}]):
        np.testing.assert_array_equal(found.encode(texts, **asked), expected)
    cosines = found.similarity(expected, expected[:2])
    np.testing.assert_allclose(cosines, encoder.similarity(expected, expected[:2]), atol=1e-6)


def test_libraries_that_are_missing(encoder, monkeypatch):
    monkeypatch.setattr(integrations, "is_installed", lambda name: False)
    for make, package in (
        (integrations.langchain_embeddings, "langchain-core"),
        (integrations.llama_index_embedding, "llama-index-core"),
    ):
        with pytest.raises(UserError, match=f"{package} is not installed; run pip install"):
            make(encoder)
