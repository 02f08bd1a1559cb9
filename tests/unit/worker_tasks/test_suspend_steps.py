"""Steps of a suspension over a driver that is a Python object: what it does is what a test says."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import until
from stoker.engine.suspend_helper import HelperOrder
from stoker.errors import ConflictError
from stoker.gpus.cuda_checkpoint import CheckpointDriver, CheckpointError, ProcessState
from stoker.machine import Memory
from stoker.worker_tasks import suspend as steps

GIB = 1 << 30
RUNNING, LOCKED, SAVED, FAILED = ProcessState


class Driver(CheckpointDriver):
    """A driver with these processes; calls in `refused` fail."""

    def __init__(self, states: dict[int, ProcessState]) -> None:
        self.states = states
        self.calls: list[str] = []
        self.refused: set[str] = set()

    def state(self, pid: int) -> ProcessState | None:
        return self.states.get(pid)

    def lock(self, pid: int, _timeout_ms: int) -> None:
        self._call("lock", pid, LOCKED)

    def checkpoint(self, pid: int) -> None:
        self._call("checkpoint", pid, SAVED)

    def restore(self, pid: int) -> None:
        self._call("restore", pid, LOCKED)

    def unlock(self, pid: int) -> None:
        self._call("unlock", pid, RUNNING)

    def _call(self, name: str, pid: int, to: ProcessState) -> None:
        self.calls.append(name)
        if name in self.refused:
            raise CheckpointError(f"the driver could not {name} process {pid}")
        self.states[pid] = to


@pytest.fixture
def pid() -> Iterator[int]:
    """Return the pid of a process that stands for a job."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True) as process:
        yield process.pid
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def child(pid: int) -> int:
    """Return the pid of the job's second process."""
    return int(until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()))


@pytest.fixture(autouse=True)
def ram(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 GiB of host RAM are available, and there is no NVML."""
    monkeypatch.setattr(steps, "read_memory", lambda: Memory(8 * GIB, 4 * GIB))
    monkeypatch.setattr(steps, "open_driver", lambda: None)


def order(pid: int, held: int, **more: int) -> HelperOrder:
    return HelperOrder(job=7, root_pid=pid, cookie="none", held_bytes={"GPU-0": held}, **more)


def test_a_job_that_does_not_fit_into_the_available_ram_is_not_touched(pid: int) -> None:
    driver = Driver({pid: RUNNING})
    with pytest.raises(ConflictError, match=r"needs 6.0 GiB of host RAM .* and 4.0 GiB are"):
        steps.suspend(driver, order(pid, 5 * GIB))
    assert driver.calls == []


def test_a_job_that_is_in_host_ram_already_needs_no_more(pid: int) -> None:
    driver = Driver({pid: SAVED})
    steps.suspend(driver, order(pid, 5 * GIB))
    assert driver.calls == []


def test_a_process_that_the_driver_lost_is_told(pid: int) -> None:
    with pytest.raises(ConflictError, match=f"lost the GPU memory of process {pid}"):
        steps.suspend(Driver({pid: FAILED}), order(pid, GIB))


@pytest.mark.parametrize("state", [LOCKED, SAVED])
def test_what_a_killed_helper_began_is_undone_if_the_rest_does_not_fit(
    pid: int, child: int, state: ProcessState
) -> None:
    driver = Driver({pid: state, child: RUNNING})
    with pytest.raises(ConflictError, match="host RAM"):
        steps.suspend(driver, order(pid, 5 * GIB))
    assert driver.states == {pid: RUNNING, child: RUNNING}


def test_jobs_that_are_being_suspended_at_the_same_time_count(pid: int) -> None:
    with pytest.raises(
        ConflictError, match=r"1\.0 GiB are available beside the jobs that are being"
    ):
        steps.suspend(Driver({pid: RUNNING}), order(pid, GIB, others_bytes=3 * GIB))


class TestCheck:
    """Of a job that is recorded as suspended, by the daemon that starts next."""

    def test_leaves_alone_what_is_in_host_ram(self, pid: int) -> None:
        driver = Driver({pid: SAVED})
        assert steps.check(driver, order(pid, 5 * GIB)).held_bytes == {}
        assert driver.calls == []

    @pytest.mark.parametrize(
        ("state", "calls"), [(RUNNING, ["lock", "checkpoint"]), (LOCKED, ["checkpoint"])]
    )
    def test_suspends_what_the_driver_says_is_not(
        self, pid: int, state: ProcessState, calls: list[str]
    ) -> None:
        driver = Driver({pid: state})
        assert steps.check(driver, order(pid, GIB)).held_bytes == {"GPU-0": GIB}
        assert driver.calls == calls

    def test_restores_nothing_if_the_driver_refuses(self, pid: int) -> None:
        driver = Driver({pid: RUNNING})
        driver.refused = {"checkpoint"}
        with pytest.raises(ConflictError, match="its memory is still on the GPU"):
            steps.check(driver, order(pid, GIB))
        assert driver.calls == ["lock", "checkpoint"]
