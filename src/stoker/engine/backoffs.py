"""Delays before failed jobs run again.

The database records the time of day at which a delay ends. A user can set that clock, so a delay also
ends when its length has passed by the boot clock. If the clock was set back while no daemon ran, the delay
starts again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

from stoker.core.lifecycle import State
from stoker.store.pending import PendingJobs


class _Pause(NamedTuple):
    due_s: float  # by the boot clock
    job: int
    begin_at_us: int


class Backoffs:
    """The current delays. All methods write inside the caller's transaction."""

    def __init__(self, pending: PendingJobs, uptime_s: Callable[[], float], now_us: int) -> None:
        self._pending = pending
        self._uptime_s = uptime_s
        self._pauses: list[_Pause] = []
        for job, backoff in pending.backoffs().items():
            if pending.begins_at(job) != backoff.begin_at_us:  # a user has changed its time
                pending.end_backoff(job)
            elif backoff.begin_at_us - now_us > backoff.pause_us:
                self.begin(job, now_us, backoff.pause_us)
            else:
                self._push(job, backoff.begin_at_us, backoff.begin_at_us - now_us)

    def begin(self, job: int, now_us: int, pause_us: int) -> None:
        """Delay a job from now on."""
        self._pending.back_off(job, now_us + pause_us, pause_us)
        self._push(job, now_us + pause_us, pause_us)

    def _push(self, job: int, begin_at_us: int, left_us: int) -> None:
        heapq.heappush(self._pauses, _Pause(self._uptime_s() + left_us / 1e6, job, begin_at_us))

    def next_s(self) -> float | None:
        """Seconds until the next delay ends; None if there is none."""
        return max(0.0, self._pauses[0].due_s - self._uptime_s()) if self._pauses else None

    def wake(self, now_us: int) -> list[tuple[int, State]]:
        """End the delays that are over. Returns the jobs whose state has changed."""
        changed: list[tuple[int, State]] = []
        uptime_s = self._uptime_s() if self._pauses else 0.0
        while self._pauses and self._pauses[0].due_s <= uptime_s:
            _due_s, job, begin_at_us = heapq.heappop(self._pauses)
            found = self._pending.begins_at(job)
            if found in (None, begin_at_us):  # else another pause has begun
                self._pending.end_backoff(job)
            if found == begin_at_us:
                self._pending.delay(job, min(now_us, begin_at_us))
                changed += self._pending.settle(job, now_us)
        return changed
