"""Records of attempts: how each attempt of a job ran and ended."""

from __future__ import annotations

from itertools import starmap

import msgspec

from stoker.core.lifecycle import State
from stoker.store.database import Database

_ATTEMPT = (
    "SELECT {}, {}, slots, pid, started_at_us, ended_at_us, status, reason, cpu_us, max_rss_kb,"
    " failure, gpu_use FROM {} WHERE {} = ?"
)
_EARLIER = _ATTEMPT.format("number", "outcome", "earlier_attempt", "job") + " ORDER BY number"
_LAST_REASON = (
    "SELECT number, outcome, reason FROM earlier_attempt"
    " WHERE job = ? AND reason IS NOT NULL ORDER BY number DESC LIMIT 1"
)
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


def last_earlier_reason(database: Database, job: int) -> tuple[int, State, str] | None:
    """Return the last earlier attempt of a job that has a reason: its number, its outcome, the reason."""
    row = database.execute(_LAST_REASON, (job,)).fetchone()
    return None if row is None else (row[0], State(row[1]), row[2])


_ENDED_SINCE = (
    "SELECT job.id, attempt, name, project, state, job.slots, started_at_us, ended_at_us FROM job"
    " JOIN class ON class.id = job.class"
    " WHERE ended_at_us >= ? AND submission IS NOT NULL AND job.slots != '' AND started_at_us IS NOT NULL"
    " ORDER BY ended_at_us DESC LIMIT ?"
)
_EARLIER_SINCE = (
    "SELECT past.job, past.number, name, project, past.outcome, past.slots, past.started_at_us,"
    " past.ended_at_us"
    " FROM earlier_attempt AS past JOIN job ON job.id = past.job JOIN class ON class.id = job.class"
    " WHERE past.ended_at_us >= ? AND past.slots != '' AND past.started_at_us IS NOT NULL"
    " ORDER BY past.ended_at_us DESC LIMIT ?"
)


class PastAttempt(msgspec.Struct, frozen=True):
    """An attempt on GPUs that has ended."""

    job: int
    number: int
    name: str | None
    project: str | None
    state: str
    slots: str
    started_at_us: int
    ended_at_us: int


def attempts_since(database: Database, since_us: int, limit: int) -> list[PastAttempt]:
    """Return the attempts on GPUs that ended after a time, those of the newest jobs first."""
    return [
        PastAttempt(*row)
        for query in (_ENDED_SINCE, _EARLIER_SINCE)
        for row in database.execute(query, (since_us, limit))
    ]
