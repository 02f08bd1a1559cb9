"""What the tests of executors share: an executor at work, and how to make each kind."""

from __future__ import annotations

import hashlib
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from contract.ray_fixture import RayFixture
from patience import PATIENCE_S
from stoker.core.slot import Slot
from stoker.executors.contract import (
    Ended,
    Executor,
    Held,
    Launch,
    Lost,
    Refused,
    Report,
    Started,
    Synced,
    Unheld,
)
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.executors.foreground_executor import ForegroundExecutor
from stoker.executors.remote_executor import RemoteExecutor
from stoker.gpus import lease
from stoker.supervisor import process_tree
from stoker.testing.executor import FakeExecutor

SLOTS = (Slot(0, ("0",), ("GPU-0",)), Slot(1, ("2", "3"), ("GPU-2", "GPU-3")))
FOREVER = "exec sleep 600"
R = TypeVar("R", bound=Report)
K = TypeVar("K", Ended, Started, Refused, Lost)
# A tree that does all it can to be forgotten: forks twice, leaves the session, ignores TERM.
HYDRA = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def tell():
    os.write(out, b"%d\\n" % os.getpid())
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            tell()
            if os.fork() == 0:
                os.setpgid(0, 0)
                tell()
            time.sleep(600)
        os._exit(0)
    os.wait()
tell()
time.sleep(600)
"""
HYDRA_HEADS = 7

# A program with a helper process that any signal ends. After SIGUSR2 it writes how the helper ended.
WITH_HELPER = """
import pathlib, signal, subprocess, time
seen = []
signal.signal(signal.SIGUSR2, lambda *_: seen.append(1))
helper = subprocess.Popen(["sleep", "600"])
pathlib.Path("helper").write_text(f"{helper.pid}\\n")
while not seen:
    time.sleep(0.01)
helper.kill()
pathlib.Path("status").write_text(f"{helper.wait()}\\n")
"""


class Harness:
    """An executor at work, and all it has reported."""

    def __init__(
        self,
        executor: Executor,
        work: Path,
        occupy: Occupy,
        remake: Callable[[], Executor] | None = None,
    ) -> None:
        self.executor = executor
        self._remake = remake or (lambda: kept_executor(work))
        self.work = work
        self.occupy = occupy
        self.reports: list[Report] = []

    @property
    def is_far(self) -> bool:
        """Whether each stream begins anew: what the last one held is held no more."""
        return isinstance(self.executor, AloneExecutor)

    def hold_all(self) -> None:
        """Make the slots known, and hold them."""
        self.executor.define_slots(SLOTS)
        for slot in SLOTS:
            self.executor.hold(slot.index)
        self.until(lambda: len(self.of(Held)) == len(SLOTS))

    def reconnect(self) -> Synced:
        """Leave, and come back as the next client; all reports are of that one then."""
        self.reports.clear()
        if isinstance(self.executor, FakeExecutor):
            self.executor.lose_client()
        else:
            self.executor.close()
            self.executor = self._remake()
        synced = self.synced()
        self.executor.define_slots(SLOTS)
        return synced

    def sh(self, key: str, text: str, *slots: int, log: Path | None = None) -> None:
        """Launch a line of shell; on slot 0 unless told otherwise."""
        argv = ["/bin/sh", "-c", text]
        self.executor.launch([Launch(key, slots or (0,), argv, str(log) if log else None)])

    def of(self, kind: type[R]) -> list[R]:
        """All reports of one kind."""
        return [report for report in self.reports if isinstance(report, kind)]

    def until(self, fact: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        """Take in reports until a fact is there."""
        deadline = time.monotonic() + within_s
        while not fact():
            assert time.monotonic() < deadline, (
                f"it never came true; reported: {self.reports[-20:]}"
            )
            select.select([self.executor], [], [], 0.02)
            self.reports += self.executor.observe()

    def until_quietly(self, fact: Callable[[], object], within_s: float = PATIENCE_S) -> None:
        """Wait for a fact without taking anything in."""
        deadline = time.monotonic() + within_s
        while not fact():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.005)

    def first(self, kind: type[K], key: str) -> K:
        """Wait for an attempt's report of one kind."""
        self.until(lambda: any(report.key == key for report in self.of(kind)))
        return next(report for report in self.of(kind) if report.key == key)

    def ended(self, key: str) -> Ended:
        """Wait for an attempt's end."""
        return self.first(Ended, key)

    def started(self, key: str) -> Started:
        """Wait for an attempt's start."""
        return self.first(Started, key)

    def refused(self, key: str) -> Refused:
        """Wait for an attempt's refusal."""
        return self.first(Refused, key)

    def lost(self, key: str) -> Lost:
        """Wait until an attempt is lost."""
        return self.first(Lost, key)

    def synced(self) -> Synced:
        """Wait until the executor has told all it knew."""
        self.until(lambda: self.of(Synced))
        return self.of(Synced)[-1]

    def reach(self) -> None:
        """Wait until everything asked so far has been dealt with."""
        count = len(self.of(Held))
        self.executor.hold(0)
        self.until(lambda: len(self.of(Held)) > count)

    def read(self, name: str) -> str:
        """Wait for a whole line in a file of the working folder, and return all there is."""
        path = self.work / name
        self.until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text()

    def fifo(self, name: str) -> Callable[[], None]:
        """Make a pipe in the working folder; the result lets one reader of it go on."""
        os.mkfifo(self.work / name)

        def let_go() -> None:
            (self.work / name).write_text("go\n")

        return let_go

    def hydra(self, key: str = "1.1", *slots: int) -> list[int]:
        """Launch a tree that hides; returns its processes."""
        heads = self.work / f"heads-{key}"
        argv = [sys.executable, "-c", HYDRA, str(heads)]
        self.executor.launch([Launch(key, slots or (0,), argv)])
        self.until(lambda: heads.exists() and heads.read_text().count("\n") == HYDRA_HEADS)
        return [int(line) for line in heads.read_text().split()]


