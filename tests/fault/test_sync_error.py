"""The disk reports an error when the database is to be made durable (fdatasync fails with EIO)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from patience import until
from stoker.client.client import Client
from stoker.wire import NewJob

if TYPE_CHECKING:
    from fault.home import Home
    from fault.work import Work

# Fails to make a database's log durable while the file $FAULTY_DISK exists.
SHIM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    char link[64], path[4096];
    const char *flag = getenv("FAULTY_DISK");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (flag && access(flag, F_OK) == 0 && length > 4 && memcmp(path + length - 4, "-wal", 4) == 0) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_fdatasync, fd);
}
"""


@pytest.fixture
def fault(work: Work, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that makes the disk faulty for daemons that are started from now on."""
    library, fault = work.folder / "faulty.so", work.folder / "faulty"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=SHIM, text=True, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("FAULTY_DISK", str(fault))
    return fault


def stoker(work: Work, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a verb, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "stoker", *words],
        cwd=work.folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_add_says_that_the_job_was_added_and_may_not_last(
    home: Home, work: Work, fault: Path
) -> None:
    home.start("--gpus", "0")
    daemon = home.daemon()
    fault.touch()

    ended = stoker(work, "add", "exit 3")

    assert ended.returncode == 0
    assert ended.stdout == "added job 1\n"
    assert "Input/output error" in ended.stderr
    assert "power" in ended.stderr
    assert "again" not in ended.stderr
    with Client(home.path) as client:
        [*client.wait()]
        assert client.show(1).exit_code == 3
        assert [job.id for job in client.jobs()] == [1]
    assert home.daemon() == daemon


def test_a_repeated_request_is_one_job(home: Home, work: Work, fault: Path) -> None:
    home.start("--gpus", "0")
    fault.touch()
    submission = work.submission([NewJob(command="true")])
    with Client(home.path) as client:
        (first,) = client.add(submission)
        (second,) = client.add(submission)

    assert (first.first, first.repeated) == (1, False)
    assert (second.first, second.repeated) == (1, True)
    assert first.notice is not None


def test_other_verbs_do_what_they_say_and_warn(home: Home, work: Work, fault: Path) -> None:
    home.start("--gpus", "0")
    stoker(work, "add", "sleep 600")
    fault.touch()

    ended = stoker(work, "kill", "1")

    assert ended.returncode == 0
    assert "Input/output error" in ended.stderr
    until(lambda: home.state(1) == "killed", "the job was killed")


def test_the_daemon_tells_of_the_error_and_of_its_end(home: Home, work: Work, fault: Path) -> None:
    home.start("--gpus", "0")
    fault.touch()
    stoker(work, "add", "true")
    assert any("Input/output error" in text for text in home.status().notices)

    fault.unlink()

    until(lambda: any("durable again" in text for text in home.status().notices), "it is told")
    assert stoker(work, "add", "true").stderr == ""


def test_a_foreground_run_ends_with_its_true_code_and_warns(
    home: Home, work: Work, fault: Path
) -> None:
    ended = stoker(work, "run", "--gpus", "0", text=f"touch {fault}; sleep 1.5; exit 3\n")

    assert "Input/output error" in ended.stderr
    assert ended.returncode == 1
    assert "exit 3" in ended.stdout + ended.stderr
    assert os.listdir(home.folder / "runs")
