"""Encoders as other libraries call them; each library is imported when its function is called.

Texts that a library stores are embedded by `encode_document`, its questions by `encode_query`.
"""

import asyncio
import contextlib
import functools
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import is_installed
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.nearest import unit


def langchain_embeddings(encoder: SentenceEncoder, **options: Any) -> Any:
    """Returns LangChain's `Embeddings` of an encoder.

    Examples:
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

    Examples:
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

    Examples:
      >>> mteb.evaluate(mteb_model(encoder), mteb.get_tasks(tasks=["STS12"]))    # doctest: +SKIP

    mteb shows results under the name, of the form `org/name`. Options are those of `encode`.
    """
    encode = functools.partial(encoder.encode, **options)
    ways = {prompt: functools.partial(encode, prompt_name=prompt) for prompt in encoder.prompts}
    ways["query"] = functools.partial(encoder.encode_query, **options)
    ways["document"] = functools.partial(encoder.encode_document, **options)
    model = MtebEncoder(encode, ways)
    about = {"name": name, "revision": "unknown", "max_tokens": encoder.max_seq_length}
    # Version 1 cannot make an empty description, and must find none.
    with contextlib.suppress(ImportError, AttributeError):
        empty = importlib.import_module("mteb.models.model_meta").ModelMeta.create_empty()
        model.mteb_model_meta = empty.model_copy(update=about)
    return model


class MtebEncoder:
    """An encoder as mteb 1 and 2 call it."""

    def __init__(self, encode: Encode, ways: Mapping[str, Encode]) -> None:
        """Initialises it.

        Args:
          encode: embeds texts of no special kind.
          ways: name of a task, a type of tasks, `query`, … -> function that embeds its texts.
        """
        self._encode, self._ways = encode, dict(ways)

    def encode(
        self, inputs: Sequence[str] | Iterable[Mapping[str, Sequence[str]]], **kwargs: Any
    ) -> np.ndarray:
        """Embeds strings (mteb 1), or batches with their strings under `text` (mteb 2).

        They are embedded in the first of the encoder's ways that `prompt_names` gives.
        """
        name = next((name for name in prompt_names(kwargs) if name in self._ways), None)
        return (self._ways[name] if name else self._encode)(texts_of(inputs))

    def similarity(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> np.ndarray:
        """Computes cosines of all rows `[n, dim]` with all rows `[m, dim]`: float32 `[n, m]`."""
        return unit(np.atleast_2d(embeddings1)) @ unit(np.atleast_2d(embeddings2)).T

    def similarity_pairwise(self, embeddings1: np.ndarray, embeddings2: np.ndarray) -> np.ndarray:
        """Returns the cosine of row i of one array with row i of the other: float32 `[n]`."""
        first, second = (unit(np.atleast_2d(side)) for side in (embeddings1, embeddings2))
        return np.einsum("nd,nd->n", first, second)


def prompt_names(kwargs: Mapping[str, Any]) -> list[str]:
    """Returns names of prompts for a task's texts, the best first, in mteb's order."""
    metadata, kind = kwargs.get("task_metadata"), kwargs.get("prompt_type")
    tasks = [kwargs.get("task_name"), getattr(metadata, "name", None)]
    tasks.append(getattr(metadata, "type", None))
    kind = getattr(kind, "value", kind)
    # `passage` is the name of documents in mteb 1, and in many lists of prompts.
    kinds = ["document", "passage"] if kind in ("document", "passage") else [kind] if kind else []
    names = []
    for task in filter(None, tasks):
        names += [*(f"{task}-{kind}" for kind in kinds), task]
    return names + kinds


def texts_of(inputs: Sequence[str] | Iterable[Mapping[str, Sequence[str]]]) -> list[str]:
    """Returns all strings of a list of strings or of batches, in order."""
    texts: list[str] = []
    for item in inputs:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping) and "text" in item:
            # A data loader may give one string or an array of strings.
            texts.extend([item["text"]] if isinstance(item["text"], str) else item["text"])
        else:
            raise UserError("this task has inputs other than text; choose a text task")
    return [str(text) for text in texts]


def _check(module: str, package: str) -> None:
    if not is_installed(module):
        raise UserError(f"the package {package} is not installed; run pip install {package}")
