"""Shell watchdog: which processes it ends, and when it ends itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from patience import until
from stoker.supervisor import lease_file, process_tree
from stoker.supervisor.shell_watchdog import ShellWatchdog

NAME = f"stoker-q-{os.getpid()}"
START = """
import sys
from stoker.supervisor.shell_watchdog import ShellWatchdog
print(ShellWatchdog(sys.argv[1], sys.argv[2]).pid, flush=True)
"""


@pytest.fixture
def lease(tmp_path: Path) -> str:
    """Return the path of a lease that has expired."""
    path = str(tmp_path / "lease_file")
    put_off(path, -1)
    return path


def put_off(path: str, seconds: float) -> None:
    lease_file.write(path, time.clock_gettime(time.CLOCK_BOOTTIME) + seconds)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(processes: ExitStack, **variables: str) -> subprocess.Popen[bytes]:
    """Start a process with these variables; it ends with the test."""
    process = subprocess.Popen(["/bin/sleep", "600"], env=variables)
    processes.callback(process.wait)
    processes.callback(process.kill)
    return process


def is_there(pid: int) -> bool:
    return process_tree.find_process(pid) is not None


def test_only_jobs_of_its_supervisor_are_ended(lease: str, processes: ExitStack) -> None:
    job = start(processes, STOKER_COOKIE=f"{NAME}:1.1")
    inner = start(processes, STOKER_COOKIE=f"stoker-other:1.1/{NAME}:12.3")
    finishing = start(processes, STOKER_COOKIE=f"{NAME}:1.2", STOKER_ON_CUT="finish")
    part = start(processes, STOKER_COOKIE=f"{NAME}:1.1", STOKER_PART="supervisor")
    foreign = start(processes, STOKER_COOKIE="stoker-q:1.1", NOTE=f"{NAME}:1.1")
    watchdog = ShellWatchdog(lease, NAME).pid
    try:
        assert (job.wait(20), inner.wait(20)) == (-9, -9)
        assert [each.poll() for each in (finishing, part, foreign)] == [None, None, None]
        assert is_there(watchdog)  # this process is its supervisor, and may start more
    finally:
        process_tree.send([watchdog], 9)
        os.waitpid(watchdog, 0)


def test_it_outlives_its_supervisor_while_there_are_jobs(lease: str, processes: ExitStack) -> None:
    job = start(processes, STOKER_COOKIE=f"{NAME}:1.1")
    put_off(lease, 2)
    started = subprocess.run(
        [sys.executable, "-c", START, lease, NAME], stdout=subprocess.PIPE, check=True
    )
    watchdog = int(started.stdout)
    assert is_there(watchdog)
    assert job.wait(20) == -9
    until(lambda: not is_there(watchdog), "it has ended")


@pytest.mark.parametrize("text", ["", "nonsense", "a b", "{boot} 9e9 0", "other 99999999999.0 0"])
def test_a_lease_that_cannot_be_read_has_expired(
    lease: str, processes: ExitStack, text: str
) -> None:
    Path(lease).write_text(text.format(boot=process_tree.boot_id()))
    job = start(processes, STOKER_COOKIE=f"{NAME}:1.1")
    watchdog = ShellWatchdog(lease, NAME).pid
    try:
        assert job.wait(20) == -9
    finally:
        process_tree.send([watchdog], 9)
        os.waitpid(watchdog, 0)
