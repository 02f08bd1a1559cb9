from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker import __version__
from stoker.core.lifecycle import State
from stoker.engine.service.status import status
from stoker.engine.service.stop import stop
from stoker.gpus.lease import take
from stoker.wire import SlotInfo, Stop
from unit.engine.world import MakeWorld, World


def test_it_tells_what_runs_where_and_what_waits(make_world: MakeWorld) -> None:
    world = make_world(gpus=2, cpu_places=3)
    world.add("a", "b", "c")
    told = status(world.hub)

    assert (told.version, told.pid, told.home) == (__version__, os.getpid(), str(world.home))
    assert told.shepherd_pids == [4711]
    assert told.counts == {State.RUNNING: 2, State.WAITING: 1}
    assert told.slots == [
        SlotInfo(label="0", jobs=[1], closed=None, held=True),
        SlotInfo(label="1", jobs=[2], closed=None, held=True),
    ]
    assert told.cpu_places == 3
    assert told.notices == []


def test_it_tells_why_nothing_can_run_on_a_slot_as_long_as_it_is_so(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    world.executor.foreign.add("GPU-0")
    world.engine.board.places[1].closed = "in use by somebody"
    lease = take("GPU-0", "another run")
    assert lease is not None
    world.add("a")

    held, used = (slot.closed for slot in status(world.hub).slots)
    lease.release()

    assert "another run" in (held or "")
    assert used == "in use by somebody"
    assert status(world.hub).slots[0].closed is None


def test_without_gpus_it_tells_why(make_world: MakeWorld) -> None:
    world = make_world(gpus=0)
    assert status(world.hub).notices == ["no GPU found"]
    assert status(world.hub).slots == []


def test_stop_is_asked_for_once(world: World) -> None:
    stop(world.hub, Stop(kill=True))
    stop(world.hub, Stop(kill=False))

    assert world.hub.stopping.result() is True
