from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from patience import until
from stoker.supervisor import process_tree

NAME = f"stoker-test-{os.getpid()}"
# A child that tells its pid and those of all it started, in the order of making.
DAEMONISE = """
import os, sys, time
os.write(1, b"%d\\n" % os.getpid())
if os.fork() == 0:
    os.setsid()
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            time.sleep(0.001)
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""
BECOME_SUBREAPER = """
import os, signal, subprocess, sys
from stoker.supervisor import process_tree
process_tree.become_subreaper()
started = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & echo $!"], stdout=subprocess.PIPE)
orphan = int(started.stdout.readline())
started.wait()
print(process_tree.living_children() == {orphan})
os.kill(orphan, signal.SIGKILL)
print(os.waitpid(orphan, 0) == (orphan, 9))
started.stdout.close()
"""


@contextmanager
def child(*argv: str, cookie: str | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process in a session of its own, gone with all its descendants when the block ends."""
    env = {**os.environ, **({process_tree.COOKIE: cookie} if cookie else {})}
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout
        process.stdout.close()


def members(root: int, cookie: str, children: set[int]) -> set[int]:
    return process_tree.Snapshot().members(root, cookie, children)


def read_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout
    return int(process.stdout.readline())


def test_a_living_process_is_in_the_table_with_its_parent_and_session() -> None:
    with child("sleep", "600") as process:
        found = process_tree.processes()[process.pid]

        assert found[:4] == (process.pid, os.getpid(), process.pid, process.pid)
        now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
        assert now - 500 < found.ticks <= now
        assert process.pid in process_tree.living_children()


def test_a_process_that_has_ended_is_no_longer_there_even_before_it_is_reaped() -> None:
    with child("true") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert process.pid not in process_tree.processes()
        assert process.pid not in process_tree.living_children()


def test_a_process_name_with_blanks_and_parentheses_is_parsed() -> None:
    rename = "import ctypes; ctypes.CDLL(None).prctl(15, b') S 1 1 (', 0, 0, 0)"
    wait = "; print(flush=True); import time; time.sleep(600)"
    with child(sys.executable, "-c", rename + wait) as process:
        assert process.stdout
        process.stdout.readline()

        assert process_tree.processes()[process.pid].parent == os.getpid()


def test_a_cookie_is_read_from_the_environment_a_process_was_started_with() -> None:
    with child("sleep", "600", cookie="outer:1.1/inner:2.1") as process:
        until(lambda: process_tree.read_marks(process.pid).cookies)
        assert process_tree.read_marks(process.pid) == process_tree.ProcessMarks(
            ["outer:1.1", "inner:2.1"], False
        )
    with child("env", "-i", "sleep", "600") as process:
        until(lambda: b"sleep" in command_line(process.pid))
        assert process_tree.read_marks(process.pid) == process_tree.ProcessMarks(
            [], False, is_blank=True
        )
    assert process_tree.read_marks(1 << 22) == process_tree.ProcessMarks([], False)


def command_line(pid: int) -> bytes:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().split(b"\0", 1)[0]


def test_the_members_of_a_job_are_its_descendants_and_no_others() -> None:
    with (
        child("/bin/sh", "-c", "sleep 600 & echo $!; wait", cookie=f"{NAME}:1.1") as one,
        child("sleep", "600", cookie=f"{NAME}:2.1") as other,
    ):
        inner = read_pid(one)
        children = {one.pid, other.pid}

        assert members(one.pid, f"{NAME}:1.1", children) == {one.pid, inner}
        assert members(other.pid, f"{NAME}:2.1", children) == {other.pid}


def test_a_process_outside_tree_and_session_is_found_by_its_cookie() -> None:
    with child(sys.executable, "-c", DAEMONISE, cookie=f"outer:9.9/{NAME}:1.1") as process:
        root, daemon = read_pid(process), read_pid(process)
        children = {root, daemon}
        try:
            assert daemon not in members(root, f"{NAME}:1.2", children)
            assert daemon in members(root, f"{NAME}:1.1", children)
            assert daemon in members(root, "outer:9.9", children)
            # The root may be gone long since, and its pid be anybody's.
            assert members(1 << 22, f"{NAME}:1.1", children) == {root, daemon}
        finally:
            os.kill(daemon, signal.SIGKILL)


def test_a_part_of_stoker_and_its_descendants_are_no_members() -> None:
    script = f"env {process_tree.MARKER}=daemon sh -c 'sleep 600 & echo $! ; echo $$; wait' & wait"
    with child("/bin/sh", "-c", script, cookie=f"{NAME}:1.1") as process:
        below, part = read_pid(process), read_pid(process)
        try:
            assert members(process.pid, f"{NAME}:1.1", {process.pid}) == {process.pid}
            assert members(process.pid, f"{NAME}:1.1", {part, below}) == set()
            assert process_tree.read_marks(part)[:2] == ([f"{NAME}:1.1"], True)
            assert part not in process_tree.Snapshot().by_cookie(NAME)[f"{NAME}:1.1"]
        finally:
            process_tree.send({part, below}, signal.SIGKILL)


def test_processes_are_found_by_each_of_their_cookies() -> None:
    with child("sleep", "600", cookie=f"outer:9.9/{NAME}:1.1") as process:
        until(lambda: process_tree.read_marks(process.pid).cookies)

        found = process_tree.Snapshot().by_cookie(f"{NAME}:")
        assert found[f"{NAME}:1.1"] == {process.pid}
        assert "outer:9.9" not in found


def test_a_cookie_with_the_same_prefix_does_not_match() -> None:
    with child("sleep", "600", cookie=f"{NAME}:1.11") as process:
        until(lambda: process_tree.read_marks(process.pid).cookies)

        assert members(1 << 22, f"{NAME}:1.1", {process.pid}) == set()


def test_only_descendants_of_the_given_children_are_members() -> None:
    with child("sleep", "600", cookie=f"{NAME}:1.1") as process:
        until(lambda: process_tree.read_marks(process.pid).cookies)

        assert members(process.pid, f"{NAME}:1.1", set()) == set()
        assert members(os.getpid(), f"{NAME}:1.1", {1 << 22}) == set()


def test_signals_to_no_process_or_a_dead_one_do_nothing() -> None:
    with child("sleep", "600") as process:
        process_tree.send(set(), signal.SIGKILL)
        process_tree.send({1 << 22}, signal.SIGKILL)
        assert process.poll() is None

        process_tree.send({process.pid, 1 << 22}, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def test_a_subreaper_gets_the_orphans_of_its_descendants() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BECOME_SUBREAPER], capture_output=True, text=True, check=True
    )

    assert done.stdout == "True\nTrue\n"
