"""The fields of requests, by address: what is taken, and the description at `/openapi.json`."""

from typing import Any

from .embedder import INPUT_TYPES

# Passages that one request may ask for.
MOST_HITS = 100
_STRING: dict[str, Any] = {"type": "string"}
_BOOLEAN: dict[str, Any] = {"type": "boolean"}
_STRINGS: dict[str, Any] = {"type": "array", "items": _STRING, "minItems": 1}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2}
_TEXTS: dict[str, Any] = {"oneOf": [_STRING, _STRINGS]}
_INPUT: dict[str, Any] = {
    "oneOf": [_STRING, _STRINGS, _IDS, {"type": "array", "items": _IDS, "minItems": 1}]
}
_PROMPT: dict[str, Any] = {
    "prompt_name": _STRING,
    "input_type": {"enum": [*INPUT_TYPES]},
    "truncate": _BOOLEAN,
}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": False,
    }


REQUESTS = {
    "/v1/embeddings": _object(
        ["model", "input"],
        model=_STRING,
        input=_INPUT,
        encoding_format={"enum": ["float", "base64"]},
        dimensions={"type": "integer", "minimum": 1},
        user=_STRING,
        **_PROMPT,
    ),
    "/v1/classify": _object(["model", "input"], model=_STRING, input=_INPUT, truncate=_BOOLEAN),
    "/search": _object(
        ["query"],
        query=_STRING,
        k={"type": "integer", "minimum": 1, "maximum": MOST_HITS},
        truncate=_BOOLEAN,
    ),
    "/tokenize": _object(
        ["inputs"], inputs=_TEXTS, add_special_tokens=_BOOLEAN, prompt_name=_STRING
    ),
    "/similarity": _object(
        ["inputs"],
        inputs=_object(["source_sentence", "sentences"], source_sentence=_STRING, sentences=_TEXTS),
        parameters=_object([], prompt_name=_STRING, truncate=_BOOLEAN),
    ),
    "/rerank": _object(
        ["query", "texts"],
        query=_STRING,
        texts=_TEXTS,
        raw_scores=_BOOLEAN,
        return_text=_BOOLEAN,
        truncate=_BOOLEAN,
    ),
}
"""Address -> JSON Schema of a request's body."""


def openapi(name: str, paths: dict[str, set[str]], keyed: bool) -> dict[str, Any]:
    """Returns the service's description in OpenAPI's form.

    Args:
      name: of the model.
      paths: methods of each address.
      keyed: whether a key is asked for.
    """
    responses = {
        "200": {"description": "The answer."},
        "default": {
            "description": "An error in OpenAI's form.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        },
    }
    error = _object(["message", "type"], message=_STRING, type=_STRING, param={}, code={})
    described: dict[str, Any] = {}
    for path, methods in paths.items():
        named = path.replace("{name:path}", "{name}")
        operation: dict[str, Any] = {"responses": responses}
        if path in REQUESTS:
            body = {"application/json": {"schema": REQUESTS[path]}}
            operation["requestBody"] = {"required": True, "content": body}
        if "{name}" in named:
            operation["parameters"] = [
                {"name": "name", "in": "path", "required": True, "schema": _STRING}
            ]
        described[named] = {method.lower(): operation for method in sorted(methods - {"HEAD"})}
    components: dict[str, Any] = {"schemas": {"Error": _object(["error"], error=error)}}
    secured = {}
    if keyed:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        secured["security"] = [{"key": []}]
    return {
        "openapi": "3.1.0",
        "info": {"title": f"Embeddings of {name}", "version": "1"},
        "paths": described,
        "components": components,
    } | secured
