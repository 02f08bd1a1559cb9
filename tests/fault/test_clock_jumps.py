"""The clock is set forward or back, and old jobs are removed while the daemon is killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from fault.clock import Clock
from patience import until
from stoker.client.client import Client
from stoker.errors import StokerError
from stoker.wire import NewJob, Remove

if TYPE_CHECKING:
    from fault.home import Home
    from fault.work import Work

DAY_S = 86400


@pytest.fixture
def clock(work: Work, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that can be set."""
    clock = Clock(work.folder)
    for name, value in clock.env.items():
        monkeypatch.setenv(name, value)
    return clock


def run(home: Home, work: Work, command: str, **more: object) -> int:
    """Add a job; its id."""
    submission = msgspec.structs.replace(work.submission([NewJob(command=command)]), **more)
    with Client(home.path) as client:
        (added,) = client.add(submission)
    return added.first


def test_a_clock_set_forward_forgets_no_job(home: Home, work: Work, clock: Clock) -> None:
    home.start("--gpus", "0")
    job = run(home, work, "true")
    until(lambda: home.state(job) == "done", "the job is done")
    home.stop()
    clock.set(91 * DAY_S)

    home.start()

    until(lambda: "the clock" in home.log(), "old jobs have been looked for")
    assert home.state(job) == "done"
    notices = home.status().notices
    assert any("ahead" in text for text in notices), notices


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_set_back_makes_no_backoff_longer(
    home: Home, work: Work, clock: Clock, *, restarts: bool
) -> None:
    home.start("--gpus", "0")
    go = work.folder / "go"
    command = f"[ -e {go} ]"
    # As long as it takes until the clock is set, and no longer than a test should take.
    job = run(home, work, command, retries=1, backoff_s=3.0)
    until(lambda: home.state(job) == "delayed", "the job backs off")
    clock.set(-3650 * DAY_S)
    go.touch()
    if restarts:
        home.kill_daemon()
        home.start()

    until(lambda: home.state(job) == "done", "the job was tried again")


def test_files_of_removed_jobs_go_although_the_daemon_was_killed(
    home: Home, work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    died = tmp_path / "died"
    monkeypatch.setenv("STOKER_FAILPOINT", f"rm-committed:1:{died}")
    home.start("--gpus", "0")
    job = run(home, work, 'echo kept > "$STOKER_CHECKPOINT_DIR/state"; echo said')
    until(lambda: home.state(job) == "done", "the job is done")
    [state] = home.folder.rglob("checkpoints/**/state")
    [log] = home.folder.rglob(f"{job}.1.log")
    with pytest.raises(StokerError), Client(home.path) as client:
        client.rm(Remove(ids=str(job)))
    until(lambda: home.daemon() is None, "the daemon has died")
    assert died.exists()
    assert state.exists()

    home.status()  # starts the next daemon

    until(lambda: not (state.parent.exists() or log.exists()), "the files are gone")


def test_jobs_that_need_no_checkpoints_leave_no_folders(home: Home, work: Work) -> None:
    home.start("--gpus", "0")
    with Client(home.path) as client:
        client.add(work.submission([NewJob(command="true")] * 50, gpus=0))
        client.add(work.submission([NewJob(command='[ -d "$STOKER_CHECKPOINT_DIR" ]')]))
        again = work.submission([NewJob(command='[ -d "$STOKER_CHECKPOINT_DIR" ]')], gpus=0)
        client.add(msgspec.structs.replace(again, preemptible=True))
        *_, last = client.wait()
        assert last.left == 0
    assert {home.state(job) for job in range(1, 53)} == {"done"}
    names = [path.name for path in home.folder.glob("checkpoints/*/*")]
    assert len(names) <= 2
