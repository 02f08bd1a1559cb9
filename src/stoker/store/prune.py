"""Finds old jobs, and records that no job refers to."""

from __future__ import annotations

from stoker.core.lifecycle import State
from stoker.store.database import Database

_REPEATABLE_US = 86_400_000_000


def ended_before(database: Database, time_us: float, limit: int) -> list[tuple[int, State]]:
    """Return jobs that ended before a time, the oldest first."""
    return _ended(database, "ended_at_us < ?", (time_us, limit))


def oldest_ended(database: Database, limit: int) -> list[tuple[int, State]]:
    """Return the jobs that ended first; failed and lost ones only if there are no others."""
    without_failures = "state IN ('done', 'killed', 'skipped', 'pruned')"
    return _ended(database, without_failures, (limit,)) or _ended(database, "1", (limit,))


def _ended(
    database: Database, condition: str, values: tuple[object, ...]
) -> list[tuple[int, State]]:
    rows = database.execute(
        "SELECT id, state FROM job WHERE submission IS NOT NULL AND ended_at_us IS NOT NULL"  # noqa: S608
        f" AND {condition} ORDER BY ended_at_us LIMIT ?",
        values,
    )
    return [(job, State(state)) for job, state in rows]


def is_snapshot_used(database: Database, name: str) -> bool:
    """Whether a submission on record runs from a snapshot, or from a folder in it."""
    row = database.execute(
        "SELECT 1 FROM submission WHERE snapshot = ?1 OR snapshot GLOB ?1 || '/*' LIMIT 1", (name,)
    ).fetchone()
    return row is not None


def forget_submissions(database: Database) -> None:
    """Delete submissions and environments without jobs.

    Submissions of the last day stay, so that a request that comes again is recognised.
    """
    with database.transaction():
        database.write(
            "DELETE FROM submission WHERE added = jobs AND submitted_at_us < ("
            " SELECT max(submitted_at_us) FROM submission) - ?"
            " AND NOT EXISTS (SELECT 1 FROM job WHERE id BETWEEN first_job"
            " AND first_job + submission.jobs - 1)",
            (_REPEATABLE_US,),
        )
        database.write(
            "DELETE FROM environment WHERE id NOT IN (SELECT environment FROM submission)", ()
        )
