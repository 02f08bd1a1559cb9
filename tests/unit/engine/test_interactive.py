from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stoker.core.job import Attempt, Options, Request
from stoker.core.slot import Slot
from stoker.core.usage import Look
from stoker.engine.gpu_features import GpuFeatures, GpuSource, Sample
from stoker.engine.interactive import InteractiveLimits
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import STARTING, Paused, Running, RunningAttempt
from stoker.interactive.session import Folder

if TYPE_CHECKING:
    from _socket import socket as Socket  # noqa: N812
    from collections.abc import Iterator

KEY = "7.1"
GPU = (Slot(0, ("0",), ("GPU-0",)),)
HALF_HOUR_S = 1800.0


class Samples(GpuSource):
    """A monitor that shows the samples of the test."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def look(self) -> Look | None:
        return Look(at_s=0.0, gpus={}, jobs={})

    def history_of(self, _attempt: str) -> list[Sample]:
        return self.samples


class World:
    """A session in a world whose clock the test sets."""

    def __init__(self, folder: Folder, receiver: Socket) -> None:
        self.now = 1000.0
        self.folder = folder
        self.receiver = receiver
        self.monitor = Samples()
        self.ended: list[str] = []
        self.box_limit_s: float | None = None
        gpus = GpuFeatures(lambda: self.now)
        gpus.monitor = self.monitor
        self.limits = InteractiveLimits(
            gpus,
            lambda: self.now,
            lambda running: self.box_limit_s or running.entry.request.timeout_s,
            lambda _running, reason: self.ended.append(reason),
        )

    def session(self, **request: object) -> RunningAttempt:
        options = Options(interactive="terminal", idle_s=request.pop("idle_s", None))  # type: ignore[arg-type]
        entry = QueueEntry(b"bash", Request(options=options, **request))  # type: ignore[arg-type]
        return RunningAttempt(
            key=KEY,
            attempt=Attempt(7, 1),
            entry=entry,
            slots=GPU,
            phase=Running(1, 0),
            deadline=None
            if entry.request.timeout_s is None
            else self.now + entry.request.timeout_s,
        )

    def pass_s(self, seconds: float, running: RunningAttempt, sm_pct: float | None = None) -> None:
        """Let time pass; the GPU is used so much of it, and typing becomes older."""
        used_at = self.folder.used_at(KEY)
        assert used_at is not None
        self.folder.touch(KEY, used_at - seconds)
        self.now += seconds
        mem_bytes = 0 if sm_pct is None else 1
        self.monitor.samples.append((self.now, mem_bytes, sm_pct))
        self.limits.review([running], self.folder)

    def notices(self) -> list[str]:
        found = []
        while True:
            try:
                found.append(self.receiver.recv(4096).decode())
            except BlockingIOError:
                return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    path = tmp_path / "terminals"
    path.mkdir(mode=0o700)
    folder = Folder(str(path))
    receiver = folder.receive(KEY)
    yield World(folder, receiver)
    receiver.close()
    folder.close()


def test_an_idle_session_is_warned_a_minute_before_it_ends(world: World) -> None:
    running = world.session(idle_s=HALF_HOUR_S)
    world.pass_s(0, running)

    world.pass_s(HALF_HOUR_S - 61, running)
    assert world.notices() == []

    world.pass_s(2, running)
    [notice] = world.notices()
    assert notice == (
        "job 7 is idle (29m without GPU use and typing): it ends in 60s; press a key to keep it"
    )
    world.pass_s(58, running)
    assert world.ended == []

    world.pass_s(3, running)
    assert world.ended == ["idle for 30m: no GPU use and no typing"]


def test_a_jupyter_server_is_warned_in_its_own_words(world: World) -> None:
    running = world.session(idle_s=HALF_HOUR_S)
    options = Options(interactive="jupyter", idle_s=HALF_HOUR_S)
    running.entry.request = Request(options=options)
    world.pass_s(0, running)
    world.pass_s(HALF_HOUR_S - 59, running)
    [notice] = world.notices()
    assert notice.endswith("without GPU use and requests): it ends in 60s; use it to keep it")


def test_gpu_use_and_typing_keep_a_session(world: World) -> None:
    running = world.session(idle_s=HALF_HOUR_S)
    world.pass_s(0, running)
    for _minute in range(60):
        world.pass_s(60, running, sm_pct=30.0)
    world.pass_s(HALF_HOUR_S - 30, running, sm_pct=0.0)
    assert len(world.notices()) == 1

    os.utime(f"/proc/self/fd/{world.folder._fd}/{KEY}", (time.time(), time.time()))
    world.pass_s(0, running)
    world.pass_s(HALF_HOUR_S - 90, running, sm_pct=0.0)

    assert world.notices() == []
    assert world.ended == []


def test_held_memory_counts_as_use_where_the_driver_does_not_report_computing(
    world: World,
) -> None:
    running = world.session(idle_s=HALF_HOUR_S)
    world.pass_s(0, running)
    for at in (900.0, 900.0, 900.0):
        world.monitor.samples.append((world.now + at, 1 << 30, None))
        world.pass_s(at, running)
    assert world.notices() == []


def test_a_paused_session_is_not_idle(world: World) -> None:
    running = world.session(idle_s=HALF_HOUR_S)
    running.phase = Paused(1, 0, world.now)
    world.pass_s(0, running)
    world.pass_s(2 * HALF_HOUR_S, running)
    running.phase = Running(1, 0)
    world.pass_s(HALF_HOUR_S / 2, running)
    assert (world.notices(), world.ended) == ([], [])


def test_the_time_limit_is_announced_five_minutes_and_one_minute_before(world: World) -> None:
    running = world.session(timeout_s=7200.0)
    world.pass_s(0, running)
    world.pass_s(7200 - 301, running)
    assert world.notices() == []
    world.pass_s(2, running)
    assert world.notices() == [
        "job 7 ends in 5m, at its time limit of 2h; stoker set 7 timeout=4h gives it more"
    ]
    world.pass_s(100, running)
    assert world.notices() == []
    world.pass_s(140, running)
    [notice] = world.notices()
    assert notice.startswith("job 7 ends in 59s")


def test_a_time_limit_of_the_machine_is_announced_as_such(world: World) -> None:
    world.box_limit_s = 3600.0
    running = world.session()
    running.deadline = world.now + 3600.0
    world.pass_s(0, running)
    world.pass_s(3600 - 299, running)
    assert world.notices() == [
        "job 7 ends in 5m, at the time limit of 1h that this machine's rules set"
    ]


def test_a_longer_time_limit_is_announced_again(world: World) -> None:
    running = world.session(timeout_s=7200.0)
    world.pass_s(0, running)
    world.pass_s(7200 - 200, running)
    assert len(world.notices()) == 1
    assert running.deadline is not None
    running.deadline += 3600
    world.pass_s(1, running)
    assert world.notices() == []
    world.pass_s(3600, running)
    assert len(world.notices()) == 1


def test_a_short_session_is_not_warned_at_its_start(world: World) -> None:
    running = world.session(timeout_s=120.0)
    world.pass_s(0, running)
    assert world.notices() == []
    world.pass_s(61, running)
    assert len(world.notices()) == 1


def test_the_files_of_a_session_that_ended_are_removed(world: World) -> None:
    running = world.session()
    world.pass_s(0, running)
    world.limits.review([], world.folder)
    assert world.folder.used_at(KEY) is None


def test_files_that_were_left_while_no_daemon_ran_are_removed(world: World) -> None:
    for name in ("3.1", "3.1.token", "8.1", "client.sock"):
        world.folder.receive(name).close()
    other = world.session()
    other.key, other.phase = "8.1", STARTING
    world.limits.review([world.session(), other], world.folder)
    assert world.folder.keys() == {KEY, "8.1"}
    assert world.folder.used_at("client.sock") is not None


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o755)
    with pytest.raises(PermissionError, match="other users can enter"):
        Folder(str(path))
