"""When the processor is this process's again: at once, also while jobs use all processors."""

from __future__ import annotations

import ctypes
import os
import struct

# struct sched_attr of linux/sched/types.h in its first version:
# size, policy, flags, nice, priority, runtime, deadline, period.
_ATTR = struct.Struct("=IIQiIQQQ")
_RESET_ON_FORK = 1
_SHORTEST_NS = 100_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}


def come_first() -> None:
    """Ask for short turns: Linux 6.12 and later let who wants little have it first when it wakes.

    A share of the processor that is the same as ever, and jobs inherit nothing of it. Whoever was
    given a policy or a priority of their own keeps that.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    if number is None or nice < 0 or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    wish = _ATTR.pack(_ATTR.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, _SHORTEST_NS, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, wish, 0)  # who refuses leaves things as they are
