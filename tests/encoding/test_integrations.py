"""Encoders in LangChain and LlamaIndex: what is stored and what is asked for get their prompts."""

import asyncio
import sys
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

    embeddings = integrations.langchain_embeddings(encoder, normalize_embeddings=True)
    assert isinstance(embeddings, Embeddings)
    stored = encoder.encode_document(TEXTS, normalize_embeddings=True)
    asked = encoder.encode_query("a dog", normalize_embeddings=True)
    np.testing.assert_allclose(embeddings.embed_documents(TEXTS), stored)
    np.testing.assert_allclose(embeddings.embed_query("a dog"), asked)
    np.testing.assert_allclose(asyncio.run(embeddings.aembed_query("a dog")), asked)
    store = InMemoryVectorStore(embeddings)
    store.add_texts(TEXTS)
    nearest = store.similarity_search("a dog", k=1)[0].page_content
    assert nearest == TEXTS[int(np.argmax(stored @ asked))]


def test_llama_index(encoder):
    pytest.importorskip("llama_index.core", reason="llama-index-core is not installed")
    from llama_index.core.base.embeddings.base import BaseEmbedding

    embedding = integrations.llama_index_embedding(encoder, batch_size=2)
    assert isinstance(embedding, BaseEmbedding)
    stored = encoder.encode_document(TEXTS)
    np.testing.assert_allclose(embedding.get_text_embedding_batch(TEXTS), stored, atol=1e-6)
    np.testing.assert_allclose(embedding.get_text_embedding("a dog"), stored[1], atol=1e-6)
    asked = encoder.encode_query("a dog")
    np.testing.assert_allclose(embedding.get_query_embedding("a dog"), asked)
    np.testing.assert_allclose(asyncio.run(embedding.aget_query_embedding("a dog")), asked)


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
    model = integrations.mteb_model(encoder, truncate_dim=3)
    expected = encoder.encode(TEXTS, prompt=prompt, truncate_dim=3)
    for texts in (TEXTS, [{"text": TEXTS[:2]}, {"text": TEXTS[2:]}]):
        np.testing.assert_array_equal(model.encode(texts, **asked), expected)
    cosines = model.similarity(expected, expected[:2])
    np.testing.assert_allclose(cosines, encoder.similarity(expected, expected[:2]), atol=1e-6)


def _count(texts):
    return np.array([[len(t), t.count("a")] for t in texts], np.float32)


def _prompt(names):
    """Returns an adapter whose prompt of a name is the name itself."""
    ways = {name: lambda texts, name=name: _count([name + t for t in texts]) for name in names}
    return integrations.MtebEncoder(_count, ways)


def test_mteb_gives_lists_batches_and_arrays():
    """Strings, batches of a data loader, arrays of strings and a generator give the same rows."""
    adapter = _prompt([])
    for inputs in (
        ["a", "bb", "aca"],
        [{"text": ["a", "bb"]}, {"text": ["aca"]}],
        ({"text": np.array([text])} for text in ("a", "bb", "aca")),
        [{"text": "a"}, {"text": "bb"}, {"text": "aca"}],
    ):
        np.testing.assert_array_equal(
            adapter.encode(inputs, batch_size=1), _count(["a", "bb", "aca"])
        )
    with pytest.raises(UserError, match="other than text"):
        adapter.encode([{"image": [1]}])


@pytest.mark.parametrize(
    ("names", "task", "kind", "used"),
    [
        ("query document", "NQ Retrieval", "query", "query"),
        ("query document", "NQ Retrieval", "document", "document"),
        ("query passage", "NQ Retrieval", "document", "passage"),
        ("query document STS", "STS12 STS", None, "STS"),
        ("query Retrieval", "NQ Retrieval", "query", "Retrieval"),
        ("Retrieval-query Retrieval", "NQ Retrieval", "query", "Retrieval-query"),
        ("NQ Retrieval-query", "NQ Retrieval", "query", "NQ"),
        ("NQ-query NQ", "NQ Retrieval", "query", "NQ-query"),
        ("NQ-query", "NQ Retrieval", "document", ""),
        ("query document", "STS12 STS", None, ""),
        ("", "NQ Retrieval", "query", ""),
    ],
)
def test_prompts_are_chosen_as_mteb_chooses(names, task, kind, used):
    """The task's come before those of its type, both before those of queries and documents."""
    name, task_type = task.split()
    vectors = _prompt(names.split()).encode(
        [{"text": ["abc"]}],
        task_metadata=types.SimpleNamespace(name=name, type=task_type),
        hf_split="test",
        prompt_type=kind and types.SimpleNamespace(value=kind),
    )
    assert vectors[0][0] == 3 + len(used)


def test_mteb_similarities():
    """Cosines by hand, of matrices and of single vectors; a zero vector is like nothing."""
    adapter = _prompt([])
    first, second = np.array([[1.0, 0], [0, 0]]), np.array([[2.0, 0], [1, 1]])
    assert adapter.similarity(first, second) == pytest.approx(np.array([[1, 0.5**0.5], [0, 0]]))
    assert adapter.similarity_pairwise(first, second) == pytest.approx([1, 0])
    assert adapter.similarity(first[0], second[1]).shape == (1, 1)
    np.testing.assert_array_equal(second, [[2, 0], [1, 1]])


def test_mteb_2_gets_a_description_and_mteb_1_none(encoder, monkeypatch):
    """Version 1 reads the fields of a description wherever there is one."""
    monkeypatch.setitem(sys.modules, "mteb.models.model_meta", None)
    assert not hasattr(integrations.mteb_model(encoder), "mteb_model_meta")
    empty = types.SimpleNamespace(model_copy=lambda update: update)
    meta = types.SimpleNamespace(ModelMeta=types.SimpleNamespace(create_empty=lambda: empty))
    for name in ("mteb", "mteb.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "mteb.models.model_meta", meta)
    about = integrations.mteb_model(encoder, "org/model").mteb_model_meta
    assert about == {"name": "org/model", "revision": "unknown", "max_tokens": 12}


def test_missing_libraries_are_named(encoder, monkeypatch):
    monkeypatch.setattr(integrations, "is_installed", lambda name: False)
    for make, package in (
        (integrations.langchain_embeddings, "langchain-core"),
        (integrations.llama_index_embedding, "llama-index-core"),
    ):
        with pytest.raises(UserError, match=f"{package} is not installed; run pip install"):
            make(encoder)
