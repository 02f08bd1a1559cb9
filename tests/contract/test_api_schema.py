"""The OpenAPI document against the daemon: whatever it allows is taken, and answered as it says.

The service is the real one, over an executor without processes: no command is run.
"""

from __future__ import annotations

import base64
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import requests
import schemathesis
import urllib3
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from requests.adapters import HTTPAdapter
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from patience import PATIENCE_S
from scale import LONG
from stoker.api.endpoints import ENDPOINTS
from stoker.api.openapi import make_document
from stoker.client.client import Client
from stoker.wire import Kill, NewJob, NewRun, Pause, Reserve, Submission
from stoker.wire.gpus import MAX_RESERVE_S
from unit.api.api_server import ApiServer
from unit.engine.turn_box import Box, FakeBoard

if TYPE_CHECKING:
    from stoker.executors.contract import Launch

EXAMPLES = 200 if LONG else 40
# Each of these takes a process of its own.
EXAMPLES_OF_WORKER_TASKS = 6
WORKER_TASKS = (
    "POST /v1/plan",
    "POST /v1/sweep",
    "GET /v1/results",
    "GET /v1/curves",
    "GET /v1/export",
)
ASLEEP = "asleep"
RESERVATIONS = 20
KNOWN = "known"  # a project that has a job: others are refused
# It has no end; tests of its own follow it.
schema = schemathesis.openapi.from_dict(make_document(ENDPOINTS)).exclude(path="/v1/events")


def _ids(text: Any) -> Any:
    return ("1", "@", "2", "1-9", text)[len(text) % 5] if isinstance(text, str) else text


def _name(text: Any) -> Any:
    if not isinstance(text, str) or not 1 <= len(text) <= 200:
        return text
    return "n" + "".join(char for char in text if char.isalnum())[:100]


def _path(value: Any) -> Any:
    return _bytes("/", value)


def _command(value: Any) -> Any:
    if isinstance(value, list):
        return [_bytes("x", word) for word in value] if value else ["x"]
    return _bytes("x", value)


def _bytes(prefix: str, value: Any) -> Any:
    if isinstance(value, str):
        return prefix + value.replace("\0", "")
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        data = prefix.encode() + value["b64"].encode("utf-16").replace(b"\0", b"")
        return {"b64": base64.b64encode(data).decode()}
    return value


