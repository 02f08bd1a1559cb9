"""Records of attempts: how each attempt of a job ran and ended."""

from __future__ import annotations

from itertools import starmap

import msgspec

from stoker.store.database import Database

_ATTEMPT = (
    "SELECT {}, {}, slots, pid, started_at_us, ended_at_us, status, reason, cpu_us, max_rss_kb,"
    " failure, gpu_use FROM {} WHERE {} = ?"
)
_EARLIER = _ATTEMPT.format("number", "outcome", "earlier_attempt", "job") + " ORDER BY number"
_LATEST = _ATTEMPT.format("attempt", "state", "job", "id")


class RecordedAttempt(msgspec.Struct, frozen=True):
    """A current or earlier attempt."""

    number: int
    state: str
    slots: str | None
    pid: int | None
    started_at_us: int | None
    ended_at_us: int | None
    status: int | None
    reason: str | None
    cpu_us: int | None
    max_rss_kb: int | None
    failure: str | None
    gpu_use: str | None


def attempts_of(database: Database, job: int) -> list[RecordedAttempt]:
    """Return the attempts of a job that exists, in their order."""
    found = list(starmap(RecordedAttempt, database.execute(_EARLIER, (job,))))
    latest = RecordedAttempt(*database.execute(_LATEST, (job,)).fetchone())
    return [*found, latest] if latest.number > len(found) else found