Occupy = Callable[[str], Callable[[], None]]


def act(launch: Launch) -> int | None:
    """What the fake makes of the few commands that all executors are given."""
    text = launch.argv[-1]
    if found := re.fullmatch(r"exit (\d+)", text):
        return int(found[1]) << 8
    if found := re.fullmatch(r"kill -(\d+) \$\$", text):
        return int(found[1])
    return None


def occupy_for_real(key: str) -> Callable[[], None]:
    """Be somebody else who holds a GPU, until the result is called."""
    held = lease.take(key, "somebody else")
    assert held
    return held.release


def environment() -> dict[str, str]:
    """What jobs of these tests are given."""
    return {"PATH": os.environ["PATH"], "ODD": os.fsdecode(b"\xfe\xff")}


def local_executor(work: Path, **changes: object) -> ForegroundExecutor:
    """An executor that dies with this process."""
    settings: dict[str, object] = {
        "name": name_of(work),
        "journal": str(work.parent / "journal"),
        "env": environment(),
        "cwd": str(work),
        "shell": "/bin/sh",
    }
    return ForegroundExecutor(**{**settings, **changes})  # type: ignore[arg-type]


def kept_executor(work: Path, **changes: str) -> DaemonExecutor:
    """An executor that outlives this process."""
    folder = work.parent
    executor = DaemonExecutor(
        name=name_of(work),
        socket=str(folder / "supervisor.sock"),
        journal=str(folder / "journal"),
        log=str(folder / "supervisor.log"),
    )
    settings = {"cwd": str(work), "shell": "/bin/sh", **changes}
    executor.define_context(0, environment(), settings["cwd"], settings["shell"])
    return executor


class AloneExecutor(RemoteExecutor):
    """A node's executor as if there were no other: the node has no name in what it tells."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__("", os.devnull)
        self.attach(stream)

    def observe(self) -> list[Report]:
        """Keys of GPUs as the node itself has them."""
        return [
            Unheld(
                report.slot,
                report.gpu_key.removeprefix("/"),
                report.reason,
                gathered=tuple(key.removeprefix("/") for key in report.gathered),
            )
            if isinstance(report, Unheld)
            else report
            for report in super().observe()
        ]

    def close(self) -> None:
        """Let go; what runs goes on."""
        self.detach()


def far_executor(work: Path, ray_fixture: RayFixture) -> AloneExecutor:
    """An executor on another machine, at the end of a stream through Ray."""
    executor = AloneExecutor(ray_fixture.stream(queue_of(work)))
    executor.define_context(0, environment(), str(work), "/bin/sh")
    return executor


def queue_of(work: Path) -> str:
    """A queue of a test's own."""
    return hashlib.sha256(os.fsencode(work)).hexdigest()[:12]


def name_of(work: Path) -> str:
    """The name in cookies."""
    return f"test-{os.getpid()}-{work.parent.name}"


def put_away(executor: Executor) -> None:
    """Close, and see the supervisor off."""
    if isinstance(executor, DaemonExecutor):
        executor.stop(kill=True)
        executor.close()
    elif isinstance(executor, AloneExecutor):
        executor.stop(kill=True)
        deadline = time.monotonic() + 10.0
        while executor.is_attached and time.monotonic() < deadline:
            select.select([executor], [], [], 0.02)
            executor.observe()
        executor.close()
    elif isinstance(executor, ForegroundExecutor):
        executor.close()
        for pid in executor.parents:
            see_off(pid)


def see_off(pid: int) -> None:
    """Wait for a child, unless that has been done."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def end_all(name: str) -> None:
    """Kill what still carries a name's cookies."""
    while found := process_tree.Snapshot().by_cookie(f"{name}:"):
        for pids in found.values():
            process_tree.send(pids, signal.SIGKILL)


def alive(pids: list[int]) -> set[int]:
    """Those of some processes that live."""
    return set(pids) & process_tree.processes().keys()
