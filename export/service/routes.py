"""The addresses of the service, one function each, from a checked body to a typed answer."""

import asyncio
import base64
import os
import typing
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import TypeAdapter
from starlette.responses import JSONResponse, Response

from official_cmlm.common.errors import UserError
from official_cmlm.search.passages import split_sentences
from official_cmlm.tokenization import Vocabulary
from official_cmlm.vectors.nearest import unit

from . import models
from .embedder import Rows, TokenEmbedder
from .service import Call, Refusal, Service

if TYPE_CHECKING:
    from official_cmlm.search import Hit, Index

# The values of a request's `input_type`, and the role of retrieval that each names.
INPUT_TYPES = {"query": "query", "document": "document", "passage": "document"}
# Approximate number of bytes of a number in an answer.
_NUMBER_BYTES = 20
# Most tokens of an answer of `/tokenize`, and the approximate number of bytes of each.
_MOST_TOKENS, _TOKEN_BYTES = 65_536, 40
# Seconds that the oldest request may wait for its first batch; with more, `/ready` is 503.
_READY_SECONDS = 30
_PAGE = Path(__file__).with_name("search.html")
# The page can load nothing from elsewhere, and no other page can show it in a frame.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; "
    "base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}


async def embed(call: Call, body: models.EmbeddingsBody) -> models.Answer[models.Embedding]:
    """Embeds texts, or rows of token ids."""
    check_model(call, body.model)
    width, most = body.dimensions, call.service.embedder.dimension
    if width is not None and not 1 <= width <= most:
        raise Refusal(400, f"dimensions must be 1 to {most}", "dimensions")
    if body.input_type and body.prompt_name is not None:
        raise Refusal(400, "takes the place of input_type; send one of them", "prompt_name")
    name = None if body.input_type else get_prompt(call, body.prompt_name)
    role = INPUT_TYPES.get(body.input_type)
    vectors = await call.embed(body.input, body.truncate, role=role, prompt_name=name)
    call.size += vectors.size * _NUMBER_BYTES
    return make_answer(call, await call.run(list_vectors, call, body, vectors))


def list_vectors(call: Call, body: models.EmbeddingsBody, vectors: np.ndarray) -> list[Any]:
    """Returns vectors in the length and form that a request asks for."""
    if call.service.settings.normalize:
        vectors = unit(vectors, in_place=True)
    if body.dimensions is not None:
        # The former length is 1 unless the service was told otherwise.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = unit(vectors[:, : body.dimensions]) * lengths
    if body.encoding_format == "base64":
        rows = [base64.b64encode(row.tobytes()).decode() for row in vectors.astype("<f4")]
    else:
        rows = vectors.tolist()
    return [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]


async def classify(call: Call, body: models.ClassifyBody) -> models.Classification:
    """Returns the label of each text, for which the classifier was trained on default prompts."""
    check_model(call, body.model)
    vectors = await call.embed(body.input, body.truncate)
    classifier = call.service.classifier
    probabilities = classifier.probabilities(vectors)
    call.size += probabilities.size * _NUMBER_BYTES
    answer = make_answer(call, await call.run(list_labels, call, probabilities))
    return answer | {"labels": classifier.labels}


def list_labels(call: Call, probabilities: np.ndarray) -> list[Any]:
    """Returns the best label of each text with the probabilities of all."""
    best, labels = probabilities.argmax(axis=1).tolist(), call.service.classifier.labels
    return [
        {"index": i, "label": labels[k], "probs": row, "num_classes": len(row)}
        for i, (k, row) in enumerate(zip(best, probabilities.tolist()))
    ]


async def search(call: Call, body: models.SearchBody) -> models.Passages:
    """Finds the passages nearest to a query, and if asked for the nearest sentence of each."""
    vectors = await call.embed([body.query], body.truncate, role="query")
    index = call.service.index
    rows, scores = await asyncio.to_thread(index.search_vectors, vectors, body.k)
    hits = await asyncio.to_thread(index.read_hits, rows[0], scores[0])
    answer = show_passages(index, hits)
    sentences = [split_sentences(hit.text) or [hit.text] for hit in hits]
    if body.sentences and hits:
        texts = [sentence for of_hit in sentences for sentence in of_hit]
        near = iter(unit(await call.embed(texts, True, role="document")) @ vectors[0])
        for passage, of_hit in zip(answer["hits"], sentences):
            passage["sentence"] = max(of_hit, key=lambda sentence: next(near))
    return answer


def show_passages(index: "Index", hits: list["Hit"]) -> models.Passages:
    """Returns passages without the folder that all files are below, which clients need not know."""
    root = os.path.join(index.settings.get("root", ""), "")
    answer = [hit._asdict() | {"id": hit.id.removeprefix(root)} for hit in hits]
    for one in answer:
        if "file" in one["metadata"]:
            one["metadata"]["file"] = one["metadata"]["file"].removeprefix(root)
    return {"hits": answer, "near": index.settings.get("near", -1.0)}


