from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from stoker.api.endpoint import NoQuery
from stoker.api.endpoints import ENDPOINTS
from stoker.api.openapi import make_document
from stoker.client.transport import Connection

if TYPE_CHECKING:
    from unit.api.api_server import ApiServer


def test_every_endpoint_is_in_the_document_with_a_summary_and_its_refusals() -> None:
    document = make_document(ENDPOINTS)
    for endpoint in ENDPOINTS:
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["summary"].endswith(".")
        assert str(endpoint.status) in operation["responses"]
        assert "403" in operation["responses"]
        assert ("requestBody" in operation) is (endpoint.body is not None)


def test_every_endpoint_declares_the_types_of_its_service_function() -> None:
    for endpoint in ENDPOINTS:
        if endpoint.call.__module__.startswith("stoker.service"):
            _context, *takes, returns = get_type_hints(endpoint.call).values()
            query = None if endpoint.query is NoQuery else endpoint.query
            assert takes == [each for each in (query, endpoint.body) if each is not None]
            assert returns in (endpoint.answer, msgspec.Raw, type(None)), endpoint.path


def test_every_reference_leads_somewhere() -> None:
    document = make_document(ENDPOINTS)

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for part in value.values() for each in references(part)]
        if isinstance(value, list):
            return [each for part in value for each in references(part)]
        return []

    found = references(document)
    assert found
    names = {name.rpartition("/")[2] for name in found}
    assert names <= document["components"]["schemas"].keys()


def test_every_path_that_the_docs_name_exists() -> None:
    root = Path(__file__).parents[3]
    paths = {endpoint.path for endpoint in ENDPOINTS} | {"/v1/live"}  # the page's WebSocket
    for page in [root / "README.md", root / "CHANGELOG.md", *(root / "docs").rglob("*.md")]:
        named = set(re.findall(r"/v1/[a-z]+(?:\.[a-z]+)?", page.read_text()))
        assert named <= paths, page


def test_every_verb_has_its_own_path() -> None:
    paths = {endpoint.path for endpoint in ENDPOINTS} - {"/v1/openapi.json"}
    verbs = [
        "add",
        "allocation",
        "allocations",
        "ls",
        "show",
        "why",
        "log",
        "kill",
        "rm",
        "retry",
        "hold",
        "release",
        "pause",
        "resume",
        "suspend",
        "start",
        "preempt",
        "move",
        "set",
        "gpus",
        "reserve",
        "reserve/end",
        "nodes",
        "wait",
        "sweep",
        "search",
        "prune",
        "sweeps",
        "plan",
        "batch",
        "results",
        "curves",
        "export",
        "status",
        "config",
        "events",
        "stop",
        "web",
        "usage",
        "history",
        "counts",
        "timeline",
        "forecast",
    ]
    doors = {path for path in paths if path.startswith("/gpupeasy/")}
    assert paths - doors - {"/metrics"} == {f"/v1/{verb}" for verb in verbs}


def test_the_daemon_serves_the_document(api_server: ApiServer) -> None:
    with Connection(api_server.home) as connection:
        served = msgspec.json.decode(connection.request("GET", "/v1/openapi.json").body)
    made = msgspec.json.encode(make_document(ENDPOINTS))  # a tuple is a list there
    assert served == msgspec.json.decode(made)
