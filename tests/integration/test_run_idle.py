from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from stoker.testing.state import GIB

if TYPE_CHECKING:
    from conftest import Stoker

WINDOW_S = 0.5
# A loop without rest wakes up hundreds of times in the window; the view of GPUs, now and then.
MOST_WAKEUPS = 40


def wakeups(pid: int) -> int:
    """How often a process and its supervisor wake up in the window."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        family = [pid, *map(int, file.read().split())]
    before = sum(map(_switches, family))
    time.sleep(WINDOW_S)  # not to wait for anything: this is the time that is looked at
    return sum(map(_switches, family)) - before


def _switches(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))


def start(stoker: Stoker, *words: str, lines: str) -> subprocess.Popen[bytes]:
    process = stoker.start("run", *words)
    assert process.stdin is not None
    process.stdin.write(lines.encode())
    process.stdin.flush()
    return process


def hear(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


def test_a_run_that_waits_for_input_rests(stoker: Stoker) -> None:
    process = start(stoker, "--gpus", "0", lines="touch ran\n")
    stoker.until(lambda: [row.state for row in stoker.rows()] == ["done"], "it is recorded")

    assert wakeups(process.pid) < MOST_WAKEUPS
    assert stoker.end(process).code == 0


def test_a_run_that_waits_for_a_long_job_rests(stoker: Stoker) -> None:
    process = start(stoker, "--gpus", "0", lines="touch ran; exec sleep 60\ntrue\n")
    stoker.until((stoker.work / "ran").exists)
    stoker.until(lambda: [row.state for row in stoker.rows()] == ["running"], "it is recorded")

    assert wakeups(process.pid) < MOST_WAKEUPS


def test_a_run_that_waits_for_the_gpu_of_another_rests(stoker: Stoker) -> None:
    start(stoker, "--gpus", "0", lines="touch ran; exec sleep 60\n")
    stoker.until((stoker.work / "ran").exists)
    second = start(stoker, "--gpus", "0", lines="true\n")
    hear(second, b"GPU 0 is held by ")

    assert wakeups(second.pid) < MOST_WAKEUPS


def test_a_run_whose_gpu_another_holds_and_uses_rests(stoker: Stoker) -> None:
    start(stoker, "--gpus", "0", lines="echo $$ > pid; exec sleep 60\n")
    pid = int(stoker.until(lambda: stoker.read("pid"))[0])
    stoker.env["CUDA_VISIBLE_DEVICES"] = "0,1"
    # Of its two GPUs it gets the second, after it has heard that the first is held.
    second = start(stoker, lines="touch ran; exec sleep 60\ntrue\n")
    stoker.until((stoker.work / "ran").exists)

    stoker.box.use(pid, 0, GIB)  # now the job that holds the first GPU uses it, too
    hear(second, b"GPU 0 is in use by ")

    assert wakeups(second.pid) < MOST_WAKEUPS
