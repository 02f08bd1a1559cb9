"""Executors of every kind, each in folders of its own."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.harbour import Harbour
from contract.rig import (
    Rig,
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
from stoker.executors.contract import Executor, Synced
from stoker.executors.shepherd import trees
from stoker.testing.executor import FakeExecutor


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and beside it everything else that a test's executors need."""
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.delenv(trees.COOKIE, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    return work


@pytest.fixture
def path(surroundings: Path) -> Path:
    """Where a kept executor's shepherd listens."""
    return surroundings.parent / "shepherd.sock"


@pytest.fixture
def local(surroundings: Path) -> Iterator[Rig]:
    rig = Rig(local_executor(surroundings), surroundings, occupy_for_real)
    try:
        rig.hold_all()
        yield rig
    finally:
        put_away(rig.executor)


@pytest.fixture
def kept(surroundings: Path) -> Iterator[Rig]:
    rig = Rig(kept_executor(surroundings), surroundings, occupy_for_real)
    try:
        rig.hold_all()
        yield rig
    finally:
        try:
            put_away(rig.executor)
        finally:
            end_all(name_of(surroundings))


@pytest.fixture(scope="package")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    """Return one Ray for all tests."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'stoker[ray]'")
    harbour = Harbour(tmp_path_factory.mktemp("harbour"))
    try:
        yield harbour
    finally:
        harbour.close()


@pytest.fixture
def far(surroundings: Path, harbour: Harbour, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setenv("STOKER_LEASE_DIR", harbour.leases)

    def make() -> Executor:
        return far_executor(surroundings, harbour)

    rig = Rig(make(), surroundings, occupy_for_real, make)
    try:
        rig.until(lambda: rig.of(Synced), 30.0)
        rig.hold_all()
        yield rig
    finally:
        put_away(rig.executor)
        harbour.forget(queue_of(surroundings))


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Rig]:
    yield from fake_rig(FakeExecutor(time.time, act), tmp_path)


@pytest.fixture
def fake_kept(tmp_path: Path) -> Iterator[Rig]:
    yield from fake_rig(FakeExecutor(time.time, act, kept=True), tmp_path)


def fake_rig(executor: FakeExecutor, folder: Path) -> Iterator[Rig]:
    def occupy(key: str) -> Callable[[], None]:
        executor.foreign.add(key)
        return lambda: executor.foreign.discard(key)

    rig = Rig(executor, folder, occupy)
    rig.hold_all()
    yield rig
    executor.close()


def rig_named_by(request: pytest.FixtureRequest) -> Rig:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Rig)
    return found


@pytest.fixture(params=["local", "kept", "far", "fake", "fake_kept"])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Any executor."""
    return rig_named_by(request)


@pytest.fixture(params=["local", "kept"])
def real(request: pytest.FixtureRequest) -> Rig:
    """Any executor with real processes."""
    return rig_named_by(request)


@pytest.fixture(params=["kept", "far", "fake_kept"])
def lasting(request: pytest.FixtureRequest) -> Rig:
    """Any executor that outlives its client."""
    return rig_named_by(request)
