from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from stoker.supervisor import pidfd, process_tree


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def look(pid: int) -> process_tree.Process:
    seen = process_tree.find_process(pid)
    assert seen is not None
    return seen


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 15), (signal.SIGKILL, 9)])
def test_the_exit_status_of_a_zombie_can_be_read(
    sleeper: subprocess.Popen[bytes], signum: int, status: int
) -> None:
    ticks = look(sleeper.pid).ticks
    fd = os.pidfd_open(sleeper.pid)
    try:
        assert not pidfd.has_ended(fd)
        assert pidfd.exit_status(fd, sleeper.pid, ticks) is None
        os.kill(sleeper.pid, signum)
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert pidfd.has_ended(fd)
        assert pidfd.exit_status(fd, sleeper.pid, ticks) == status
        assert pidfd.exit_status(-1, sleeper.pid, ticks) == status
        assert pidfd.exit_status(-1, sleeper.pid, ticks + 1) is None
    finally:
        os.close(fd)


def test_an_unknown_exit_status_is_none(sleeper: subprocess.Popen[bytes]) -> None:
    ticks = look(sleeper.pid).ticks
    sleeper.kill()
    sleeper.wait()

    assert pidfd.exit_status(-1, sleeper.pid, ticks) is None


def test_a_process_that_reuses_a_pid_is_not_signalled(
    sleeper: subprocess.Popen[bytes],
) -> None:
    seen = look(sleeper.pid)
    pidfd.send([seen._replace(ticks=seen.ticks - 1), seen._replace(pid=1 << 22)], signal.SIGKILL)
    assert sleeper.poll() is None

    pidfd.send([seen], signal.SIGKILL)
    assert sleeper.wait(10) == -signal.SIGKILL
