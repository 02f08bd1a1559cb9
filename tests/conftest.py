"""What tests of all kinds share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from stoker.testing.library import build
from stoker.testing.state import GIB, FakeGpus

if TYPE_CHECKING:
    from pathlib import Path

FakeMachine = Callable[..., FakeGpus]


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of the C fake of NVML, built once."""
    return os.path.dirname(build(tmp_path_factory.mktemp("nvml")))


@pytest.fixture
def fake_gpus(nvml_library: str, tmp_path: Path) -> FakeMachine:
    """Return a maker of machines with fake GPUs, seen by processes that get their `env()`."""

    def make(count: int = 4, mem_bytes: int = 8 * GIB) -> FakeGpus:
        return FakeGpus(tmp_path / "nvml", nvml_library).create(count, mem_bytes)

    return make