def _env(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {"N" + name.replace("\0", ""): _bytes("", text) for name, text in value.items()}


def _base64(text: Any) -> Any:
    return base64.b64encode(b"A=\xff\0").decode() if isinstance(text, str) else text


def _gpus(number: Any) -> Any:
    return number % 3 if type(number) is int and 0 <= number <= 1024 else number


def _for_s(seconds: Any) -> Any:
    is_allowed = type(seconds) in (int, float) and 0 < seconds <= MAX_RESERVE_S
    return 3600.0 if is_allowed else seconds


def _reservation(number: Any) -> Any:
    return number % RESERVATIONS + 1 if type(number) is int and 1 <= number <= 2**53 else number


def _snapshot(text: Any) -> Any:
    return "abc" if isinstance(text, str) and len(text) <= 4096 else text


def _setting(body: Any) -> Any:
    if not isinstance(body, dict) or not isinstance(body.get("name"), str):
        return body
    value = body.get("value")
    return {**body, "name": "keep.days", **({"value": "7"} if isinstance(value, str) else {})}


def _draft(body: Any) -> Any:
    """A sweep that has runs, where what was made up is of the right kind."""
    if not isinstance(body, dict):
        return body
    found: dict[str, Any] = dict(body)
    for name, value in {"text": "echo {x}", "cwd": "/tmp", "timeout": "1h"}.items():
        if isinstance(found.get(name), str):
            found[name] = value
    if "name" in found:
        found["name"] = _name(found["name"])
    words = found.get("words")
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        found["words"] = ["x=1,2"]
    if found.get("form") in ("yaml", "toml"):
        found["form"] = "words"
    if found.get("method") == "random":
        found["method"] = "grid"
    for name in ("repeats", "samples"):
        if type(found.get(name)) is int and 1 <= found[name] <= 10_000_000:
            found[name] = 2
    if type(found.get("repeats")) is int and isinstance(found.get("text"), str):
        found["text"] = "echo {x} {seed}"
    return {"words": ["x=1,2"], **found} if isinstance(found.get("text"), str) else found


# What is allowed and makes sense too; what is not allowed stays so.
SENSIBLE: dict[str, Callable[[Any], Any]] = {
    "after": _ids,
    "after_any": _ids,
    "begin_at": lambda value: 4e9 if isinstance(value, float) else value,
    "command": _command,
    "cwd": _path,
    "env": _env,
    "for_s": _for_s,
    "id": _reservation,
    "env_b64": _base64,
    "gpus": _gpus,
    "ids": _ids,
    "job": _ids,
    "jobs": lambda jobs: [_sensible(job) for job in jobs] if type(jobs) is list else jobs,
    "log": _path,
    "name": _name,
    "project": lambda text: KNOWN if isinstance(text, str) and 0 < len(text) <= 200 else text,
    "snapshot": _snapshot,
    "to": lambda values: _sensible(values),
}


def _sensible(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {
        name: SENSIBLE[name](value) if name in SENSIBLE else value for name, value in values.items()
    }


@schema.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    if context.operation is not None and context.operation.path == "/v1/config":
        return _setting(body)
    if context.operation is not None and context.operation.path == "/v1/move":
        return _place(_sensible(body))
    if context.operation is not None and context.operation.path in ("/v1/plan", "/v1/sweep"):
        return _gpus_of(_draft(body))
    if context.operation is not None and context.operation.path == "/v1/set":
        return _change(_sensible(body))
    return _sensible(body)


def _change(body: Any) -> Any:
    """One that names a setting and jobs: most bodies that are allowed leave both out."""
    if not isinstance(body, dict):
        return body
    names_jobs = any(body.get(name) for name in ("ids", "states", "project", "all"))
    found = body if names_jobs or body.get("all", False) is not False else {**body, "all": True}
    return {**found, "to": {"priority": 1}} if body.get("to") == {} else found


def _place(body: Any) -> Any:
    """Of the job that was added last, by number: which others wait nobody could make up."""
    if not isinstance(body, dict):
        return body
    made_up = {"job": "@", "before": None, "behind": None}
    return {
        name: made_up[name] if name in made_up and isinstance(value, str) else value
        for name, value in body.items()
    }


def _gpus_of(body: Any) -> Any:
    return (
        {**body, "gpus": _gpus(body["gpus"])} if isinstance(body, dict) and "gpus" in body else body
    )


def _of_sweep(name: str, value: Any) -> Any:
    """The value of the sweep that is there, for a value that the document allows."""
    known = {"name": "drafted", "cwd": "/tmp", "metric": "loss"}
    return known.get(name, value) if isinstance(value, str) and 0 < len(value) <= 200 else value


@schema.hook
def map_query(context: schemathesis.HookContext, query: Any) -> Any:
    values = _sensible(query)
    operation = context.operation
    if (
        operation is not None
        and f"GET {operation.path}" in WORKER_TASKS
        and isinstance(query, dict)
    ):
        values = {name: _of_sweep(name, value) for name, value in query.items()}
    if isinstance(values, dict) and "after" in values:  # a cursor here
        values["after"] = "i:0"
    return values


@pytest.fixture(scope="module")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    def end_at_once(_launch: Launch) -> int:
        return 0

    home = tmp_path_factory.mktemp("home")
    board = FakeBoard(Box(home, gpus=0), os.geteuid(), "turn")
    api_server = ApiServer(home, script=end_at_once, board=board)
    with Client(api_server.home) as client:
        client.pause(Pause(queue=True, project=ASLEEP))
    api_server.add("one", "two", "three")
    api_server.add("four", project=KNOWN)
    run = NewRun(identity="0" * 64, dir="/tmp/none", params="{}")
    job = NewJob(command="true", run=run)
    with Client(api_server.home) as client:
        client.add(Submission(request_id="", jobs=[job], cwd="/tmp", sweep="drafted", gpus=0))
        for number in range(RESERVATIONS):
            begin_at = time.time() + 7200.0 * (number + 1)
            client.reserve(Reserve(gpus=1, for_s=60.0, begin_at=begin_at))
    yield api_server
    api_server.close()
    board.close(keep=False)


class _UnixConnection(urllib3.connection.HTTPConnection):
    path = ""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(self.path)


class _UnixAdapter(HTTPAdapter):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def get_connection_with_tls_context(self, *_args: Any, **_kwargs: Any) -> Any:
        pool = urllib3.HTTPConnectionPool("stoker")
        pool.ConnectionCls = type("Own", (_UnixConnection,), {"path": self._path})
        return pool


@pytest.fixture(scope="module")
def session(api_server: ApiServer) -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.mount("http://stoker", _UnixAdapter(f"{api_server.home}/stoker.sock"))
        yield session


OPERATIONS = {
    found.ok().label: found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)
}


def _allowed_and_not(operation: Any) -> Any:
    takes_something = operation.body or operation.query
    modes = list(GenerationMode) if takes_something else [GenerationMode.POSITIVE]
    return st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))


# Not schema.parametrize: its tests all have one name, and of those xdist runs only the first.
@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_every_request_is_answered_as_the_document_says(
    label: str, session: requests.Session, api_server: ApiServer
) -> None:
    granted: list[int] = []
    if label == "GET /v1/wait":  # held and delayed jobs would keep it for ever
        with Client(api_server.home) as client:
            client.kill(Kill(all=True))

    if label in ("POST /v1/move", "POST /v1/set"):  # an earlier test may have resumed everything
        with Client(api_server.home) as client:
            client.pause(Pause(queue=True, project=ASLEEP))

    @given(case=_allowed_and_not(OPERATIONS[label]))
    @settings(
        max_examples=EXAMPLES_OF_WORKER_TASKS if label in WORKER_TASKS else EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case[Any]) -> None:
        if label in ("POST /v1/move", "POST /v1/set"):  # of a job that waits
            api_server.add("waits", project=ASLEEP)
        response = case.call(base_url="http://stoker", session=session, timeout=PATIENCE_S)
        if response.status_code < 300:
            granted.append(response.status_code)
        # A document cannot say everything: no job may have the name, the folder may be none.
        case.validate_response(response, excluded_checks=[positive_data_acceptance])

    ask()
    # The page is the daemon's, which is not here; nor are there nodes that could be forgotten, or Slurm. The
    # submission of a search names the same sweep and folder as the search: the document cannot say that.
    without = ("web", "nodes", "search", "allocations", "allocation")
    if label not in {f"POST /v1/{word}" for word in without}:
        assert granted, "everything was refused"


def test_every_operation_is_asked() -> None:
    expected = {f"{each.method} {each.path}" for each in ENDPOINTS if each.path != "/v1/events"}
    assert OPERATIONS.keys() == expected
