"""The OpenAPI document of an endpoint: what `GET /openapi.json` gives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgeserve import __version__
from edgeserve.oip import DATATYPES

_JSON = "application/json"
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def document(models: Iterable[str]) -> dict[str, Any]:
    """OpenAPI 3.1 for the models of these names."""
    names = {"type": "string", "enum": sorted(models)}
    parameters = {"model": _VERSION | {"name": "model", "schema": names}}
    parameters |= {"version": _VERSION, "deadline": _DEADLINE}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "edgeserve",
            "version": __version__,
            "license": {"name": "Apache-2.0"},
            "description": "Open Inference Protocol v2, and decisions on raw bytes.",
        },
        "paths": _paths(),
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "parameters": parameters,
        },
        "security": [{}, {"bearer": []}],
    }


def _paths() -> dict[str, Any]:
    plain = {
        "/v2/health/live": _get("Whether the process answers", "Health"),
        "/v2/health/ready": _get(
            "Whether requests should be sent here", "Health", also={"503": "Health"}
        ),
        "/v2": _get("Name, version and extensions", "Server"),
        "/v2/models/stats": _get("Counts and times of all models", "Statistics"),
        "/v2/repository/index": _post("All models, loaded or not", "Index", None),
        "/metrics": {
            "get": {
                "summary": "Prometheus' text",
                "responses": {
                    "200": {
                        "description": "The text",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                    **_ERRORS,
                },
            }
        },
        "/openapi.json": _get("This document", "Any"),
    }
    of_model: dict[str, Any] = {}
    for base in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
        words = ("model", "version") if "version" in base else ("model",)
        given = [_ref("parameters", word) for word in words]
        of_model |= {
            base: _get("A model's inputs and outputs", "Model", given),
            f"{base}/ready": _get("Whether the model can be asked", "Any", given, {"503": "Any"}),
            f"{base}/stats": _get("Counts and times", "Statistics", given),
            f"{base}/infer": _post(
                "Named tensors in, named tensors out", "Response", "Request", given, True
            ),
            f"{base}/predict": _post("Raw bytes in, a decision out", "Decision", None, given, True),
        }
    given = [_ref("parameters", "model")]
    of_model["/v2/models/{model}/config"] = _get("As Triton's clients ask for it", "Any", given)
    for verb in ("load", "unload"):
        path = f"/v2/repository/models/{{model}}/{verb}"
        of_model[path] = _post(f"{verb} a model", "Any", None, given)
    return plain | of_model


def _get(
    summary: str, schema: str, given: list[Any] | None = None, also: dict[str, str] | None = None
) -> dict[str, Any]:
    answers = {"200": _answer(summary, schema), **_ERRORS}
    answers |= {status: _answer("Not now", name) for status, name in (also or {}).items()}
    return {"get": {"summary": summary, "parameters": given or [], "responses": answers}}


def _post(
    summary: str,
    schema: str,
    body: str | None,
    given: list[Any] | None = None,
    deadline: bool = False,
) -> dict[str, Any]:
    given = (given or []) + ([_ref("parameters", "deadline")] if deadline else [])
    content: dict[str, Any] = {"application/octet-stream": _BYTES}
    if body:
        content[_JSON] = {"schema": _ref("schemas", body)}
    if not deadline:
        content = {_JSON: {"schema": {"type": "object"}}}
    return {
        "post": {
            "summary": summary,
            "parameters": given,
            "requestBody": {"content": content, "required": deadline},
            "responses": {"200": _answer(summary, schema), **_ERRORS},
        }
    }


def _answer(summary: str, schema: str) -> dict[str, Any]:
    content: dict[str, Any] = {_JSON: {"schema": _ref("schemas", schema)}}
    if schema == "Response":
        content["application/octet-stream"] = _BYTES
    return {"description": summary, "content": content}


def _ref(kind: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{kind}/{name}"}


_VERSION = {"name": "version", "in": "path", "required": True, "schema": {"type": "string"}}
_DEADLINE = {
    "name": "X-Request-Deadline-Ms",
    "in": "header",
    "required": False,
    "description": "Milliseconds from now after which the answer is of no use",
    "schema": {"type": "integer", "minimum": 0},
}
_ERRORS = {
    "default": {
        "description": "Not answered",
        "content": {_JSON: {"schema": _ref("schemas", "Error")}},
    }
}


def _object(required: list[str], **fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": fields}


_TEXT, _LIST, _TREE = {"type": "string"}, {"type": "array"}, {"type": "object"}
_TENSOR = _object(
    ["name", "shape", "datatype"],
    name=_TEXT,
    parameters=_TREE,
    data=_LIST,
    datatype={"type": "string", "enum": sorted(DATATYPES)},
    shape={"type": "array", "items": {"type": "integer", "minimum": -1}},
)
_TENSORS = {"type": "array", "items": _ref("schemas", "Tensor")}
_SCHEMAS: dict[str, Any] = {
    "Any": _TREE,
    "Health": _object([], live={"type": "boolean"}, ready={"type": "boolean"}),
    "Server": _object(
        ["name", "version", "extensions"], name=_TEXT, version=_TEXT, extensions=_LIST
    ),
    "Model": _object(
        ["name", "platform", "inputs", "outputs"],
        name=_TEXT,
        platform=_TEXT,
        inputs=_TENSORS,
        outputs=_TENSORS,
    ),
    "Tensor": _TENSOR,
    "Request": _object(["inputs"], id=_TEXT, parameters=_TREE, inputs=_TENSORS, outputs=_LIST),
    "Response": _object(
        ["model_name", "outputs"],
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        parameters=_TREE,
        outputs=_TENSORS,
    ),
    "Decision": _object(
        ["model_name", "model_id", "answer"],
        model_name=_TEXT,
        model_version=_TEXT,
        model_id=_TEXT,
        answer=_TREE,
        ran_on=_TREE,
    ),
    "Statistics": _object(["model_stats"], model_stats=_LIST),
    "Index": _LIST,
    "Error": _object(["error", "code"], error=_TEXT, code=_TEXT, hint=_TEXT, request_id=_TEXT),
}
