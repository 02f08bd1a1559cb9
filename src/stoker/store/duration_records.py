"""Durations on record: how long jobs of a kind take, learned from those that have succeeded."""

from __future__ import annotations

import time
from typing import NamedTuple

from stoker.store.database import Database


class LearnedDuration(NamedTuple):
    """The mean duration of a kind of job, and from how many jobs it was learned."""

    jobs: int
    mean_s: float


def read_durations(database: Database) -> dict[str, LearnedDuration]:
    """All durations by kind, the one learned last at the end."""
    rows = database.execute("SELECT name, jobs, mean_s FROM kind ORDER BY learned_at_us")
    return {kind: LearnedDuration(jobs, mean_s) for kind, jobs, mean_s in rows}


def record_duration(database: Database, kind: str, learned: LearnedDuration) -> None:
    """Record the duration of a kind inside a transaction, in place of the one before."""
    database.write(
        "INSERT OR REPLACE INTO kind VALUES (?, ?, ?, ?)",
        (kind, *learned, time.time_ns() // 1000),
    )


def forget_duration(database: Database, kind: str) -> None:
    """Delete the duration of a kind inside a transaction."""
    database.write("DELETE FROM kind WHERE name = ?", (kind,))
