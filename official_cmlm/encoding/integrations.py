"""Encoders as other libraries call them; each library is imported when its function is called.

Texts that a library stores are embedded by `encode_document`, its questions by `encode_query`.
"""

import asyncio
import functools
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.encoder import Role


def langchain_embeddings(encoder: SentenceEncoder, **options: Any) -> Any:
    """Returns LangChain's `Embeddings` of an encoder.

    >>> store = InMemoryVectorStore(langchain_embeddings(encoder))    # doctest: +SKIP

    Options are those of `encode`, such as `normalize_embeddings`.

    Raises:
      UserError: if `langchain-core` is not installed.
    """
    _check("langchain_core", "langchain-core")
    from langchain_core.embeddings import Embeddings

    class EncoderEmbeddings(Embeddings):
        """Vectors of an encoder, as lists of numbers."""

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            """Embeds texts that are stored."""
            return encoder.encode_document(texts, **options).tolist()

        def embed_query(self, text: str) -> list[float]:
            """Embeds a question."""
            return encoder.encode_query(text, **options).tolist()

    return EncoderEmbeddings()


def llama_index_embedding(encoder: SentenceEncoder, batch_size: int = 64, **options: Any) -> Any:
    """Returns LlamaIndex's `BaseEmbedding` of an encoder.

    >>> VectorStoreIndex.from_documents(                              # doctest: +SKIP
    ...     documents, embed_model=llama_index_embedding(encoder))

    LlamaIndex gives `batch_size` texts at a time, 1 to 2048. Options are those of `encode`.

    Raises:
      UserError: if `llama-index-core` is not installed.
    """
    _check("llama_index", "llama-index-core")
    from llama_index.core.base.embeddings.base import BaseEmbedding

    class EncoderEmbedding(BaseEmbedding):
        """Vectors of an encoder, as lists of numbers."""

        def _get_text_embedding(self, text: str) -> list[float]:
            return encoder.encode_document(text, **options).tolist()

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return encoder.encode_document(texts, **options).tolist()

        def _get_query_embedding(self, query: str) -> list[float]:
            return encoder.encode_query(query, **options).tolist()

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return await asyncio.to_thread(self._get_query_embedding, query)

        async def _aget_text_embedding(self, text: str) -> list[float]:
            return await asyncio.to_thread(self._get_text_embedding, text)

    return EncoderEmbedding(model_name="official-cmlm", embed_batch_size=batch_size)


def mteb_model(encoder: SentenceEncoder, name: str = "own/encoder", **options: Any) -> Any:
    """Returns an encoder as versions 1 and 2 of the package mteb take it.

    Queries and documents get their prompts, and so do the tasks and types of tasks for which the
    encoder has a prompt; other texts get the default prompt.

    >>> mteb.evaluate(mteb_model(encoder), mteb.get_tasks(tasks=["STS12"]))    # doctest: +SKIP

    mteb shows results under the name, of the form `org/name`. Options are those of `encode`.
    """
    from official_cmlm.evaluation.suites.mteb import MtebEncoder, description_of

    encode: Any = functools.partial(encoder.encode, **options)
    encode.roles = {
        prompt: Role(functools.partial(encode, prompt_name=prompt), text)
        for prompt, text in encoder.prompts.items()
    } | {
        "query": Role(functools.partial(encoder.encode_query, **options)),
        "document": Role(functools.partial(encoder.encode_document, **options)),
    }
    model = MtebEncoder(encode)
    about = {"name": name, "revision": "unknown", "max_tokens": encoder.max_seq_length}
    model.mteb_model_meta = description_of(about)
    return model


def _check(module: str, package: str) -> None:
    if not is_installed(module):
        raise UserError(f"the package {package} is not installed; run pip install {package}")
