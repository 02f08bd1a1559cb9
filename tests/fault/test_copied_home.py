"""A copy of a home is a home of its own, and leaves the original's jobs alone; a moved home stays itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault.home import Home, is_alive
from fault.ledger import CLEAN
from patience import until
from stoker.wire import NewJob, Reserve, Resume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fault.conftest import Tell
    from fault.work import Work

PATIENT = "echo begun; until [ -e {} ]; do sleep 0.02; done; exit 7"


@pytest.fixture
def go(work: Work) -> Path:
    """Return the file for which the original's job waits."""
    return work.folder / "go"


@pytest.fixture
def job(home: Home, work: Work, go: Path, tell: Tell) -> int:
    """Return a job that runs on the only GPU of a home; another one waits behind it."""
    tell("copied home", 1, CLEAN)
    home.start("--gpus", "0")
    with home.client() as client:
        commands = [NewJob(command=PATIENT.format(go)), NewJob(command="echo second; sleep 0.2")]
        (added,) = client.add(work.submission(commands))
        client.reserve(Reserve(gpus=1, for_s=3600.0))
    until(lambda: home.state(added.first) == "running", "the first job runs")
    return added.first


@pytest.fixture
def copy(home: Home, job: int, tmp_path: Path) -> Iterator[Home]:
    """Return a copy of that home, without a daemon yet."""
    assert job
    (tmp_path / "elsewhere").mkdir()
    copy = Home(tmp_path / "elsewhere")
    copy.folder.rmdir()
    subprocess.run(["cp", "-a", home.path, copy.path], check=True)
    yield copy
    copy.close()


def pid_of(home: Home, job: int) -> int:
    """The process of a running job."""
    (pid,) = [attempt.pid for attempt in home.live() if attempt.job == job]
    assert pid is not None
    return pid


def result(home: Home, job: int) -> tuple[str, int | None, str | None]:
    """How a job ended: state, exit code and reason."""
    with home.client() as client:
        found = client.show(job)
    return found.state.value, found.exit_code, found.reason


def test_a_daemon_on_a_copy_leaves_the_original_alone(
    home: Home, copy: Home, job: int, go: Path
) -> None:
    pid = pid_of(home, job)
    copy.start()

    state, exit_code, reason = result(copy, job)
    assert (state, exit_code) == ("lost", None)
    assert reason is not None
    assert home.path in reason
    with copy.client() as client, home.client() as original:
        assert client.reservations() == []
        assert [each.held for each in original.reservations()] == [["0"]]
        client.stop(kill=True)
    until(lambda: copy.daemon() is None, "the copy's daemon has stopped")

    assert is_alive(pid)
    go.touch()
    with home.client() as client:
        [*client.wait()]
    assert result(home, job)[:2] == ("failed", 7)
    assert result(home, job + 1)[:2] == ("done", 0)


def test_a_copy_starts_what_waits_only_when_it_is_told_to(
    home: Home, copy: Home, work: Work, job: int, go: Path
) -> None:
    copy.start()
    [notice] = [text for text in copy.status().notices if "copy" in text]
    assert home.path in notice
    assert "stoker resume --queue" in notice
    assert copy.state(job + 1) == "waiting"

    with copy.client() as client:
        client.resume(Resume(queue=True))
        (added,) = client.add(work.submission([NewJob(command="exit 3")]))
    with home.client() as client:
        assert client.show(job).state.value == "running"
    assert copy.state(added.first) == "waiting"  # the original's job has the GPU
    go.touch()
    with copy.client() as client:
        [*client.wait()]

    assert result(copy, added.first)[:2] == ("failed", 3)
    with home.client() as client:
        [*client.wait()]
    assert result(home, job)[:2] == ("failed", 7)


def test_a_copy_stays_the_same_home_over_a_restart(copy: Home) -> None:
    copy.start()
    with copy.client() as client:
        client.resume(Resume(queue=True))
    copy.stop()

    copy.start()

    assert not [text for text in copy.status().notices if "copy" in text]


def test_stopping_a_copy_without_a_daemon_claims_nothing(home: Home, copy: Home, job: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "stoker", "daemon", "stop", "--kill"],
        env={**os.environ, "STOKER_HOME": copy.path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "no daemon runs\n")
    assert is_alive(pid_of(home, job))


def test_a_moved_home_stays_itself(home: Home, job: int, tmp_path: Path, go: Path) -> None:
    home.stop()
    (tmp_path / "moved").mkdir()
    moved = Home(tmp_path / "moved")
    moved.folder.rmdir()
    shutil.move(home.path, moved.path)
    try:
        moved.start()
        assert moved.state(job) == "running"

        go.touch()
        with moved.client() as client:
            [*client.wait()]

        assert result(moved, job)[:2] == ("failed", 7)
        assert result(moved, job + 1)[:2] == ("done", 0)
        assert not [text for text in moved.status().notices if "copy" in text]
    finally:
        moved.close()
        home.folder.mkdir(mode=0o700)
