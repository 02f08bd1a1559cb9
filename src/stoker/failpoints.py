"""Failpoints: named points in the code at which a test can kill the process.

`STOKER_FAILPOINT=NAME:N` sends SIGKILL when the point is reached for the N-th time. With `NAME:N:FILE` that
happens in one process only, which creates FILE. Several failpoints are separated by commas. Those of the
supervisor are named `supervisor-…`, all others are the daemon's. Standard library only. On a hot path:
`if is_armed: reach(…)`.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple


class _Arm(NamedTuple):
    """When to kill the process at a failpoint, and the file that shows that it has happened."""

    at: int
    file: str


def _read(text: str) -> dict[str, _Arm]:
    arms = {}
    for word in filter(None, text.split(",")):
        name, _, rest = word.partition(":")
        count, _, file = rest.partition(":")
        arms[name] = _Arm(int(count or 1), file)
    return arms


_arms = _read(os.environ.get("STOKER_FAILPOINT", ""))
_reached = dict.fromkeys(_arms, 0)
is_armed = bool(_arms)


def reach(name: str) -> None:
    """Kill this process if the failpoint is armed and due."""
    arm = _arms.get(name)
    if arm is None:
        return
    _reached[name] += 1
    if _reached[name] >= arm.at and _is_first(arm.file):
        os.kill(os.getpid(), signal.SIGKILL)


def _is_first(file: str) -> bool:
    if not file:
        return True
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True
