"""The daemon's queue without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from unit.engine.world import MakeWorld, World

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    """Return a maker of worlds, each in a home of its own."""
    made: list[World] = []

    def make(**how: Any) -> World:
        home = tmp_path / f"home{len(made)}"
        home.mkdir()
        made.append(World(home, **how))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Return a world with two GPUs and two places for jobs without."""
    return make_world()
