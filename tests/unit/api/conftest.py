"""Desks to serve at, and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from stoker.client.client import Client
from unit.api.desk import Desk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def make_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Return a maker of desks in one home, with a script or a protocol of their own."""
    made: list[Desk] = []
    home = tmp_path / "home"
    home.mkdir(mode=0o700)

    def make(**details: object) -> Desk:
        made.append(Desk(home, **details))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for desk in made:
        desk.close()


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    """Return a desk whose jobs run until they are told to end."""
    return make_desk()


@pytest.fixture
def client(desk: Desk) -> Iterator[Client]:
    """Return a client of that desk."""
    with Client(desk.home) as client:
        yield client
