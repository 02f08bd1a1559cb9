"""The time of day as far as it can be believed, for deciding what is old enough to be deleted.

A clock that is more than a day ahead of what was seen last may be wrong: a dead battery, or a slip of the
keyboard. It is believed once it has stayed so for a day of uptime. Until then the believed time goes on from
what was seen last. A clock that was set back is believed at once: it makes everything younger.
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
    """Remembers in the database which time was believed last, and for how long a later one was doubted."""

    def __init__(self, database: Database, uptime_s: Callable[[], float] = boot_clock_s) -> None:
        self._database = database
        self._records = NamedValues(database)
        self._uptime_s = uptime_s
        self._seen_at_s: float | None = None
        self.ahead_s = 0.0
        """How far the clock is ahead of what is believed; 0 if it is believed."""

    def now(self) -> float:
        """The time that can be believed, in seconds of the Unix epoch; to be asked now and then."""
        told, uptime_s = time.time(), self._uptime_s()
        passed_s = 0.0 if self._seen_at_s is None else uptime_s - self._seen_at_s
        self._seen_at_s = uptime_s
        believed, doubted_s = self._load() or (told, 0.0)
        doubted_s += passed_s
        believed += passed_s
        if told <= believed + _SLACK_S or doubted_s >= _PROBATION_S:
            believed, doubted_s = told, 0.0
        self.ahead_s = told - believed
        with self._database.transaction():
            self._records.put(_CLOCK, f"{believed:.0f} {doubted_s:.0f}".encode())
        return believed

    def _load(self) -> tuple[float, float] | None:
        found = self._records.get(_CLOCK)
        if found is None:
            return None
        believed, doubted_s = found.decode().split()
        return float(believed), float(doubted_s)
