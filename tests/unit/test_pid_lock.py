"""Lock files that name their holder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoker import pid_lock

_HOLD = """
import sys
from stoker import pid_lock
assert pid_lock.take(sys.argv[1]) is not None
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


def test_one_process_holds_the_lock_and_is_named_until_it_is_asked_to_end(path: str) -> None:
    words = [sys.executable, "-c", _HOLD, path]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert pid_lock.take(path) is None
        assert pid_lock.holder_pid(path) == holder.pid
        assert pid_lock.end_holder(path, os.getpid(), 20.0)  # not the holder: left alone
        assert pid_lock.holder_pid(path) == holder.pid
        assert pid_lock.end_holder(path, holder.pid, 20.0)
    assert pid_lock.holder_pid(path) is None


def test_a_pid_of_another_process_in_a_held_lock_is_not_believed(path: str) -> None:
    assert pid_lock.holder_pid(path) is None
    words = [sys.executable, "-c", _HOLD, path]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        Path(path).write_text(str(os.getppid()))
        assert pid_lock.holder_pid(path) == 0
        holder.kill()
