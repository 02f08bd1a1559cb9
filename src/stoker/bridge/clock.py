"""The clock that leases go by."""

from __future__ import annotations

import time


def boot_s() -> float:
    """Seconds since this machine was started, sleep included; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
