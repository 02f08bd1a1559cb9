"""Hydra's own test suites over Stoker's launcher."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hydra.core.plugins import Plugins
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

from scale import LONG

if TYPE_CHECKING:
    from pathlib import Path

Plugins.instance()  # Hydra 1.4 restores after each test what it knew before, which must include the plugins
FOREGROUND = ["hydra.launcher.foreground=true", "hydra.launcher.gpus=0"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))


@pytest.mark.parametrize(("launcher_name", "overrides"), [("stoker", FOREGROUND)])
class TestLauncher(LauncherTestSuite):  # type: ignore[misc]  # an untyped base
    """Sweeps that are launched in this process."""


@pytest.mark.skipif(not LONG, reason="STOKER_LONG=1 runs it")
@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("stoker", [*FOREGROUND, "hydra.sweeper.max_batch_size=2"])]
)
class TestBatches(BatchedSweeperTestSuite):  # type: ignore[misc]  # an untyped base
    """A sweep of six jobs in three batches."""


@pytest.mark.skipif(not LONG, reason="STOKER_LONG=1 runs it: each test starts a program")
@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"), [({}, ["-m", "hydra/launcher=stoker", *FOREGROUND])]
)
class TestIntegration(IntegrationTestSuite):  # type: ignore[misc]  # an untyped base
    """Programs that are started on the command line."""
