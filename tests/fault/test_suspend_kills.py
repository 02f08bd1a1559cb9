"""Daemon or helper die in the middle of a suspension: the job runs or is suspended, and is known to."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from typing import TYPE_CHECKING

import msgspec
import pytest

from fault.test_daemon_failpoints import OF_SUSPENSION
from patience import PATIENCE_S, until
from stoker.client.transport import BrokenError
from stoker.core.lifecycle import State
from stoker.errors import StokerError
from stoker.testing.state import GIB, FakeGpus
from stoker.wire import NewJob, Resume, Suspend

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import FakeMachine
    from fault.home import Home
    from fault.work import Work

TRAIN = [sys.executable, "-m", "stoker.testing.train", "--mem", "5G", "--steps", "2000"]


@pytest.fixture
def box(fake_gpus: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """Return a machine with one GPU of 8 GiB, which the daemons of this test see."""
    box = fake_gpus(1, 8 * GIB)
    for name, value in box.env().items():
        monkeypatch.setenv(name, value)
    return box


def train(home: Home, work: Work, box: FakeGpus) -> int:
    """Start the daemon and a job that trains; the job's id, once it has trained for some steps."""
    home.start("--gpus", "0")
    submission = work.submission([NewJob(command=[*TRAIN, "--seconds", "60"])])
    env = {**submission.env, **box.env()}
    with home.client() as client:
        (added,) = client.add(msgspec.structs.replace(submission, env=env))
    until(lambda: len(steps(home, added.first)) > 2, "it trains")
    return added.first


def steps(home: Home, job: int) -> list[int]:
    """The steps of the training so far, as its log tells."""
    with home.client() as client:
        log = b"".join(client.log(job)).decode()
    return [int(step) for step in re.findall(r"^step (\d+)/", log, re.MULTILINE)]


def state_of(home: Home, job: int) -> State | None:
    """The state of a job, as the daemon tells; None if the daemon dies of its failpoint meanwhile."""
    with home.client() as client:
        try:
            return client.show(job).state
        except BrokenError:
            return None


def until_settled(home: Home, box: FakeGpus, job: int) -> State:
    """Wait until the daemon and the driver say the same of the job; its state."""

    def settled() -> State | None:
        state = state_of(home, job)
        held = (box.used_bytes(0), box.suspended_bytes())
        is_locked = any(box.is_locked(process.pid) for process in box.processes(0))
        agree = (state is State.SUSPENDED and held == (0, 5 * GIB)) or (
            state is State.RUNNING and held == (5 * GIB, 0) and not is_locked
        )
        return state if agree else None

    state = until(settled, "daemon and driver agree")
    assert state is not None
    return state


def resume(home: Home, job: int) -> None:
    """Ask for the job to go on, and wait until it does."""
    with home.client() as client:
        changed = client.resume(Resume(ids=str(job)))
    assert not changed.refused, changed
    until(lambda: state_of(home, job) is State.RUNNING, "it is resumed")


def test_the_places_are_named() -> None:
    assert len(OF_SUSPENSION) == 9


@pytest.mark.parametrize("place", OF_SUSPENSION)
def test_a_process_killed_at_a_place_leaves_a_job_that_can_be_suspended_and_resumed(
    home: Home,
    work: Work,
    box: FakeGpus,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    place: str,
) -> None:
    struck = tmp_path / "struck"
    monkeypatch.setenv("STOKER_FAILPOINT", f"{place}:1:{struck}")
    job = train(home, work, box)

    # Its daemon may die before it answers, here and below.
    with contextlib.suppress(StokerError), home.client() as client:
        client.suspend(Suspend(ids=str(job)))
    if until_settled(home, box, job) is State.SUSPENDED:
        with contextlib.suppress(StokerError), home.client() as client:
            client.resume(Resume(ids=str(job)))
        until(lambda: state_of(home, job) is State.RUNNING, "it is resumed")
    until(struck.exists, "a process has died there")
    if until_settled(home, box, job) is State.SUSPENDED:
        resume(home, job)

    assert until_settled(home, box, job) is State.RUNNING
    count = len(steps(home, job))
    until(lambda: len(steps(home, job)) > count, "it trains")
    told = steps(home, job)
    assert told == [*range(1, len(told) + 1)]
    with home.client() as client:
        assert client.show(job).attempt == 1


def test_the_next_daemon_waits_for_the_helper_of_a_killed_one(
    home: Home, work: Work, box: FakeGpus
) -> None:
    job = train(home, work, box)
    pid = box.processes(0)[0].pid
    box.let_calls(Checkpoint="hang")
    errors: list[StokerError] = []

    def suspend() -> None:
        try:
            with home.client() as client:
                client.suspend(Suspend(ids=str(job)))
        except StokerError as error:
            errors.append(error)

    asking = threading.Thread(target=suspend)
    asking.start()
    until(lambda: box.is_locked(pid), "the helper is in the driver")

    home.kill_daemon()
    asking.join(PATIENCE_S)
    assert len(errors) == 1
    with home.client() as client:
        assert "is being suspended" in client.why(job).text
    box.let_calls()
    until(lambda: state_of(home, job) is State.SUSPENDED, "it is suspended after all")
    assert until_settled(home, box, job) is State.SUSPENDED
