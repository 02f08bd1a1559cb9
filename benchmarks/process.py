"""Run one contestant to its end: wall time, and the CPU time of its whole process tree."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import Contestant, Sample
from benchmarks.proc import children_of, tree_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVERS_TIMEOUT_S = 5.0


def become_subreaper() -> None:
    """Inherit orphans of the contestants, so that their CPU time is counted too."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def run_once(
    contestant: Contestant,
    stderr_path: str,
    watch: Callable[[int], None] | None = None,
    watch_every_s: float = 0.1,
) -> Sample:
    """Run a contestant to its end; `watch` is called with its pid now and then while it lives.

    The last call of `watch` comes when the process has ended but is not yet reaped. What was there
    before, such as a daemon that the contestant talks to, stays; what it uses meanwhile counts.
    """
    residents = set(children_of(os.getpid()))
    cpu_before_s = sum(map(tree_cpu_s, residents))
    forks_before = _forks()
    started = time.monotonic()
    pid = _spawn(contestant, stderr_path)
    try:
        _wait_for_end(pid, contestant, started + contestant.timeout_s, watch, watch_every_s)
    except BaseException:
        os.killpg(pid, signal.SIGKILL)
        os.wait4(pid, 0)
        _reap_leftovers(contestant, residents)
        raise
    wall_s = time.monotonic() - started
    if watch is not None:
        watch(pid)
    _, status, usage = os.wait4(pid, 0)
    cpu_s = usage.ru_utime + usage.ru_stime + _reap_leftovers(contestant, residents)
    cpu_s += sum(map(tree_cpu_s, residents)) - cpu_before_s
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise BenchError(f"{contestant.name} ended with status {code}: {_last_line(stderr_path)}")
    if _forks() - forks_before < contestant.jobs:
        raise BenchError(f"{contestant.name} started fewer processes than it was given jobs")
    return Sample(jobs=contestant.jobs, wall_s=wall_s, cpu_s=cpu_s)


@contextlib.contextmanager
def no_leftovers(who: str) -> Iterator[None]:
    """End every orphaned daemon that this process adopted during the block."""
    before = set(children_of(os.getpid()))
    try:
        yield
    finally:
        deadline = time.monotonic() + _LEFTOVERS_TIMEOUT_S
        while not before.issuperset(children_of(os.getpid())):
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            if time.monotonic() > deadline:
                raise BenchError(f"{who} left processes behind that do not end")
            time.sleep(0.002)


def _forks() -> int:
    """Return how many processes this machine has started since it booted."""
    with open("/proc/stat", encoding="ascii") as stat:
        return next(int(line.split()[1]) for line in stat if line.startswith("processes "))


def _spawn(contestant: Contestant, stderr_path: str) -> int:
    create = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.path.abspath(contestant.stdin), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.path.abspath(stderr_path), create, 0o600),
    ]
    here = os.getcwd()
    os.chdir(contestant.cwd)  # posix_spawn knows no folders
    try:
        return os.posix_spawnp(
            contestant.argv[0],
            list(contestant.argv),
            contestant.env,
            file_actions=actions,
            setsid=True,
            setsigdef=[signal.SIGPIPE],
        )
    finally:
        os.chdir(here)


def _wait_for_end(
    pid: int,
    contestant: Contestant,
    deadline: float,
    watch: Callable[[int], None] | None,
    watch_every_s: float,
) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise BenchError(f"{contestant.name} did not end in {contestant.timeout_s:.0f} s")
            nap_s = left_s if watch is None else min(left_s, watch_every_s)
            if poller.poll(nap_s * 1000):
                return
            if watch is not None:
                watch(pid)
    finally:
        os.close(pidfd)


def _reap_leftovers(contestant: Contestant, residents: set[int]) -> float:
    """Wait for orphans that came to us, and return their CPU time."""
    cpu_s = 0.0
    deadline = time.monotonic() + _LEFTOVERS_TIMEOUT_S
    while True:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return cpu_s
        if pid:
            cpu_s += usage.ru_utime + usage.ru_stime
        elif residents.issuperset(children_of(os.getpid())):
            return cpu_s
        elif time.monotonic() > deadline:
            raise BenchError(f"{contestant.name} left processes behind that do not end")
        else:
            time.sleep(0.002)


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().strip().splitlines()
    return lines[-1] if lines else "(nothing on stderr)"


@contextlib.contextmanager
def in_company(script: str, words: Sequence[str], who: str) -> Iterator[None]:
    """Let a script of ours keep many busy while the block runs; it says ready, and how many were served."""
    process = subprocess.Popen(
        [sys.executable, script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise BenchError(f"the {who} were not answered")
        yield
        process.stdin.close()
        if not int(process.stdout.readline() or 0):
            raise BenchError(f"one of the {who} got nothing")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
