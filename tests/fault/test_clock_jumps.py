"""The clock is set forward or back, and old jobs are removed while the daemon is killed."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from patience import until
from stoker.client.client import Client
from stoker.errors import StokerError
from stoker.wire import NewJob, Remove

if TYPE_CHECKING:
    from fault.home import Home
    from fault.work import Work

DAY_S = 86400
# Moves the time of day by as many seconds as the file $CLOCK_OFFSET says; other clocks stay.
SHIM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    long seconds = 0;
    const char *path = getenv("CLOCK_OFFSET");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && result == 0) now->tv_sec += offset();
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The time of day of daemons that are started from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Set the clock to so many seconds from the true time."""
        new = self._path.with_suffix(".new")
        new.write_text(str(offset_s))
        new.rename(self._path)


@pytest.fixture
def clock(work: Work, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a clock that can be set."""
    library, offset = work.folder / "clock.so", work.folder / "offset"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=SHIM, text=True, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("CLOCK_OFFSET", str(offset))
    return Clock(offset)


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
