"""Attempts with limits in a cgroup that the user may divide: the kernel enforces them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cgroup_box
from contract.executor_harness import Harness, alive
from contract.test_executor_memory import HOG, LIMIT, MIB, WHOLE
from contract.test_executor_orphans import kernel_tells_exits, kill_supervisor
from contract.test_executor_warm import launch as launch_warm
from contract.test_executor_warm import script
from stoker.executors.contract import Ended, Launch, Lost

GROUP = f"stoker-contract-{os.getpid()}"


@pytest.fixture(autouse=True)
def box() -> Iterator[Path]:
    """A cgroup whose leaf this process is in, and so the supervisors that it starts."""
    with cgroup_box.made(GROUP) as folder:
        leaf = folder / "leaf"
        leaf.mkdir()
        cgroup_box.enter(leaf)
        yield folder


@pytest.fixture
def gate(box: Path, real: Harness) -> Path:
    path = real.work / "gate"
    os.mkfifo(path)
    return path


def launch(harness: Harness, text: str, **limits: int) -> int:
    argv = [sys.executable, "-c", text]
    harness.executor.launch([Launch("1.1", (0,), argv, **limits)])  # type: ignore[arg-type]
    return harness.started("1.1").pid


def jobs(box: Path) -> list[Path]:
    return [each for each in box.iterdir() if each.name.startswith("job-")]


def test_a_tree_over_its_ram_is_killed_by_the_kernel_and_the_end_says_so(
    box: Path, gate: Path, real: Harness
) -> None:
    first = launch(real, HOG, mem_bytes=LIMIT)
    hidden = int(real.read("pid"))
    (group,) = jobs(box)
    assert cgroup_box.members(group) == {first, hidden}
    gate.write_text("300")
    ended = real.ended("1.1")

    assert ended.status == signal.SIGKILL
    assert LIMIT - 4 * MIB < ended.over_mem_bytes <= LIMIT
    assert not alive([first, hidden])
    assert jobs(box) == []


def test_supervisors_stay_out_of_the_cgroups_of_attempts(
    box: Path, gate: Path, real: Harness
) -> None:
    launch(real, HOG, mem_bytes=LIMIT, cpus=1)
    (group,) = jobs(box)
    assert (group / "cpu.max").read_text() == "100000 100000\n"
    for pid in real.executor.pids:  # type: ignore[attr-defined]
        assert cgroup_box.cgroup_of(pid) == f"/{GROUP}/leaf"


def test_a_warm_attempt_is_in_its_cgroup_before_it_runs(
    box: Path, gate: Path, real: Harness
) -> None:
    name = script(real, "import os\nos.write(1, open('/proc/self/cgroup', 'rb').read())\n" + WHOLE)
    log = launch_warm(real, "1.1", [name], "json", mem_bytes=LIMIT)
    real.until(lambda: log.exists() and ":1.1" in log.read_text())
    gate.write_text("300")
    ended = real.ended("1.1")

    assert ended.status == signal.SIGKILL
    assert 0 < ended.over_mem_bytes <= LIMIT


def test_an_attempt_without_limits_has_no_cgroup(box: Path, real: Harness) -> None:
    real.sh("1.1", "exit 3")
    assert real.ended("1.1").status == 3 << 8
    assert jobs(box) == []


def test_an_attempt_that_cannot_start_leaves_no_cgroup(box: Path, real: Harness) -> None:
    log = str(real.work / "missing" / "log")
    real.executor.launch([Launch("1.1", (0,), ["/bin/true"], log, mem_bytes=LIMIT)])
    real.refused("1.1")
    assert jobs(box) == []


def test_the_next_supervisor_knows_why_the_kernel_killed_an_attempt(
    box: Path, kept: Harness
) -> None:
    gate = kept.work / "gate"
    os.mkfifo(gate)
    launch(kept, HOG, mem_bytes=LIMIT)
    kept.read("pid")
    kill_supervisor(kept)
    gate.write_text("300")

    # An old kernel does not tell the status of a process that another one has reaped.
    kept.until(lambda: kept.of(Ended) or kept.of(Lost))
    for ended in kept.of(Ended):
        assert (ended.status, 0 < ended.over_mem_bytes <= LIMIT) == (signal.SIGKILL, True)
    assert bool(kept.of(Ended)) >= kernel_tells_exits()
    kept.until(lambda: jobs(box) == [])


def test_a_limit_can_be_lifted_and_imposed_again(box: Path, kept: Harness) -> None:
    gate = kept.work / "gate"
    os.mkfifo(gate)
    launch(kept, WHOLE, mem_bytes=LIMIT)
    kept.executor.limit("1.1", 0)
    kept.reach()
    (group,) = jobs(box)
    assert (group / "memory.max").read_text() == "max\n"
    gate.write_text("300")
    kept.read("done")

    kept.executor.limit("1.1", LIMIT)
    assert kept.ended("1.1").over_mem_bytes > 0
