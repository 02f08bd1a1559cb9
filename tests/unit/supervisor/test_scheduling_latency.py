"""Short turns on the processor: the supervisor's own, never its jobs'."""

from __future__ import annotations

import json
import subprocess
import sys

TELL = """
import ctypes, json, os, struct
attr = ctypes.create_string_buffer(48)
number = {"x86_64": 315}.get(os.uname().machine, 275)
assert ctypes.CDLL(None).syscall(number, 0, attr, 48, 0) == 0
_, policy, flags, nice, _, runtime, _, _ = struct.unpack("=IIQiIQQQ", attr.raw)
told = {"policy": policy, "flags": flags, "nice": nice, "runtime": runtime}
print(json.dumps(told), flush=True)
"""
COME_FIRST = f"""
import subprocess, sys
from stoker.supervisor.scheduling_latency import request_short_slices
request_short_slices()
{TELL}
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
NORMAL, IDLE, RESET_ON_FORK = 0, 5, 1


def tell(*words: str, before: str = "") -> list[dict[str, int]]:
    ended = subprocess.run(
        [*words, sys.executable, "-c", before + COME_FIRST, TELL],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_jobs_do_not_inherit_short_slices() -> None:
    (plain,) = (
        json.loads(line)
        for line in subprocess.check_output([sys.executable, "-c", TELL], text=True).splitlines()
    )
    ours, jobs = tell()

    assert jobs == plain
    if plain["policy"] == NORMAL:
        assert ours["flags"] == RESET_ON_FORK
        # A kernel that knows no turns of one's own (before 6.12) says 0 to everybody.
        assert ours["runtime"] < plain["runtime"] or plain["runtime"] == 0


def test_a_given_priority_is_kept_and_inherited() -> None:
    ours, jobs = tell("nice", "-n", "7")

    assert ours["nice"] == jobs["nice"] >= 7


def test_a_given_policy_is_kept_and_inherited() -> None:
    idle = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
    ours, jobs = tell(before=idle)

    assert ours["policy"] == jobs["policy"] == IDLE
    assert ours["flags"] == 0
