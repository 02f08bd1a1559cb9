from __future__ import annotations

import os

from stoker import __version__
from stoker.core.lifecycle import State
from stoker.engine.service.status import status
from stoker.engine.service.stop import stop
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


def test_it_tells_why_nothing_can_run_on_a_slot(world: World) -> None:
    world.executor.foreign.add("GPU-0")
    world.engine.board.places[1].closed = "in use by somebody"
    world.add("a")

    assert [slot.closed for slot in status(world.hub).slots] == [
        "held by another",
        "in use by somebody",
    ]


def test_without_gpus_it_tells_why(make_world: MakeWorld) -> None:
    world = make_world(gpus=0)
    assert status(world.hub).notices == ["no GPU found"]
    assert status(world.hub).slots == []


def test_stop_is_asked_for_once(world: World) -> None:
    stop(world.hub, Stop(kill=True))
    stop(world.hub, Stop(kill=False))

    assert world.hub.stopping.result() is True
