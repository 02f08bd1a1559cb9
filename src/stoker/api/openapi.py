"""Generation of the OpenAPI document from the endpoints and the wire types."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from stoker import __version__, wire
from stoker.api.endpoint import VERSION, Endpoint, Media
from stoker.api.problem import MEDIA as PROBLEM_MEDIA

_REF = "#/components/schemas/{name}"
_ALWAYS = (400, 403, 500, 503)
_OF_BODIES = (408, 413, 415)
_REFUSALS = {
    400: "the request is not valid",
    403: "access denied",
    404: "the named job or other object does not exist",
    408: "the body took too long to arrive",
    409: "the object exists, but its state does not allow this",
    413: "the body is too large",
    415: "the body is not application/json",
    500: "an error inside the daemon",
    503: "the daemon cannot do it now, for example because the disk is full",
}

Schema = dict[str, Any]


def make_document(endpoints: tuple[Endpoint, ...]) -> Schema:
    """Return the document of the whole interface."""
    schemas = _Schemas(endpoints)
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stoker",
            "version": __version__,
            "description": "The daemon's interface, over the unix socket stoker.sock in its home.",
        },
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


class _Schemas:
    """Schemas of all types of the interface, each named once."""

    def __init__(self, endpoints: tuple[Endpoint, ...]) -> None:
        bodies = [endpoint.body for endpoint in endpoints if endpoint.body is not None]
        answers = [endpoint.answer for endpoint in endpoints if not endpoint.media.is_raw]
        types = [wire.Problem, *bodies, *answers]
        found, self.components = msgspec.json.schema_components(types, ref_template=_REF)
        self._found = list(zip(types, found, strict=True))

    def of(self, kind: Any) -> Schema:
        """Return the schema of a body or an answer."""
        return next(schema for each, schema in self._found if each == kind)


def _operation(endpoint: Endpoint, schemas: _Schemas) -> Schema:
    text = inspect.cleandoc(endpoint.call.__doc__ or "")
    operation: Schema = {
        "operationId": _name(endpoint),
        "summary": text.partition("\n")[0],
        "parameters": _parameters(endpoint),
        "responses": {str(endpoint.status): _answer(endpoint, text, schemas)},
    }
    if endpoint.body is not None:
        content = {Media.JSON.value: {"schema": schemas.of(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    refusals = {*_ALWAYS, *endpoint.refusals, *(() if endpoint.body is None else _OF_BODIES)}
    content = {PROBLEM_MEDIA: {"schema": schemas.of(wire.Problem)}}
    for status in sorted(refusals):
        operation["responses"][str(status)] = {"description": _REFUSALS[status], "content": content}
    return operation


def _answer(endpoint: Endpoint, text: str, schemas: _Schemas) -> Schema:
    answer: Schema = {"description": text}
    if endpoint.answer_headers:
        answer["headers"] = {
            name: {"description": meaning, "schema": {"type": "string"}}
            for name, meaning in endpoint.answer_headers.items()
        }
    if endpoint.media.is_raw:
        answer["content"] = {endpoint.media.value: {}}
    elif endpoint.answer is not None:
        answer["content"] = {endpoint.media.value: {"schema": schemas.of(endpoint.answer)}}
    return answer


def _name(endpoint: Endpoint) -> str:
    """Return the operation id: `get_ls`, `get_gpupeasy_jobinfo`."""
    words = endpoint.path.removeprefix(f"/{VERSION}").strip("/").split("/")
    return "_".join([endpoint.method.lower(), *(word for word in words if word[0] != "{")])


def _parameters(endpoint: Endpoint) -> list[Schema]:
    query = endpoint.query
    (_ref,), components = msgspec.json.schema_components([query], ref_template=_REF)
    schema = components[query.__name__]
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "path" if f"{{{name}}}" in endpoint.path else "query",
            "required": name in required,
            "schema": _without_null(each),
        }
        for name, each in schema["properties"].items()
    ]


def _without_null(schema: Schema) -> Schema:
    """Remove null from a schema: a parameter is left out, but never null."""
    kept = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    if "anyOf" in kept:
        choices = [each for each in kept.pop("anyOf") if each != {"type": "null"}]
        kept.update(choices[0] if len(choices) == 1 else {"anyOf": choices})
    return kept
