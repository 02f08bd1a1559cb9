"""Jobs on a node end in time when nobody is heard from the head: whoever is left there sees to it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.executor_harness import (
    FOREVER,
    SLOTS,
    AloneExecutor,
    Harness,
    alive,
    environment,
    name_of,
    occupy_for_real,
)
from patience import AT_ONCE_S, until
from stoker.executors.contract import Launch, Lost, Synced
from stoker.executors.supervisor_launcher import SupervisorLauncher
from stoker.supervisor import lease_file, process_tree, unix_sockets
from stoker.supervisor.messages import CutAttempt

LEASE_S = 2.0


class Node:
    """A supervisor on a lease file, and a head that speaks with it."""

    def __init__(self, work: Path) -> None:
        folder = work.parent
        self.lease_file = str(folder / "lease_file")
        self.put_off(LEASE_S)
        self.name = name_of(work)
        self._work = work
        self._launcher = SupervisorLauncher(
            name=self.name,
            socket=str(folder / "supervisor.sock"),
            journal=str(folder / "journal"),
            log=str(folder / "log"),
            lease_file=self.lease_file,
        )
        self.connect()
        self.harness.hold_all()

    def connect(self) -> None:
        """Be the next head; start a supervisor if there is none."""
        stream = self._launcher.connect(time.monotonic() + 10)
        self.supervisor = unix_sockets.peer_of(stream).pid
        executor = AloneExecutor(stream)
        executor.define_context(0, environment(), str(self._work), "/bin/sh")
        self.harness = Harness(executor, self._work, occupy_for_real)
        self.harness.until(lambda: self.harness.of(Synced))

    def put_off(self, seconds: float) -> None:
        lease_file.write(self.lease_file, time.clock_gettime(time.CLOCK_BOOTTIME) + seconds)

    def start(self) -> int:
        """Start a job that would never end; its pid."""
        self.harness.sh("1.1", FOREVER, 0)
        return self.harness.started("1.1").pid

    def start_finishing(self) -> Callable[[], None]:
        """Start a job that may finish without the head. Returns what lets it end."""
        let_go = self.harness.fifo("gate")
        env = {**environment(), process_tree.ON_CUT: process_tree.FINISH}
        self.harness.executor.define_context(1, env, str(self.harness.work), "/bin/sh")
        argv = ["/bin/sh", "-c", "read line < gate; exit 3"]
        self.harness.executor.launch([Launch("2.1", (1,), argv, None, 1)])
        self.harness.started("2.1")
        return let_go

    def guards(self) -> list[int]:
        """The processes that guard what this supervisor has started."""
        words = (self.name.encode(), str(self.supervisor).encode(), b"")
        return [
            pid
            for pid in process_tree.processes()
            if command_of(pid)[-3:] == [*words] and self.lease_file.encode() in command_of(pid)
        ]

    def watchdogs(self) -> list[int]:
        """The processes whose environment or command line names the lease file, without the supervisor."""
        found = []
        for pid in process_tree.processes().keys() - {os.getpid(), self.supervisor}:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if self.lease_file.encode() in words + Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found

    def kill_all_python(self) -> None:
        """Kill all that `pkill -9 -f python` and `pkill -9 -f stoker` find of this node at one moment."""
        marks = (self.lease_file.encode(), f"STOKER_COOKIE={self.name}:".encode())
        found = []
        for pid in process_tree.processes().keys() - {os.getpid()}:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                around = words + Path(f"/proc/{pid}/environ").read_bytes()
                if any(mark in around for mark in marks) and re.search(b"python|stoker", words):
                    found.append(pid)
        assert self.supervisor in found
        assert {*self.guards()} <= {*found}
        process_tree.send(found, signal.SIGKILL)

    def close(self) -> None:
        self.harness.executor.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.supervisor, signal.SIGCONT)
        self.put_off(-1)
        for key in ("1.1", "2.1"):
            process_tree.kill_marked(f"{self.name}:{key}")
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.supervisor, signal.SIGKILL)
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


def test_a_supervisor_ends_jobs_after_the_lease_and_reports_them_as_cut_off(node: Node) -> None:
    pid = node.start()
    assert node.harness.lost("1.1") == Lost("1.1", lease_file.CUT_OFF, cut_off=True)
    assert not alive([pid])


@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL])
def test_a_hung_or_killed_supervisor_is_not_waited_for(node: Node, signum: int) -> None:
    pid = node.start()
    os.kill(node.supervisor, signum)
    until(lambda: not alive([pid]), "the job is gone")


def test_a_job_ends_with_its_lease_if_all_python_processes_of_its_node_were_killed(
    node: Node,
) -> None:
    pid = node.start()
    node.kill_all_python()
    assert alive([pid])
    until(lambda: not alive([pid]), "the job is gone")


def test_an_idle_supervisor_that_ends_leaves_no_process(node: Node) -> None:
    assert node.watchdogs()
    node.harness.executor.stop(kill=False)  # type: ignore[attr-defined]
    until(lambda: not alive([node.supervisor]), "the supervisor has ended")
    until(lambda: not node.watchdogs(), "its watchdogs are gone", AT_ONCE_S)


def test_a_job_of_a_leaving_node_is_lost_not_failed(node: Node) -> None:
    node.start()
    node.harness.executor._connection.send(CutAttempt("1.1", lease_file.LEFT))  # type: ignore[attr-defined]
    assert node.harness.lost("1.1").cut_off


def test_a_job_that_may_finish_alone_outlives_the_lease_and_reports_its_status(node: Node) -> None:
    let_go = node.start_finishing()
    node.start()
    assert node.harness.lost("1.1").cut_off
    let_go()
    assert node.harness.ended("2.1").status == 3 << 8


def test_a_job_that_may_finish_alone_outlives_the_lease_without_its_supervisor(node: Node) -> None:
    node.start_finishing()
    finishing = node.harness.started("2.1").pid
    pid = node.start()
    os.kill(node.supervisor, signal.SIGKILL)
    until(lambda: not alive([pid]), "the other job is gone")
    assert alive([finishing])
    node.harness.executor.close()
    node.connect()
    assert node.harness.started("2.1").pid == finishing
    node.harness.executor.define_slots(SLOTS)
    node.harness.reach()
    assert alive([finishing])
    assert not node.harness.of(Lost) or node.harness.of(Lost)[0].key == "1.1"
