"""The daemon's queue without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from unit.engine.engine_harness import Harness, MakeHarness

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def make_harness(tmp_path: Path) -> Iterator[MakeHarness]:
    """Return a maker of harnesses, each in a home of its own."""
    made: list[Harness] = []

    def make(**how: Any) -> Harness:
        home = tmp_path / f"home{len(made)}"
        home.mkdir()
        made.append(Harness(home, **how))
        return made[-1]

    yield make
    for harness in made:
        harness.close()


@pytest.fixture
def harness(make_harness: MakeHarness) -> Harness:
    """Return a harness with two GPUs and two places for jobs without."""
    return make_harness()
