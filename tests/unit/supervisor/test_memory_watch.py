"""What the memory watch counts, and what it asks the kernel for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from patience import until
from stoker.supervisor import memory_watch, process_tree
from stoker.supervisor.memory_watch import (
    MemoryWatch,
    WatchedAttempt,
    exact_bytes,
    rough_bytes,
)
from stoker.supervisor.process_tree import Snapshot

MIB = 1 << 20
COOKIE = f"watch-{os.getpid()}:1.1"
BLOCK = "block = bytearray(100 << 20); "
STAY = "print('ready', flush=True); time.sleep(600)"
# The forks write nothing: they share the block with their parent.
FORKS = f"""
import os, time
{BLOCK}
for _ in range(4):
    if os.fork() == 0:
        time.sleep(600)
{STAY}
"""
MAPS_A_FILE = f"""
import mmap, os, sys, time
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
assert sum(mapped[at] for at in range(0, len(mapped), 4096)) == 0
{STAY}
"""
SHARED_MEMORY = f"""
import mmap, os, time
mapped = mmap.mmap(-1, 100 << 20)
for at in range(0, len(mapped), 4096):
    mapped[at] = 1
if os.fork() == 0:
    time.sleep(600)
{STAY}
"""


@contextmanager
def program(text: str, *words: str) -> Iterator[int]:
    """Run a program in a session of its own until the block ends; returns its pid once it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", text, *words],
        stdout=subprocess.PIPE,
        env={**os.environ, process_tree.COOKIE: COOKIE},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def attempt(pid: int, limit_mib: int, *, is_adopted: bool = False) -> WatchedAttempt:
    return WatchedAttempt("1.1", limit_mib * MIB, pid, [COOKIE], is_adopted=is_adopted)


def sums(pid: int) -> tuple[int, int]:
    """The rough and the exact figure of a tree, in MiB."""
    pids = attempt(pid, 1).find(Snapshot())
    rough = sum(rough_bytes(each) or 0 for each in pids)
    return rough // MIB, sum(map(exact_bytes, pids)) // MIB


def test_pages_that_a_fork_shares_count_once() -> None:
    with program(FORKS) as pid:
        rough, exact = sums(pid)
    assert rough >= 500
    assert 100 <= exact < 150


def test_shared_memory_counts_once() -> None:
    with program(SHARED_MEMORY) as pid:
        _rough, exact = sums(pid)
    assert 100 <= exact < 150


def test_files_that_a_process_maps_do_not_count() -> None:
    # Not in the tests' own folder, which may be in memory.
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(__file__)) as file:
        file.truncate(100 * MIB)
        with program(MAPS_A_FILE, file.name) as pid:
            rough, exact = sums(pid)
    assert max(rough, exact) < 50


def test_a_process_that_is_gone_has_no_memory() -> None:
    with program(f"import time; {STAY}") as pid:
        pass
    assert (rough_bytes(pid), exact_bytes(pid)) == (None, 0)


def test_an_attempt_whose_forks_share_its_memory_is_not_over_its_limit() -> None:
    watch = MemoryWatch()
    with program(FORKS) as pid:
        watched = attempt(pid, 200)
        watch._look_at([watched])  # finds the forks
        watch._look_at([watched])
    assert watched.rough_bytes > 500 * MIB
    assert watch.take() == []


def test_exact_figures_are_not_asked_for_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(memory_watch, "exact_bytes", asked.append)
    with program(f"import time; {BLOCK}{STAY}") as pid:
        MemoryWatch()._look_at([attempt(pid, 200)])
    assert asked == []


def test_exact_figures_are_asked_for_again_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def ask(pid: int) -> int:
        asked.append(pid)
        return exact_bytes(pid)

    monkeypatch.setattr(memory_watch, "exact_bytes", ask)
    with program(FORKS) as pid:
        watched = attempt(pid, 200)
        watch = MemoryWatch()
        watch._look_at([watched])  # finds the forks
        watch._look_at([watched])
        first = len(asked)
        watched.exact_at = watched.urgent_at = float("inf")
        watch._look_at([watched])

    assert first == 5
    assert len(asked) == first


@pytest.mark.parametrize(("grown_mib", "asks"), [(10, False), (40, True)])
def test_an_attempt_that_has_grown_by_more_than_it_had_left_is_asked_for_sooner(
    grown_mib: int, asks: bool
) -> None:
    watched = attempt(os.getpid(), 200)
    watched.rough_bytes, watched.left_bytes = 500 * MIB, 30 * MIB
    watched.urgent_at, watched.exact_at = 1.0, 10.0

    assert watched.may_ask((500 + grown_mib) * MIB, now=2.0) is asks


def test_a_process_with_the_cookie_of_an_adopted_attempt_counts() -> None:
    with program(f"import time; {BLOCK}{STAY}") as pid:
        assert attempt(0, 1, is_adopted=True).find(Snapshot()) == {pid}


def test_a_pid_that_another_process_has_by_now_does_not_count() -> None:
    with program(f"import time; {STAY}") as pid:
        watched = attempt(pid, 1)
        watched.cookies = frozenset(["another:1.1"])
        assert watched.find(Snapshot()) == {pid}
        watched.ticks -= 1
        assert watched.find(Snapshot()) == set()


def test_the_thread_tells_once_of_an_attempt_over_its_limit() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda *_args: told.append(1))
    watch = MemoryWatch()
    try:
        with program(f"import time; {BLOCK}{STAY}") as pid:
            watch.watch(attempt(pid, 60))
            found = until(watch.take)
            assert told
        ((key, used),) = found
        assert key == "1.1"
        assert 100 * MIB < used < 150 * MIB
        assert watch.take() == []
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_an_attempt_that_is_forgotten_is_not_told() -> None:
    watch = MemoryWatch()
    with program(f"import time; {BLOCK}{STAY}") as pid:
        watched = attempt(pid, 60)
        watch._look_at([watched])
    assert watch.take() == []