async def read_passages(call: Call, body: models.PassageBody) -> models.Passages:
    """Returns a passage and those before and after it in its file."""
    index = call.service.index
    id = os.path.join(index.settings.get("root", ""), body.id)
    try:
        return show_passages(index, await asyncio.to_thread(index.read_around, id))
    except UserError as error:
        raise Refusal(404, str(error), "id") from None


async def tokenize(call: Call, body: models.TokenizeBody) -> list[list[models.Token]]:
    """Returns the tokens of each whole text, as text-embeddings-inference does; 65,536 at most."""
    if not isinstance(call.service.embedder, TokenEmbedder):
        raise Refusal(400, "this encoder does not show its tokens")
    name = get_prompt(call, body.prompt_name)
    rows = await call.tokenize(body.inputs, prompt_name=name, whole=True)
    around = 0 if body.add_special_tokens is False else 2
    total = sum(around + len(ids) for ids in rows.items)
    if total > _MOST_TOKENS:
        message = f"inputs have {total} tokens, at most {_MOST_TOKENS} are shown; send fewer texts"
        raise Refusal(400, message, "inputs")
    call.size += total * _TOKEN_BYTES
    return await call.run(list_tokens, call.service.embedder.encoder.vocabulary, rows, around > 0)


def list_tokens(vocabulary: Vocabulary, rows: Rows, add_special: bool) -> list[list[models.Token]]:
    """Returns the tokens of rows of ids, with the first and last special token if asked for."""
    special = set(vocabulary.special_ids.values())
    around = [[vocabulary.special_ids[name]] for name in ("cls", "sep")]
    first, last = around if add_special else ([], [])
    return [
        [
            {"id": token, "text": vocabulary.tokens[token], "special": token in special}
            for token in (*first, *ids.tolist(), *last)
        ]
        for ids in rows.items
    ]


async def compare(call: Call, body: models.SimilarityBody) -> list[float]:
    """Returns the cosine of each sentence with the source, as text-embeddings-inference does."""
    parameters = body.parameters or models.SimilarityParameters()
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    name = get_prompt(call, parameters.prompt_name)
    vectors = await call.embed(texts, parameters.truncate, prompt_name=name)
    vectors = unit(vectors, in_place=True)
    return (vectors[1:] @ vectors[0]).tolist()


async def rerank(call: Call, body: models.RerankBody) -> list[models.Rank]:
    """Orders texts by the cosine of their vectors with the query's, each with its prompt."""
    query = await call.embed([body.query], body.truncate, role="query")
    vectors = await call.embed(body.texts, body.truncate, role="document")
    scores = unit(vectors, in_place=True) @ unit(query, in_place=True)[0]
    order = np.argsort(-scores, kind="stable").tolist()
    texts = [{"text": text} if body.return_text else {} for text in body.texts]
    return [{"index": i, "score": float(scores[i])} | texts[i] for i in order]


async def get_model(call: Call) -> dict[str, Any]:
    """Describes the model, if this is its name."""
    name, created = call.service.name, call.service.created
    check_model(call, call.request.path_params.get("name", name))
    return {"id": name, "object": "model", "created": created, "owned_by": "official-cmlm"}


async def list_models(call: Call) -> dict[str, Any]:
    """Lists the one model."""
    return {"object": "list", "data": [await get_model(call)]}


async def get_info(call: Call) -> dict[str, Any]:
    """Tells facts and limits, as text-embeddings-inference does."""
    embedder, settings = call.service.embedder, call.service.settings
    index = call.service.index
    files = [] if index is None else index.settings.get("files")
    return {
        "model_id": call.service.name,
        "backend": embedder.how,
        "dimension": embedder.dimension,
        "prompts": embedder.prompts,
        "max_input_length": embedder.max_seq_length,
        "max_concurrent_requests": settings.limits.max_connections,
        "max_batch_tokens": settings.limits.max_batch_tokens,
        "max_client_batch_size": settings.limits.max_inputs,
        "auto_truncate": settings.on_long == "cut",
        **({"labels": classifier.labels} if (classifier := call.service.classifier) else {}),
        **({} if index is None else {"passages": len(index), "files": len(files or [])}),
    }


async def get_status(call: Call) -> dict[str, str]:
    """Answers while the service runs."""
    return {"status": "ok"}


async def get_readiness(call: Call) -> Response:
    """Answers 503 if the oldest request has waited long for its first batch."""
    if call.service.batcher.oldest_seconds > _READY_SECONDS:
        return JSONResponse({"status": "overloaded"}, 503, {"Retry-After": "1"})
    return JSONResponse({"status": "ok"})


