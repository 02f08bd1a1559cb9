from __future__ import annotations

import os
from pathlib import Path

import pytest

from stoker import __version__
from stoker.core.lifecycle import State
from stoker.engine.slot_state import ClosedBy
from stoker.gpus.lease import take
from stoker.service.status import status
from stoker.service.stop import stop
from stoker.wire import SlotInfo, Stop
from unit.engine.engine_harness import Harness, MakeHarness


def test_it_tells_what_runs_where_and_what_waits(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=2, cpu_places=3)
    harness.add("a", "b", "c")
    told = status(harness.context)

    assert (told.version, told.pid, told.home) == (__version__, os.getpid(), str(harness.home))
    assert told.supervisor_pids == [4711]
    assert told.counts == {State.RUNNING: 2, State.WAITING: 1}
    assert told.slots == [
        SlotInfo(label="0", jobs=[1], closed=None, held=True),
        SlotInfo(label="1", jobs=[2], closed=None, held=True),
    ]
    assert told.cpu_places == 3
    assert told.notices == []


def test_it_tells_why_nothing_can_run_on_a_slot_as_long_as_it_is_so(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path / "leases"))
    harness.executor.foreign.add("GPU-0")
    harness.engine.slot_table.states[1].close(ClosedBy.GPU, "in use by somebody")
    lease = take("GPU-0", "another run")
    assert lease is not None
    harness.add("a")

    held, used = (slot.closed for slot in status(harness.context).slots)
    lease.release()

    assert "another run" in (held or "")
    assert used == "in use by somebody"
    assert status(harness.context).slots[0].closed is None


def test_without_gpus_it_tells_why(make_harness: MakeHarness) -> None:
    harness = make_harness(gpus=0)
    assert status(harness.context).notices == ["no GPU found"]
    assert status(harness.context).slots == []


def test_stop_is_asked_for_once(harness: Harness) -> None:
    stop(harness.context, Stop(kill=True))
    stop(harness.context, Stop(kill=False))

    assert harness.context.stopping.result() is True
