"""An attempt that uses more RAM than it may is killed with its whole tree, and its end says so."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from contract.executor_harness import Harness, alive
from contract.test_executor_orphans import kernel_tells_exits, kill_supervisor
from contract.test_executor_warm import launch as launch_warm
from contract.test_executor_warm import script, worker_of
from stoker.executors.contract import Ended, Launch, Lost

MIB = 1 << 20
LIMIT = 160 * MIB
# Starts a process in a session of its own that has word to allocate, as many MiB as the second line tells.
HOG = """
import os, sys, time
if os.fork():
    time.sleep(600)
os.setsid()
with open("pid", "w") as file:
    file.write(f"{os.getpid()}\\n")
with open("gate") as file:
    size = int(file.read())
block = bytearray(size << 20)
with open("done", "w") as file:
    file.write("done\\n")
time.sleep(600)
"""
WHOLE = """
import time
with open("gate") as file:
    size = int(file.read())
block = bytearray(size << 20)
with open("done", "w") as file:
    file.write("done\\n")
time.sleep(600)
"""


@pytest.fixture
def gate(real: Harness) -> Path:
    """The pipe at which jobs wait for a number of MiB."""
    path = real.work / "gate"
    os.mkfifo(path)
    return path


def launch(harness: Harness, text: str, mem_bytes: int = LIMIT) -> int:
    """Launch a script with a limit; returns the pid of its first process."""
    argv = [sys.executable, "-c", text]
    harness.executor.launch([Launch("1.1", (0,), argv, mem_bytes=mem_bytes)])
    return harness.started("1.1").pid


def test_a_tree_over_its_limit_is_killed_and_the_end_says_how_much_it_used(
    real: Harness, gate: Path
) -> None:
    first = launch(real, HOG)
    hidden = int(real.read("pid"))
    gate.write_text("300")
    ended = real.ended("1.1")

    assert ended.status == signal.SIGKILL
    assert LIMIT < ended.over_mem_bytes < 400 * MIB
    assert not alive([first, hidden])


def test_an_attempt_below_its_limit_is_left_alone(real: Harness, gate: Path) -> None:
    pid = launch(real, HOG)
    gate.write_text("50")
    real.read("done")
    real.sh("2.1", "exit 0", 1)
    real.ended("2.1")
    assert alive([pid])

    real.executor.kill("1.1")
    ended = real.ended("1.1")
    assert (ended.status, ended.over_mem_bytes) == (signal.SIGKILL, 0)


def test_a_warm_attempt_has_its_limit_too(real: Harness, gate: Path) -> None:
    launch_warm(real, "1.1", [script(real, WHOLE)], "json", mem_bytes=LIMIT)
    worker = worker_of(real)
    gate.write_text("300")
    ended = real.ended("1.1")

    assert ended.status == signal.SIGKILL
    assert ended.over_mem_bytes > LIMIT
    assert alive([worker])


def test_a_limit_outlives_the_supervisor(kept: Harness) -> None:
    gate = kept.work / "gate"
    os.mkfifo(gate)
    first = launch(kept, HOG)
    hidden = int(kept.read("pid"))
    kill_supervisor(kept)
    gate.write_text("300")

    # An old kernel does not tell the status of a process that another one has reaped.
    kept.until(lambda: kept.of(Ended) or kept.of(Lost))
    for ended in kept.of(Ended):
        assert (ended.status, ended.over_mem_bytes > LIMIT) == (signal.SIGKILL, True)
    assert bool(kept.of(Ended)) >= kernel_tells_exits()
    kept.until(lambda: not alive([first, hidden]))


def test_the_reason_of_a_kill_is_still_known_to_the_next_client(kept: Harness) -> None:
    gate = kept.work / "gate"
    os.mkfifo(gate)
    launch(kept, HOG)
    gate.write_text("300")
    ended = kept.ended("1.1")
    kept.reconnect()

    assert kept.ended("1.1") == ended
    kill_supervisor(kept)
    assert kept.ended("1.1") == ended


@pytest.mark.parametrize("supervisor", ["lives", "is killed"])
def test_a_limit_can_be_lifted_and_imposed_again(kept: Harness, supervisor: str) -> None:
    gate = kept.work / "gate"
    os.mkfifo(gate)
    first = launch(kept, HOG)
    hidden = int(kept.read("pid"))
    kept.executor.limit("1.1", 0)
    kept.reach()
    if supervisor == "is killed":
        kill_supervisor(kept)
    gate.write_text("300")
    kept.read("done")
    assert alive([first, hidden]) == {first, hidden}

    kept.executor.limit("1.1", LIMIT)
    kept.until(lambda: not alive([first, hidden]))


def test_the_next_supervisor_carries_out_what_a_killed_one_has_decided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    struck = tmp_path / "struck"
    monkeypatch.setenv("STOKER_FAILPOINT", f"supervisor-over-memory:1:{struck}")
    kept: Harness = request.getfixturevalue("kept")
    os.mkfifo(kept.work / "gate")
    first = launch(kept, HOG)
    hidden = int(kept.read("pid"))
    (kept.work / "gate").write_text("300")
    kept.until_quietly(struck.exists)
    assert alive([first, hidden]) == {first, hidden}

    kept.reports.clear()
    kept.until(lambda: kept.of(Ended) or kept.of(Lost))
    for ended in kept.of(Ended):
        assert (ended.status, ended.over_mem_bytes > LIMIT) == (signal.SIGKILL, True)
    assert bool(kept.of(Ended)) >= kernel_tells_exits()
    kept.until(lambda: not alive([first, hidden]))
