"""Jobs on a node end in time when nobody is heard from the head: whoever is left there sees to it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.rig import FOREVER, AloneExecutor, Rig, alive, environment, name_of, occupy_for_real
from patience import until
from stoker.executors.contract import Lost, Synced
from stoker.executors.shepherd import sockets, tether, trees
from stoker.executors.summons import Summons

LEASE_S = 2.0


class Node:
    """A shepherd on a tether, and a head that speaks with it."""

    def __init__(self, work: Path) -> None:
        folder = work.parent
        self.tether = str(folder / "tether")
        self.put_off(LEASE_S)
        self.name = name_of(work)
        summons = Summons(
            name=self.name,
            socket=str(folder / "shepherd.sock"),
            journal=str(folder / "journal"),
            log=str(folder / "log"),
            tether=self.tether,
        )
        stream = summons.connect(time.monotonic() + 10)
        self.shepherd = sockets.peer_of(stream).pid
        executor = AloneExecutor(stream)
        executor.define_context(0, environment(), str(work), "/bin/sh")
        self.rig = Rig(executor, work, occupy_for_real)
        self.rig.until(lambda: self.rig.of(Synced))
        self.rig.hold_all()

    def put_off(self, seconds: float) -> None:
        tether.put_off(self.tether, time.clock_gettime(time.CLOCK_BOOTTIME) + seconds)

    def start(self) -> int:
        """Start a job that would never end; its pid."""
        self.rig.sh("1.1", FOREVER, 0)
        return self.rig.started("1.1").pid

    def guards(self) -> list[int]:
        """The processes that guard what this shepherd has started."""
        words = (self.name.encode(), str(self.shepherd).encode(), b"")
        return [
            pid
            for pid in trees.processes()
            if command_of(pid)[-3:] == [*words] and self.tether.encode() in command_of(pid)
        ]

    def close(self) -> None:
        self.rig.executor.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.shepherd, signal.SIGCONT)
        self.put_off(-1)
        trees.kill_marked(f"{self.name}:1.1")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.shepherd, signal.SIGKILL)
        until(lambda: not self.guards(), "its guard is gone")


def command_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.fixture
def node(surroundings: Path) -> Iterator[Node]:
    node = Node(surroundings)
    yield node
    node.close()


def test_a_shepherd_ends_them_and_says_that_it_was_not_their_fault(node: Node) -> None:
    pid = node.start()
    assert node.rig.lost("1.1") == Lost("1.1", tether.CUT_OFF, cut_off=True)
    assert not alive([pid])


@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL])
def test_one_that_hangs_or_was_killed_is_not_waited_for(node: Node, signum: int) -> None:
    pid = node.start()
    os.kill(node.shepherd, signum)
    until(lambda: not alive([pid]), "the job is gone")


def test_a_job_whose_machine_leaves_is_lost_and_has_not_failed(node: Node) -> None:
    node.start()
    node.rig.executor._line.send(["cut", "1.1", tether.LEFT])  # type: ignore[attr-defined]
    assert node.rig.lost("1.1").cut_off
