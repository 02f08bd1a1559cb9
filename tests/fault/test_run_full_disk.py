from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Ended, Row, Stoker

# Fills the small disk to its last byte; what does not fit is what it is for.
FILL = "head -c 9000000 /dev/zero > small/fill 2>&-; cat /dev/zero >> small/fill 2>&-"


@pytest.fixture
def on_small_disk(stoker: Stoker) -> Callable[..., subprocess.Popen[bytes]]:
    """Return a starter of stokers that see a disk of their own at `small`, gone when they are.

    Behind the run, the home is copied from that disk if it was there.
    """
    probe = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", stoker.work],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        reason = f"no small disk can be mounted here: {probe.stderr.strip()}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    (stoker.work / "small").mkdir()

    def start(*words: str, options: str = "size=1M") -> subprocess.Popen[bytes]:
        run = shlex.join([sys.executable, "-m", "stoker", "run", "--gpus", "0,1", *words])
        script = f"mount -t tmpfs -o {options} tmpfs small && {run}; code=$?"
        script += "; [ ! -e small/home ] || cp -r small/home/runs copy; exit $code"
        return stoker.adopt(
            subprocess.Popen(
                ["unshare", "-m", "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=stoker.env,
                cwd=stoker.work,
            )
        )

    return start


def use_home_on_small_disk(stoker: Stoker) -> None:
    stoker.home = stoker.work / "small" / "home"
    stoker.env["STOKER_HOME"] = str(stoker.home)


def copied_rows(stoker: Stoker) -> list[Row]:
    (folder,) = (stoker.work / "copy").iterdir()
    return stoker.rows(folder)


def end(stoker: Stoker, process: subprocess.Popen[bytes]) -> Ended:
    ended = stoker.end(process)
    assert "Traceback" not in ended.err, ended.err
    return ended


def test_a_log_that_fills_the_disk_fails_its_job_and_no_other(
    stoker: Stoker, on_small_disk: Callable[..., subprocess.Popen[bytes]]
) -> None:
    file = stoker.file("jobs.txt", "head -c 9000000 /dev/zero\necho a >> ran\nfalse\n")

    ended = end(stoker, on_small_disk(file, "--logs", "small", "-j", "1"))

    assert (ended.code, stoker.read("ran")) == (1, ["a"])
    assert [row.state for row in stoker.rows()] == ["failed", "done", "failed"]
    assert "1 done, 2 failed" in ended.err


def test_when_no_log_can_be_made_jobs_wait_for_space(
    stoker: Stoker, on_small_disk: Callable[..., subprocess.Popen[bytes]]
) -> None:
    # The disk has room for few files: the first job takes them all, and gives them back later.
    hog = "i=0; while echo > small/hog$i; do i=$((i+1)); done 2>&-; echo full >> ran"
    wait = "until [ -e go ]; do sleep 0.01; done; rm small/hog*"
    file = stoker.file(
        "jobs.txt",
        f"{hog}; {wait}\n" + "until [ -e ran ]; do sleep 0.01; done\n" + "echo a >> ran\n" * 3,
    )
    process = on_small_disk(file, "--logs", "small", options="nr_inodes=20")
    assert process.stderr is not None

    said = next(line for line in process.stderr if b"cannot start commands" in line)
    assert said.startswith(b"stoker: cannot start commands for now (No space left on device")
    assert said.endswith(b"trying again\n")
    stoker.file("go", "")
    ended = end(stoker, process)

    assert (ended.code, stoker.read("ran")) == (0, ["full", "a", "a", "a"])
    assert {row.state for row in stoker.rows()} == {"done"}


def test_a_full_disk_under_the_home_loses_nothing(
    stoker: Stoker, on_small_disk: Callable[..., subprocess.Popen[bytes]]
) -> None:
    use_home_on_small_disk(stoker)
    hog = f"{FILL}; echo full >> ran; until [ -e go ]; do sleep 0.01; done; rm small/fill"
    others = "".join(
        f"until [ -e ran ]; do sleep 0.01; done; echo {i} >> ran\n" for i in range(400)
    )
    file = stoker.file("jobs.txt", f"{hog}\n{others}")
    # So small that the log of the database could fill it, were it not emptied in time.
    process = on_small_disk(file, options="size=600k")
    assert process.stderr is not None

    said = next(line for line in process.stderr if b"space" in line)
    assert said.startswith(b"stoker: ")
    stoker.file("go", "")
    ended = end(stoker, process)

    ran = stoker.read("ran")
    assert ended.code == 0
    assert sorted(ran) == sorted(["full", *map(str, range(400))])
    assert [row.outcome for row in copied_rows(stoker)] == ["done"] * 401


def test_a_home_on_a_disk_that_is_full_from_the_start_is_one_clear_line(
    stoker: Stoker, on_small_disk: Callable[..., subprocess.Popen[bytes]]
) -> None:
    use_home_on_small_disk(stoker)
    file = stoker.file("jobs.txt", "echo a >> ran\n")

    ended = end(stoker, on_small_disk(file, options="size=8k"))

    assert ended.code == 1
    assert ended.err.startswith("stoker: ")
    assert ended.err.count("\n") == 1
    assert stoker.read("ran") == []


def test_a_run_that_waits_for_space_can_be_interrupted(
    stoker: Stoker, on_small_disk: Callable[..., subprocess.Popen[bytes]]
) -> None:
    use_home_on_small_disk(stoker)
    hog = f"{FILL}; echo full >> ran; exec sleep 60"
    others = "until [ -e ran ]; do sleep 0.01; done; : aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
    process = on_small_disk(stoker.file("jobs.txt", f"{hog}\n{others * 400}"))
    assert process.stderr is not None
    next(line for line in process.stderr if b"waiting for space" in line)

    (pid,) = (
        p
        for p, words in stoker.processes().items()
        if words.endswith("run --gpus 0,1 jobs.txt") and "-m" in words.split()[1]
    )
    for _ in range(2):
        os.kill(pid, signal.SIGINT)
        stoker.until(lambda: not _is_pending(pid, signal.SIGINT))

    stoker.until(lambda: not stoker.is_alive(pid), "it has ended")
    process.wait(timeout=PATIENCE_S)


def _is_pending(pid: int, signum: signal.Signals) -> bool:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            status = dict(line.split(":", 1) for line in file)
    except FileNotFoundError:
        return False
    return bool((int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)) >> (signum - 1) & 1)
