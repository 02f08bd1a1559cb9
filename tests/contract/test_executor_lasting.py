"""What an executor that outlives its client remembers for the next one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.executor_harness import FOREVER, Harness
from stoker.engine.poll_driver import boot_clock_s
from stoker.executors.contract import (
    Ended,
    Launch,
    Refused,
    Started,
    Synced,
    Unheld,
)
from stoker.executors.daemon_executor import DaemonExecutor
from stoker.gpus.lease_holder import holder

# A client that launches what it is told, says so, and waits to be killed.
CLIENT = """
import json, os, select, sys
from stoker.core.slot import Slot
from stoker.executors.contract import Held, Launch, Started
from stoker.executors.daemon_executor import DaemonExecutor
given = json.loads(sys.argv[1])
executor = DaemonExecutor(**given["paths"])
executor.define_slots([Slot(0, ("0",), ("GPU-0",)), Slot(1, ("2", "3"), ("GPU-2", "GPU-3"))])
executor.define_context(0, dict(os.environ), given["cwd"], "/bin/sh")
executor.hold(0)
executor.hold(1)
reports = []
while sum(isinstance(report, Held) for report in reports) < 2:
    select.select([executor], [], [])
    reports += executor.observe()
launches = [Launch(key, tuple(slots), ["/bin/sh", "-c", text]) for key, slots, text in given["jobs"]]
executor.launch(launches)
while sum(isinstance(report, Started) for report in reports) < given["starts"]:
    select.select([executor], [], [])
    reports += executor.observe()
print("ready", flush=True)
if given["last"]:
    executor.launch([Launch(given["last"], (), ["/bin/sh", "-c", "exit 9"])])
    os.kill(os.getpid(), 9)
