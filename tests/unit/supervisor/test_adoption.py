from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.supervisor import process_tree
from stoker.supervisor.adoption import UNWATCHED, Findings, find_orphans
from stoker.supervisor.exit_file import Exit
from stoker.supervisor.journal import Ending, JournalContents, Loss, Record
from stoker.supervisor.process_tree import boot_id

NAME = f"stoker-test-adopt-{os.getpid()}"
EXCHANGE = """
import os, sys
sys.stdin.read(1)
os.execve("/bin/sleep", ["sleep", "60"], dict(word.split("=") for word in sys.argv[1:]))
"""


@contextlib.contextmanager
def process(*argv: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a session, as jobs do, until the end of the block."""
    child = subprocess.Popen(argv, env=env, start_new_session=True, stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def announced(*keys: str) -> JournalContents:
    """What a supervisor leaves that died between the announcement of a start and its record."""
    return JournalContents({key: Record(boot=boot_id()) for key in keys}, {NAME})


def exchange(job: subprocess.Popen[bytes]) -> None:
    """Let a process have its next program."""
    assert job.stdin is not None
    job.stdin.write(b"x")
    job.stdin.flush()
    program = Path(f"/proc/{job.pid}/cmdline")
    while not program.read_bytes().startswith(b"sleep"):
        time.sleep(0.001)


def look(contents: JournalContents) -> Findings:
    """What the next supervisor finds; nothing is watched afterwards."""
    found = find_orphans(contents, boot_id())
    for orphan in found.living.values():
        os.close(orphan.fd)
    return found


def test_an_unrecorded_start_is_dated_no_earlier_than_it_happened() -> None:
    keys = [f"{number}.1" for number in range(1, 25)]
    spawned_us = {}
    with contextlib.ExitStack() as stack:
        for key in keys:
            spawned_us[key] = time.time_ns() // 1000
            stack.enter_context(process("sleep", "60", env={process_tree.COOKIE: f"{NAME}:{key}"}))
        found = look(announced(*keys))
        now_us = time.time_ns() // 1000

    assert found.living.keys() == {*keys}
    for key in keys:
        at_us = found.records[key].at_us
        assert at_us is not None
        assert spawned_us[key] <= at_us <= now_us


def test_a_job_in_execve_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cookie = f"{NAME}:7.1"
    with process(sys.executable, "-c", EXCHANGE, f"{process_tree.COOKIE}={cookie}", env={}) as job:
        looks = 0

        class Snapshot(process_tree.Snapshot):
            """The process table; from the second look on the job has its next program."""

            def __init__(self) -> None:
                nonlocal looks
                looks += 1
                if looks == 2:
                    exchange(job)
                super().__init__()

        monkeypatch.setattr(process_tree, "Snapshot", Snapshot)
        found = look(announced("7.1"))

    assert looks == 2
    assert found.living["7.1"].pid == job.pid


def test_a_job_in_execve_is_recognised_by_its_start_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = {process_tree.COOKIE: f"{NAME}:7.1"}
    with process(sys.executable, "-c", EXCHANGE, env=env) as job:
        watch = os.pidfd_open

        def watch_when_exchanged(pid: int) -> int:
            exchange(job)
            return watch(pid)

        monkeypatch.setattr(os, "pidfd_open", watch_when_exchanged)
        found = look(announced("7.1"))

    assert found.living["7.1"].pid == job.pid


def test_a_process_without_environment_does_not_delay_adoption() -> None:
    with process("sleep", "60", env={}):
        found = look(announced("8.1"))

    assert not found.living
    assert found.records["8.1"].outcome == Loss(UNWATCHED)


GONE = 1 << 22  # no process has this pid: it is the highest that Linux gives out, and one more


@pytest.mark.parametrize(
    ("found", "is_it"),
    [
        (Exit("here", GONE, 800, 3 << 8, 17, 40), True),
        (Exit("here", GONE, 799, 3 << 8, 17, 40), True),
        (Exit("here", GONE, 700, 3 << 8, 17, 40), False),
        (Exit("here", GONE, 900, 3 << 8, 17, 40), False),
        (Exit("here", GONE + 1, 800, 3 << 8, 17, 40), False),
        (Exit("elsewhere", GONE, 800, 3 << 8, 17, 40), False),
        (Exit("here", GONE, 800, signal.SIGTERM, 17, 40), True),
        (Exit("here", GONE, 800, signal.SIGKILL, 17, 40), False),
        (Exit("here", GONE, 800, signal.SIGKILL | 0x80, 17, 40), False),
    ],
)
def test_a_recorded_exit_is_that_of_the_attempt_with_its_boot_pid_and_start(
    found: Exit, is_it: bool
) -> None:
    record = Record(GONE, 800, None, 801, 1700000000000000, boot="here")
    contents = JournalContents({"1.1": record}, {NAME})

    (known,) = find_orphans(contents, "here", [found]).records.values()

    if is_it:
        assert known.outcome == Ending(found.status, 17, 40, 0)
    else:
        assert known.outcome == Loss(UNWATCHED)


def test_a_kill_for_memory_that_no_supervisor_saw_is_known_by_its_announcement() -> None:
    record = Record(GONE, 800, None, 801, 17, boot="here", mem_bytes=10, over_mem_bytes=20)
    contents = JournalContents({"1.1": record}, {NAME})
    found = Exit("here", GONE, 800, signal.SIGKILL, 18, 40)

    (known,) = find_orphans(contents, "here", [found]).records.values()

    assert known.outcome == Ending(signal.SIGKILL, 18, 40, 0, over_mem_bytes=20)


def test_an_exit_from_before_a_restart_of_the_machine_still_counts() -> None:
    record = Record(GONE, 800, None, 801, 17, boot="before")
    contents = JournalContents({"1.1": record}, {NAME})

    found = find_orphans(contents, "now", [Exit("before", GONE, 800, 0, 18, 40)])

    assert found.records["1.1"].outcome == Ending(0, 18, 40, 0)
