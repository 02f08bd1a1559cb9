"""`stoker run` and its supervisor killed in the same moment: no process outlives them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fault.ledger import CLEAN
from patience import AT_ONCE_S
from scale import LONG

if TYPE_CHECKING:
    from conftest import Stoker
    from fault.conftest import Tell

ROUNDS = 20 if LONG else 3
# Trees that are deaf to signals, in and out of their group and session, with and without environment.
TREES = {
    "in its group": "(sh -c '{} :' &);",
    "in a session of its own": "(setsid sh -c '{} :' &);",
    "without its environment": "(env -i PATH=$PATH setsid sh -c '{} :' &);",
}
DEAF = 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 0.1; done;'


@pytest.mark.parametrize("victims", ["both", "supervisor first", "run first"])
def test_nothing_outlives_a_run_that_is_killed_with_its_supervisor(
    stoker: Stoker, tell: Tell, victims: str
) -> None:
    line = " ".join(tree.format(DEAF) for tree in TREES.values()) + f" {DEAF}"
    survivors: list[str] = []
    for _ in range(ROUNDS):
        process = stoker.start("run", "--gpus", "0", stoker.file("jobs.txt", f"{line}\n"))
        stoker.until(lambda: len(stoker.read("pids")) == len(TREES) + 1, "the trees have grown")
        pids = [int(pid) for pid in stoker.read("pids")]
        supervisor = stoker.supervisor(process)
        if victims == "both":  # neither can do anything between the two kills
            os.kill(supervisor, signal.SIGSTOP)
            os.kill(process.pid, signal.SIGSTOP)
        order = [supervisor, process.pid] if victims != "run first" else [process.pid, supervisor]
        for pid in order:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        left = [pid for pid in pids if stoker.is_alive(pid)]
        if left:
            stoker.until(
                lambda: not any(map(stoker.is_alive, pids)),  # noqa: B023
                "all trees are gone",
                deadline_s=AT_ONCE_S,
            )
        survivors += [f"process {pid}" for pid in pids if stoker.is_alive(pid)]
        (stoker.work / "pids").unlink()
    tell("stoker run and its supervisor killed at once", ROUNDS, CLEAN._replace(leaked=survivors))
    assert survivors == []


def test_a_daemon_that_a_command_started_outlives_a_run_that_is_killed_with_its_supervisor(
    stoker: Stoker,
) -> None:
    part = "env STOKER_PART=daemon setsid sleep 600 & echo $! > part"
    job = f"({part}); {DEAF}"
    process = stoker.start("run", "--gpus", "0", stoker.file("jobs.txt", f"{job}\n"))
    (pid,) = stoker.until(lambda: stoker.read("pids"), "the command runs")
    daemon = int(stoker.read("part")[0])
    program = Path(f"/proc/{daemon}/cmdline")
    stoker.until(
        lambda: program.read_bytes().startswith(b"sleep"), "the daemon has its own program"
    )
    try:
        supervisor = stoker.supervisor(process)
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(process.pid, signal.SIGKILL)
        os.kill(supervisor, signal.SIGKILL)
        process.wait()
        stoker.until(lambda: not stoker.is_alive(int(pid)), "the command is gone")
        assert stoker.is_alive(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)
