"""Executors of every kind, each in folders of its own."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.executor_harness import (
    Harness,
    act,
    end_all,
    far_executor,
    kept_executor,
    local_executor,
    name_of,
    occupy_for_real,
    put_away,
    queue_of,
)
from contract.ray_fixture import RayFixture
from stoker.executors.contract import Executor, Synced
from stoker.supervisor import process_tree
from stoker.testing.executor import FakeExecutor


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and beside it everything else that a test's executors need."""
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.delenv(process_tree.COOKIE, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.fixture
def path(surroundings: Path) -> Path:
    """Where a kept executor's supervisor listens."""
    return surroundings.parent / "supervisor.sock"


@pytest.fixture
def local(surroundings: Path) -> Iterator[Harness]:
    harness = Harness(local_executor(surroundings), surroundings, occupy_for_real)
    try:
        harness.hold_all()
        yield harness
    finally:
        put_away(harness.executor)


@pytest.fixture
def kept(surroundings: Path) -> Iterator[Harness]:
    harness = Harness(kept_executor(surroundings), surroundings, occupy_for_real)
    try:
        harness.hold_all()
        yield harness
    finally:
        try:
            put_away(harness.executor)
        finally:
            end_all(name_of(surroundings))


@pytest.fixture(scope="package")
def ray_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayFixture]:
    """Return one Ray for all tests."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'stoker[ray]'")
    ray_fixture = RayFixture(tmp_path_factory.mktemp("ray_fixture"))
    try:
        yield ray_fixture
    finally:
        ray_fixture.close()


@pytest.fixture
def far(
    surroundings: Path, ray_fixture: RayFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Harness]:
    monkeypatch.setenv("STOKER_LEASE_DIR", ray_fixture.leases)

    def make() -> Executor:
        return far_executor(surroundings, ray_fixture)

    harness = Harness(make(), surroundings, occupy_for_real, make)
    try:
        harness.until(lambda: harness.of(Synced), 30.0)
        harness.hold_all()
        yield harness
    finally:
        put_away(harness.executor)
        ray_fixture.forget(queue_of(surroundings))


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Harness]:
    yield from fake_harness(FakeExecutor(time.time, act), tmp_path)


@pytest.fixture
def fake_kept(tmp_path: Path) -> Iterator[Harness]:
    yield from fake_harness(FakeExecutor(time.time, act, persistent=True), tmp_path)


def fake_harness(executor: FakeExecutor, folder: Path) -> Iterator[Harness]:
    def occupy(key: str) -> Callable[[], None]:
        executor.foreign.add(key)
        return lambda: executor.foreign.discard(key)

    harness = Harness(executor, folder, occupy)
    harness.hold_all()
    yield harness
    executor.close()


def harness_named_by(request: pytest.FixtureRequest) -> Harness:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Harness)
    return found


@pytest.fixture(params=["local", "kept", "far", "fake", "fake_kept"])
def harness(request: pytest.FixtureRequest) -> Harness:
    """Any executor."""
    return harness_named_by(request)


@pytest.fixture(params=["local", "kept"])
def real(request: pytest.FixtureRequest) -> Harness:
    """Any executor with real processes."""
    return harness_named_by(request)


@pytest.fixture(params=["kept", "far", "fake_kept"])
def lasting(request: pytest.FixtureRequest) -> Harness:
    """Any executor that outlives its client."""
    return harness_named_by(request)
