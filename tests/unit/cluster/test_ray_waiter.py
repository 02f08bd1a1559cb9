"""The process that takes the place of `ray start --block`, over real children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from patience import until

# Starts children, tells their pids, and becomes the waiter.
_PARENT = """\
import subprocess, sys
from stoker.cluster import ray_waiter
children = [  # kept: a Popen that is deleted reaps a child that has ended
    subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL) for command in sys.argv[1:]
]
pids = [child.pid for child in children]
print(*pids, flush=True)
ray_waiter.become(pids)
"""
_LASTS = "exec sleep 1000"
_IGNORES_SIGTERM = "trap '' TERM; exec sleep 1000"


def start(*commands: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a waiter with children. Returns it, and the children's pids."""
    waiter = subprocess.Popen(
        [sys.executable, "-c", _PARENT, *commands], stdout=subprocess.PIPE, text=True
    )
    assert waiter.stdout is not None
    return waiter, [int(word) for word in waiter.stdout.readline().split()]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_when_a_process_of_ray_ends_the_others_end_and_the_reason_is_told() -> None:
    waiter, pids = start(_LASTS, "exit 7")

    out, _ = waiter.communicate(timeout=60)

    assert out.splitlines()[-1] == "sh [exit code=7]"
    assert waiter.returncode == 1
    assert not any(map(is_there, pids))


@pytest.mark.parametrize("command", [_LASTS, _IGNORES_SIGTERM])
def test_sigterm_ends_all_of_ray(command: str) -> None:
    waiter, pids = start(_LASTS, command)
    until(lambda: Path(f"/proc/{pids[1]}/comm").read_text() == "sleep\n")
    until(lambda: b"ray_waiter.py" in Path(f"/proc/{waiter.pid}/cmdline").read_bytes())

    waiter.terminate()
    out, _ = waiter.communicate(timeout=60)

    assert (out, waiter.returncode) == ("", 0)
    assert not any(map(is_there, pids))
