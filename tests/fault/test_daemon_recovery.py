"""After crashes, reboots and upgrades: what still runs is known, and its limits and orders still count."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import stoker
from fault.home import is_alive, kill
from fault.ledger import CLEAN
from patience import until
from stoker.errors import StokerError
from stoker.supervisor.messages import PROTOCOL
from stoker.wire import Kill, NewJob

if TYPE_CHECKING:
    from pathlib import Path

    from fault.conftest import Tell
    from fault.home import Attempt, Home
    from fault.work import Work
    from stoker.wire import JobDetail

ANOTHER_BOOT = "00000000-1111-2222-3333-444444444444"


@pytest.fixture(autouse=True)
def _counted(tell: Tell) -> None:
    tell("reboot, upgrade, restart with orders and limits under way", 1, CLEAN)


def running(home: Home, count: int = 1) -> list[Attempt]:
    """The attempts on record as running, once there are so many."""

    def found() -> list[Attempt]:
        return [attempt for attempt in home.live() if attempt.pid is not None]

    until(lambda: len(found()) == count, f"{count} jobs run")
    return found()


def end(home: Home, job: int) -> JobDetail:
    """Wait for the end of everything; what has become of a job."""
    with home.client() as client:
        [*client.wait()]
        return client.show(job)


def crash(home: Home) -> None:
    """Kill daemon and supervisor."""
    home.kill_daemon()
    for pid in home.supervisors():
        kill(pid)


@pytest.mark.parametrize("retries", [0, 1])
def test_after_a_reboot_what_ran_is_lost_and_runs_again_only_if_it_may(
    home: Home, work: Work, retries: int
) -> None:
    home.start("--gpus", "0")
    line = f"echo $STOKER_ATTEMPT >> {work.folder}/ran; [ $STOKER_ATTEMPT = 2 ] || exec sleep 60"
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command=line)], retries=retries))
    (attempt,) = running(home)
    crash(home)
    kill(attempt.pid or 0)
    for path in home.folder.glob("supervisor-*.journal"):
        path.write_text(re.sub(r"(?m)^boot \S+", f"boot {ANOTHER_BOOT}", path.read_text()))

    job = end(home, added.first)

    assert [each.state.value for each in job.attempts] == ["lost", "done"][: retries + 1]
    assert job.attempts[0].reason == "the machine was restarted while it ran"
    assert (work.folder / "ran").read_text().split() == ["1", "2"][: retries + 1]


def test_a_process_of_this_boot_is_not_taken_for_a_job_of_another(home: Home, work: Work) -> None:
    home.start("--gpus", "0")
    with home.client() as client:
        (added,) = client.add(work.submission([work.hidden_job(60_000, 0)]))
    (attempt,) = running(home)
    until(lambda: work.events(), "it has dropped its marks")
    crash(home)
    for path in home.folder.glob("supervisor-*.journal"):
        path.write_text(re.sub(r"(?m)^boot \S+", f"boot {ANOTHER_BOOT}", path.read_text()))

    job = end(home, added.first)

    assert job.state.value == "lost"
    assert is_alive(attempt.pid or 0)
    kill(attempt.pid or 0)


@pytest.mark.parametrize("after_limit", [False, True], ids=["within", "beyond"])
def test_a_time_limit_counts_from_the_start_whoever_watches(
    home: Home, work: Work, after_limit: bool
) -> None:
    limit_s = 1.5
    home.start("--gpus", "0")
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command="exec sleep 60")], timeout_s=limit_s))
    (attempt,) = running(home)
    home.kill_daemon()
    began_s = (attempt.started_at_us or 0) / 1e6
    if after_limit:
        until(lambda: time.time() > began_s + limit_s, "its time is over")
        assert is_alive(attempt.pid or 0)

    job = end(home, added.first)

    assert (job.state.value, job.reason) == ("killed", f"over the time limit of {limit_s:g}s")
    assert job.attempt == 1
    assert job.ended_at is not None
    assert job.ended_at - began_s >= limit_s - 0.02
    if not after_limit:
        assert job.ended_at - began_s < limit_s + 1.5


def test_a_kill_that_is_on_record_is_carried_out_by_the_next_daemon(
    home: Home, work: Work, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    struck = tmp_path / "struck"
    monkeypatch.setenv("STOKER_FAILPOINT", f"kill-committed:1:{struck}")
    home.start("--gpus", "0")
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command="exec sleep 60")]))
        (attempt,) = running(home)
        with pytest.raises(StokerError):
            client.kill(Kill(ids=str(added.first)))
    assert struck.exists()
    assert is_alive(attempt.pid or 0)

    job = end(home, added.first)

    assert (job.state.value, job.reason) == ("killed", "killed by request")
    assert not is_alive(attempt.pid or 0)


def test_an_exit_status_outlives_the_daemon(home: Home, work: Work) -> None:
    home.start("--gpus", "0")
    go = work.folder / "go"
    line = f"until [ -e {go} ]; do sleep 0.01; done; exit 7"
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command=line)]))
    (attempt,) = running(home)
    home.kill_daemon()
    go.touch()
    until(lambda: not is_alive(attempt.pid or 0), "it has ended")

    job = end(home, added.first)

    assert (job.state.value, job.exit_code, len(job.attempts)) == ("failed", 7, 1)


def test_gpus_that_are_cut_anew_are_not_given_away_while_a_job_lives_on_them(
    home: Home, work: Work
) -> None:
    home.start("--gpus", "0+1,2")
    go = work.folder / "go"
    line = f"until [ -e {go} ]; do sleep 0.01; done"
    with home.client() as client:
        client.add(work.submission([NewJob(command=line)]))
        running(home)
        client.stop()
    until(lambda: home.daemon() is None, "the daemon has stopped")
    home.start("--gpus", "0,1,2")
    line = f"[ $CUDA_VISIBLE_DEVICES = 2 ] || [ -e {go} ]"
    with home.client() as client:
        (added,) = client.add(work.submission([NewJob(command=line)] * 8))
        until(
            lambda: len([each for each in home.attempts() if each.state == "done"]) == 8,
            "they have run on the GPU that is free",
        )
        go.touch()
        [*client.wait()]

    assert {each.slots for each in home.attempts() if each.job >= added.first} == {"2"}


def other_version(folder: Path, protocol: int) -> str:
    """A copy of Stoker that calls itself another version, and speaks this protocol with its supervisor."""
    copy = folder / "other"
    shutil.copytree(os.path.dirname(stoker.__file__), copy / "stoker")
    for name, constant, value in (
        ("__init__.py", "__version__", '"99.0"'),
        ("supervisor/messages.py", "PROTOCOL", str(protocol)),
    ):
        module = copy / "stoker" / name
        text, count = re.subn(rf"(?m)^{constant} = .*", f"{constant} = {value}", module.read_text())
        assert count == 1
        module.write_text(text)
    return str(copy)


def start_version(path: str) -> None:
    """Start the daemon of a copy of Stoker that is found by PYTHONPATH."""
    words = [sys.executable, "-m", "stoker", "daemon", "start", "--gpus", "0"]
    subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, cwd="/", check=True)


def test_a_daemon_of_another_version_takes_over_a_supervisor_that_speaks_its_protocol(
    home: Home, work: Work, tmp_path: Path
) -> None:
    start_version(other_version(tmp_path, PROTOCOL))
    go = work.folder / "go"
    with home.client() as client:
        line = f"until [ -e {go} ]; do sleep 0.01; done; exit 7"
        (added,) = client.add(work.submission([NewJob(command=line)]))
        (attempt,) = running(home)
        (supervisor,) = home.supervisors()
        client.stop()
    until(lambda: home.daemon() is None, "the daemon has stopped")

    home.start()
    assert home.status().supervisor_pids == [supervisor]
    go.touch()
    job = end(home, added.first)

    assert (job.exit_code, len(job.attempts)) == (7, 1)
    assert job.attempts[0].pid == attempt.pid


def test_a_supervisor_of_another_protocol_version_keeps_its_jobs(
    home: Home, work: Work, tmp_path: Path
) -> None:
    start_version(other_version(tmp_path, PROTOCOL + 1))
    go = work.folder / "go"
    with home.client() as client:
        line = f"until [ -e {go} ]; do sleep 0.01; done; exit 7"
        (added,) = client.add(work.submission([NewJob(command=line)]))
        (attempt,) = running(home)
        client.stop()
    until(lambda: home.daemon() is None, "the daemon has stopped")

    with pytest.raises(StokerError, match="wait until they have ended"):
        home.start()
    assert is_alive(attempt.pid or 0)
    go.touch()
    until(lambda: not home.supervisors(), "the old supervisor has gone")
    job = end(home, added.first)

    assert (job.exit_code, len(job.attempts)) == (7, 1)