sys.stdin.read()
"""


def test_a_new_supervisor_reports_that_it_has_no_attempts(lasting: Harness) -> None:
    assert lasting.reports[0] == Synced(frozenset(), fresh=True)


def test_attempts_run_without_a_client_and_are_reported_to_the_next(lasting: Harness) -> None:
    lasting.sh("1.1", FOREVER)
    started = lasting.started("1.1")

    synced = lasting.reconnect()
    assert synced == Synced(frozenset({"1.1"}), fresh=lasting.is_far)
    assert lasting.reports == [started, synced]
    lasting.executor.kill("1.1")
    assert lasting.ended("1.1").status == signal.SIGKILL


def test_an_end_is_reported_to_every_client_until_one_acknowledges_it(lasting: Harness) -> None:
    lasting.sh("1.1", "exit 7")
    ended = lasting.ended("1.1")
    for _ in range(2):
        assert lasting.reconnect().keys == {"1.1"}
        assert lasting.of(Ended) == [ended]
        assert lasting.of(Started)[0].key == "1.1"
    lasting.executor.acknowledge(["1.1", "9.9"])

    assert lasting.reconnect().keys == frozenset()


def test_a_running_attempt_cannot_be_acknowledged(lasting: Harness) -> None:
    lasting.sh("1.1", FOREVER)
    lasting.started("1.1")
    lasting.executor.acknowledge(["1.1"])

    assert lasting.reconnect().keys == {"1.1"}


def test_waiting_attempts_are_dropped_with_their_client(lasting: Harness) -> None:
    lasting.sh("1.1", FOREVER)
    lasting.sh("2.1", "exit 0")
    lasting.started("1.1")

    assert lasting.reconnect().keys == {"1.1"}
    lasting.executor.kill("1.1")
    lasting.ended("1.1")
    lasting.reach()
    assert [report.key for report in lasting.of(Started)] == ["1.1"]


def test_a_known_attempt_is_not_started_again(lasting: Harness) -> None:
    lasting.sh("1.1", FOREVER)
    lasting.sh("2.1", "exit 0", 1)
    lasting.ended("2.1")
    lasting.reconnect()
    lasting.executor.hold(0)
    lasting.executor.hold(1)
    lasting.sh("1.1", "exit 0")
    lasting.sh("2.1", "exit 0", 1)
    lasting.reach()
    lasting.executor.kill("1.1")
    assert lasting.ended("1.1").status == signal.SIGKILL

    assert [report.key for report in lasting.of(Started)] == ["1.1", "2.1"]
    assert [report.key for report in lasting.of(Ended)] == ["2.1", "1.1"]


def test_unused_leases_are_released_when_the_client_is_gone(kept: Harness) -> None:
    kept.sh("1.1", FOREVER, 1)
    kept.started("1.1")
    kept.reconnect()
    assert holder("GPU-0") is None
    assert holder("GPU-2") is not None
    assert holder("GPU-3") is not None

    kept.executor.kill("1.1")
    kept.ended("1.1")
    kept.until(lambda: holder("GPU-2") is None)
    assert holder("GPU-3") is None


def test_reserved_leases_are_kept_without_a_client_until_their_time(kept: Harness) -> None:
    kept.executor.reserve({"GPU-0": boot_clock_s() + 600, "GPU-2": boot_clock_s() - 1})
    kept.reach()
    kept.reconnect()
    assert holder("GPU-0") is not None
    kept.until(lambda: holder("GPU-2") is None)
    assert holder("GPU-3") is None

    kept.executor.reserve({"GPU-0": boot_clock_s() + 0.3})
    kept.until(lambda: holder("GPU-0") is None)


def test_leases_that_are_no_longer_reserved_are_released_without_a_client(kept: Harness) -> None:
    kept.executor.reserve({"GPU-0": boot_clock_s() + 600})
    kept.executor.reserve({})
    kept.reach()
    kept.reconnect()
    assert holder("GPU-0") is None


def test_leases_of_an_earlier_clients_job_pass_to_the_client_that_holds_them(kept: Harness) -> None:
    kept.sh("1.1", FOREVER, 1)
    kept.started("1.1")
    kept.reconnect()
    kept.executor.hold(1)
    kept.executor.release(1, ["GPU-2"])  # in vain: a job needs it
    kept.reach()
    assert holder("GPU-2") is not None

    kept.executor.kill("1.1")
    kept.ended("1.1")
    kept.reach()
    assert holder("GPU-2") is None
    assert holder("GPU-3") is not None


def test_a_slot_passes_on_the_leases_that_are_held_now(
    kept: Harness,
) -> None:
    kept.sh("1.1", "exit 0", 1, 0)
    assert kept.ended("1.1").status == 0
    for round_ in range(3):
        kept.executor.release(1, ["GPU-3"])
        kept.executor.release(0, ["GPU-0"])
        kept.executor.hold(1)
        kept.executor.hold(0)
        key = f"2.{round_ + 1}"
        kept.sh(key, "ls -l /proc/self/fd | grep -c 'gpu-GPU-[023]' > count", 1, 0)
        assert kept.ended(key).status == 0
        assert kept.read("count") == "3\n"


@pytest.fixture
def paths(surroundings: Path) -> dict[str, Any]:
    folder = surroundings.parent
    return {
        "name": "kept-client",
        "socket": str(folder / "supervisor.sock"),
        "journal": str(folder / "journal"),
        "log": str(folder / "supervisor.log"),
    }


def start_client(
    paths: dict[str, Any],
    work: Path,
    jobs: list[tuple[str, list[int], str]],
    starts: int,
    last: str,
) -> subprocess.Popen[str]:
    given = {"paths": paths, "cwd": str(work), "jobs": jobs, "starts": starts, "last": last}
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, json.dumps(given)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def test_exit_statuses_are_known_after_the_client_was_killed(
    surroundings: Path, paths: dict[str, Any]
) -> None:
    jobs = [
        ("1.1", [], "exit 7"),
        ("2.1", [], "kill -9 $$"),
        ("3.1", [], "read x < fifo; exit 3"),
        ("4.1", [0], "read x < fifo; kill -11 $$"),
        ("5.1", [0], "exit 0"),
        ("6.1", [], "exit 0"),
    ]
    os.mkfifo(surroundings / "fifo")
    client = start_client(paths, surroundings, jobs, 5, "")
    client.kill()
    with client:
        pass
    # Both read the one pipe, and end while no client is there. It stays open for the later one.
    pipe = os.open(surroundings / "fifo", os.O_RDWR)
    os.write(pipe, b"go\n" * 200)

    executor = DaemonExecutor(**paths)
    harness = Harness(executor, surroundings, lambda _key: lambda: None)
    try:
        for key in ("1.1", "2.1", "3.1", "4.1", "6.1"):
            harness.ended(key)
        statuses = {report.key: report.status for report in harness.of(Ended)}
        assert statuses == {"1.1": 7 << 8, "2.1": 9, "3.1": 3 << 8, "4.1": 11, "6.1": 0}
        assert len(harness.of(Ended)) == 5
    finally:
        executor.stop(kill=True)
        executor.close()
        os.close(pipe)


def test_the_last_orders_of_a_client_are_executed_before_the_next_is_served(
    surroundings: Path, paths: dict[str, Any]
) -> None:
    """A daemon that is killed right after it asked for a start has committed that start."""
    with start_client(paths, surroundings, [("1.1", [0], FOREVER)], 1, "2.1"):
        executor = DaemonExecutor(**paths)
    harness = Harness(executor, surroundings, lambda _key: lambda: None)
    try:
        assert harness.synced().keys == {"1.1", "2.1"}
        assert harness.ended("2.1").status == 9 << 8
    finally:
        executor.stop(kill=True)
        executor.close()


def test_a_refusal_is_reported_again_with_its_reason(kept: Harness) -> None:
    kept.sh("1.1", "exit 0", log=kept.work / "missing" / "a log")
    refused = kept.refused("1.1")

    assert kept.reconnect().keys == {"1.1"}
    assert kept.of(Refused) == [refused]
    kept.executor.acknowledge(["1.1"])
    assert kept.reconnect().keys == frozenset()


def test_contexts_and_composites_need_not_be_defined_again_after_a_new_start(kept: Harness) -> None:
    assert isinstance(kept.executor, DaemonExecutor)
    kept.executor.define_context(4, {"PATH": os.environ["PATH"], "A": "4"}, "/", "/bin/sh")
    words = ["/bin/sh", "-c", "exit $A"]
    kept.executor.launch([Launch("1.1", (0, 1), words, context=4)])
    kept.ended("1.1")
    kept.reports.clear()
    os.kill(kept.executor.pids[0], signal.SIGKILL)
    assert kept.synced().fresh
    kept.executor.hold(0)
    kept.executor.hold(1)
    kept.executor.launch([Launch("2.1", (0, 1), words, context=4)])

    assert kept.ended("2.1").status == 4 << 8
    assert kept.of(Unheld) == []
