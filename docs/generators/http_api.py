"""Generator of the HTTP reference: one page, made from the OpenAPI document of the daemon."""

from __future__ import annotations

import inspect
import json
from typing import Any

from stoker.api.endpoints import openapi

Schema = dict[str, Any]


def page() -> str:
    """Return the page, in Markdown."""
    document = openapi(None)
    schemas = document["components"]["schemas"]
    paths = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    types = [_type(name, schema) for name, schema in sorted(schemas.items())]
    return (
        "# HTTP interface\n\n"
        "The daemon answers these requests on the unix socket `stoker.sock` in its home, to its own user "
        "alone. `GET /v1/openapi.json` has the same as an OpenAPI document. An answer that is no success "
        "has a [Problem](#problem) as its body.\n\n"
        "```sh\ncurl --unix-socket ~/.local/state/stoker/stoker.sock 'http://localhost/v1/ls'\n```\n\n"
        f"## Requests\n\n{''.join(paths)}## Types\n\n{''.join(types)}"
    )


def _operation(method: str, path: str, operation: Schema) -> str:
    success = next(status for status in operation["responses"] if status.startswith("2"))
    answer = operation["responses"][success]
    text = [f"### {method.upper()} {_escape(path)}", answer["description"] or operation["summary"]]
    rows = [
        f"| `{parameter['name']}` | {_kind(parameter['schema'])} |"
        for parameter in operation.get("parameters", ())
    ]
    if rows:
        text.append("\n".join(["| parameter | type |", "|---|---|", *rows]))
    if "requestBody" in operation:
        text.append(f"Body: {_content(operation['requestBody'])}")
    text.append(f"Answer {success}: {_content(answer)}")
    return "\n\n".join(text) + "\n\n"


def _content(part: Schema) -> str:
    kinds = [
        f"{_kind(content['schema'])} (`{media}`)" if "schema" in content else f"`{media}`"
        for media, content in part.get("content", {}).items()
    ]
    return " or ".join(kinds) or "empty"


def _type(name: str, schema: Schema) -> str:
    text = [f"### {name}", inspect.cleandoc(schema.get("description", ""))]
    if "enum" in schema:
        text.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
    required = set(schema.get("required", ()))
    rows = [
        f"| `{field}` | {_kind(details)} | {_default(field, details, required)} |"
        for field, details in schema.get("properties", {}).items()
    ]
    if rows:
        text.append("\n".join(["| field | type | default |", "|---|---|---|", *rows]))
    return "\n\n".join(part for part in text if part) + "\n\n"


def _default(field: str, details: Schema, required: set[str]) -> str:
    if field in required:
        return "required"
    return f"`{json.dumps(details['default'])}`" if "default" in details else ""


def _kind(schema: Schema) -> str:
    """Return a type in words, with links to the types of this page."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}" if schema.get("items") else "list"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return (
            f"object with values {_kind(values)}"
            if isinstance(values, dict) and values
            else "object"
        )
    return str(schema.get("type", "anything"))


def _escape(path: str) -> str:
    return path.replace("{", "\\{").replace("}", "\\}")