async def get_metrics(call: Call) -> Response:
    """Returns figures for Prometheus."""
    return Response(generate_latest(call.service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def get_root(call: Call) -> Response:
    """Lists the addresses; of an index a browser gets the page to search it."""
    if call.service.index is not None and "text/html" in call.request.headers.get("accept", ""):
        return Response(_PAGE.read_bytes(), headers=_PAGE_HEADERS, media_type="text/html")
    addresses = [
        f"{operation.method} {operation.path}" for operation in list_operations(call.service)
    ]
    return JSONResponse({"model": call.service.name, "addresses": addresses})


async def describe(call: Call) -> Response:
    """Describes all operations in OpenAPI's form."""
    operations = list_operations(call.service)
    kinds = [("Error", "serialization", TypeAdapter(models.Error))]
    for operation in operations:
        kinds.append((operation.path, "serialization", operation.answer))
        kinds += (
            [(operation.path, "validation", TypeAdapter(operation.body))] if operation.body else []
        )
    reference = "#/components/schemas/{model}"
    schemas, definitions = TypeAdapter.json_schemas(kinds, ref_template=reference)

    def describe_json(path: str, mode: str = "serialization") -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schemas[path, mode]}}}

    paths: dict[str, Any] = {}
    for operation in operations:
        answers = {
            "200": {"description": "The answer."} | describe_json(operation.path),
            "default": {"description": "An error."} | describe_json("Error"),
        }
        facts = {"summary": operation.function.__doc__, "responses": answers}
        if operation.body:
            facts["requestBody"] = {"required": True} | describe_json(operation.path, "validation")
        path = operation.path.replace(":path", "")
        if "{name}" in path:
            string = {"schema": {"type": "string"}}
            facts["parameters"] = [{"name": "name", "in": "path", "required": True} | string]
        paths[path] = {operation.method.lower(): facts}
    keys = {"key": {"type": "http", "scheme": "bearer"}} if call.service.keys else {}
    return JSONResponse(
        {
            "openapi": "3.1.0",
            "info": {"title": f"Embeddings of {call.service.name}", "version": "1"},
            "paths": paths,
            "components": {"schemas": definitions["$defs"], "securitySchemes": keys},
            "security": [{name: []} for name in keys],
        }
    )


def check_model(call: Call, name: str) -> None:
    """Refuses the name of another model."""
    if name != call.service.name:
        message = f"no model {name[:200]!r}; this server has {call.service.name!r}"
        raise Refusal(404, message, "model", "model_not_found")


def get_prompt(call: Call, name: str | None) -> str | None:
    """Returns the name of the prompt of a request that may give one, by default the service's."""
    return call.service.settings.prompt_name if name is None else name


def make_answer(call: Call, data: list[Any]) -> models.Answer:
    """Returns an answer in OpenAI's form."""
    tokens, cut = call.counts["tokens"], call.counts["cut_texts"]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens, "truncated_inputs": cut}
    return {"object": "list", "data": data, "model": call.service.name, "usage": usage}


class Operation:
    """One address.

    Attributes:
      method, path: of its requests; the path may have a part such as `{name}`.
      function: makes the answer of a `Call`, and of a body if there is one.
      is_open: whether it needs neither a key nor a name of this machine in `Host`.
      body: type of the requests' bodies; None without.
      answer: writes the answers, and describes them.
    """

    def __init__(self, method: str, path: str, function: Callable, is_open: bool = False) -> None:
        self.method, self.path, self.function, self.is_open = method, path, function, is_open
        types = typing.get_type_hints(function)
        self.body: type[models.Body] | None = types.get("body")
        self.answer = TypeAdapter(Any if types["return"] is Response else types["return"])


def list_operations(service: Service) -> list[Operation]:
    """Returns the operations of a service."""
    return [
        Operation("POST", "/v1/embeddings", embed),
        Operation("GET", "/v1/models", list_models),
        Operation("GET", "/v1/models/{name:path}", get_model),
        Operation("POST", "/tokenize", tokenize),
        Operation("POST", "/similarity", compare),
        Operation("POST", "/rerank", rerank),
        *([Operation("POST", "/search", search)] if service.index is not None else []),
        *([Operation("POST", "/passages", read_passages)] if service.index is not None else []),
        *([] if service.classifier is None else [Operation("POST", "/v1/classify", classify)]),
        Operation("GET", "/info", get_info),
        Operation("GET", "/openapi.json", describe, is_open=True),
        Operation("GET", "/health", get_status, is_open=True),
        Operation("GET", "/live", get_status, is_open=True),
        Operation("GET", "/ready", get_readiness, is_open=True),
        Operation("GET", "/metrics", get_metrics),
        Operation("GET", "/", get_root, is_open=True),
    ]
