"""API servers to serve at, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from stoker.client.client import Client
from unit.api.api_server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def make_api_server(tmp_path: Path) -> Iterator[Callable[..., ApiServer]]:
    """Return a maker of API servers in one home, with a script or a protocol of their own."""
    made: list[ApiServer] = []
    home = tmp_path / "home"
    home.mkdir(mode=0o700)

    def make(**details: object) -> ApiServer:
        made.append(ApiServer(home, **details))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for api_server in made:
        api_server.close()


@pytest.fixture
def api_server(make_api_server: Callable[..., ApiServer]) -> ApiServer:
    """Return a API server whose jobs run until they are told to end."""
    return make_api_server()


@pytest.fixture
def client(api_server: ApiServer) -> Iterator[Client]:
    """Return a client of that API server."""
    with Client(api_server.home) as client:
        yield client
