"""A time of day that is safe for deleting old jobs.

A clock that jumps ahead by more than a day can be wrong: a dead battery, a typing error. It is trusted
after a day of uptime. Until then the trusted time continues from the last one. A clock that is set back is
trusted at once: it makes all jobs younger.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stoker.engine.poll_driver import boot_clock_s
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

_CLOCK = "clock"
_SLACK_S = 86400.0
_PROBATION_S = 86400.0


class TrustedTime:
    """Keeps the last trusted time in the database, and for how long a later one was doubted."""

    def __init__(self, database: Database, uptime_s: Callable[[], float] = boot_clock_s) -> None:
        self._database = database
        self._records = NamedValues(database)
        self._uptime_s = uptime_s
        self._seen_at_s: float | None = None
        self.ahead_s = 0.0
        """How far the clock is ahead of the trusted time; 0 if it is trusted."""

    def now(self) -> float:
        """The trusted time in seconds of the Unix epoch. Call it regularly."""
        clock, uptime_s = time.time(), self._uptime_s()
        passed_s = 0.0 if self._seen_at_s is None else uptime_s - self._seen_at_s
        self._seen_at_s = uptime_s
        trusted, doubted_s = self._load() or (clock, 0.0)
        doubted_s += passed_s
        trusted += passed_s
        if clock <= trusted + _SLACK_S or doubted_s >= _PROBATION_S:
            trusted, doubted_s = clock, 0.0
        self.ahead_s = clock - trusted
        with self._database.transaction():
            self._records.put(_CLOCK, f"{trusted:.0f} {doubted_s:.0f}".encode())
        return trusted

    def _load(self) -> tuple[float, float] | None:
        found = self._records.get(_CLOCK)
        if found is None:
            return None
        trusted, doubted_s = found.decode().split()
        return float(trusted), float(doubted_s)
