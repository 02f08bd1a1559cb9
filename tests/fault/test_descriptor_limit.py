"""A low limit of open files: jobs run with it, and hold the leases of their GPUs."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING

import pytest

from stoker.gpus.lease import Lease, Lock
from stoker.supervisor.leases import Leases, Unavailable
from stoker.supervisor.slot_queues import SlotQueue
from stoker.wire import NewJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Stoker
    from fault.home import Home
    from fault.work import Work

FEW = 64


@contextlib.contextmanager
def limit(count: int) -> Iterator[None]:
    """Let this process, and what it starts, have so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_run_with_few_descriptors_runs_gpu_jobs(stoker: Stoker) -> None:
    command = "ulimit -n >> limits; ls -l /proc/self/fd >> open\n"
    with limit(FEW):
        ended = stoker.run(stoker.file("jobs.txt", command * 4), "--gpus", "0+1,2+3")

    assert ended.code == 0, ended
    assert stoker.read("limits") == [str(FEW)] * 4
    assert sum("gpu-" in line for line in stoker.read("open")) == 8


def test_a_daemon_with_few_descriptors_runs_gpu_jobs(home: Home, work: Work) -> None:
    with limit(FEW):
        home.start("--gpus", "0,1,2,3")
    jobs = [NewJob(command="ulimit -n >> limits")] * 8
    with home.client() as client:
        client.add(work.submission(jobs, gpus=2))
        [*client.wait()]

    assert [attempt.state for attempt in home.attempts()] == ["done"] * 8
    assert (work.folder / "limits").read_text().split() == [str(FEW)] * 8


@pytest.mark.parametrize("first", [100, 198, 199, 200, 201, 400])
def test_a_job_inherits_every_lease_whatever_numbers_they_have(tmp_path: Path, first: int) -> None:
    """With many jobs of a killed supervisor, the descriptors of leases have high numbers."""
    keys = [f"gpu{number}" for number in range(4)]
    leases = Leases({}, print)
    for number, key in enumerate(keys):
        opened = os.open(tmp_path / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fd = os.dup2(opened, first + number, inheritable=False)
        os.close(opened)
        found = os.fstat(fd)
        lock = Lock(fd, str(tmp_path / key), (found.st_dev, found.st_ino))
        leases.held[key] = Lease(key, [lock])
    slot = SlotQueue({}, keys)
    leases.fit([slot])
    try:
        words = ["/bin/sh", "-c", f"ls -l /proc/self/fd > {tmp_path}/open"]
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=slot.lease_actions)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        leases.release(keys)

    opened_by_job = (tmp_path / "open").read_text()
    assert [key for key in keys if f"{tmp_path}/{key}\n" in opened_by_job] == keys


def test_too_few_descriptors_are_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_LEASE_DIR", str(tmp_path))
    with limit(3):
        found = Leases({}, print).take(["gpu"])

    assert found == Unavailable(
        "gpu",
        "too many open files: the limit is 3; raise it with `ulimit -n 1024`, then restart Stoker",
    )
