"""Records of durations: how long jobs of a kind take, from jobs that have succeeded."""

from __future__ import annotations

import time
from typing import NamedTuple

from stoker.store.database import Database


class LearnedDuration(NamedTuple):
    """The mean duration of a kind of job, and from how many jobs it was learned."""

    jobs: int
    mean_s: float


def read_durations(database: Database) -> dict[str, LearnedDuration]:
    """Return all durations by kind; the newest is the last."""
    rows = database.execute("SELECT name, jobs, mean_s FROM kind ORDER BY learned_at_us")
    return {kind: LearnedDuration(jobs, mean_s) for kind, jobs, mean_s in rows}


def record_duration(database: Database, kind: str, learned: LearnedDuration) -> None:
    """Record the duration of a kind inside a transaction; replaces the old one."""
    database.write(
        "INSERT OR REPLACE INTO kind VALUES (?, ?, ?, ?)",
        (kind, *learned, time.time_ns() // 1000),
    )


def forget_duration(database: Database, kind: str) -> None:
    """Delete the duration of a kind inside a transaction."""
    database.write("DELETE FROM kind WHERE name = ?", (kind,))
