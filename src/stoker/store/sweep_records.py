"""Records of sweeps and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

import msgspec

from stoker.core.lifecycle import State
from stoker.store.database import Database

_AT_ONCE = 100
_ADD_RUN = "INSERT INTO sweep_run (sweep, job, identity, dir, params) VALUES (?, ?, ?, ?, ?)"
_ADD_RUNS = (
    "INSERT INTO sweep_run (sweep, job, identity, dir, params) VALUES "  # noqa: S608
    + ", ".join(
        f"(?1, ?2 + {row}, ?{3 * row + 3}, ?{3 * row + 4}, ?{3 * row + 5})"
        for row in range(_AT_ONCE)
    )
)
_RUNS = (
    "SELECT identity, dir, sweep_run.job, coalesce(state, iif(done, 'done', 'lost')),"
    " coalesce(attempt, 0), slots, reason, started_at_us, ended_at_us, git_commit, failure, gpu_use,"
    " iif(?, params, NULL)"
    " FROM sweep_run LEFT JOIN job ON job.id = sweep_run.job"
    " LEFT JOIN submission ON submission.id = job.submission"
    " WHERE sweep = (SELECT id FROM sweep WHERE name = ? AND cwd = ?) AND sweep_run.job > ?"
    " ORDER BY sweep_run.job LIMIT ?"
)
_STATES = (
    "SELECT job.id, state FROM sweep_run JOIN job ON job.id = sweep_run.job"
    " WHERE sweep = (SELECT id FROM sweep WHERE name = ? AND cwd = ?) ORDER BY job.id"
)
_NEWEST = (
    "SELECT id, name, cwd, (SELECT min(job) FROM sweep_run AS r WHERE r.sweep = sweep.id),"
    " (SELECT max(job) FROM sweep_run AS r WHERE r.sweep = sweep.id) FROM sweep ORDER BY id DESC LIMIT ?"
)
_COUNTS = (
    "SELECT coalesce(state, iif(done, 'done', 'lost')) AS now, count(*) FROM"
    " (SELECT job, done FROM sweep_run WHERE sweep = ? ORDER BY job DESC LIMIT ?) AS newest"
    " LEFT JOIN job ON job.id = newest.job GROUP BY now"
)


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """What makes a job a run of a sweep."""

    identity: bytes
    dir: bytes
    params: str


class SweepRunRecord(msgspec.Struct, frozen=True, gc=False):
    """A run with the last attempt of its job, if the job still exists."""

    identity: bytes
    dir: bytes
    job: int
    state: str
    attempt: int
    slots: str | None
    reason: str | None
    started_at_us: int | None
    ended_at_us: int | None
    git_commit: str | None
    failure: str | None
    gpu_use: str | None
    params: str | None


class SweepRecord(msgspec.Struct, frozen=True):
    """A sweep with its first and its last job; None if no run is recorded any more."""

    id: int
    name: str
    cwd: bytes
    first_job: int | None
    last_job: int | None


def sweep_number(database: Database, name: str, cwd: bytes) -> int:
    """Return the number of a sweep; a new one gets a number. Inside a transaction."""
    database.write("INSERT OR IGNORE INTO sweep (name, cwd) VALUES (?, ?)", (name, cwd))
    row = database.execute("SELECT id FROM sweep WHERE name = ? AND cwd = ?", (name, cwd))
    return int(row.fetchone()[0])


def add_runs(database: Database, sweep: int, first: int, runs: Sequence[RunRow | None]) -> None:
    """Record the runs of a sweep for jobs from `first` on; None for a job that is no run."""
    for start in range(0, len(runs), _AT_ONCE):
        part = [run for run in runs[start : start + _AT_ONCE] if run is not None]
        if len(part) == _AT_ONCE:
            fields = [field for run in part for field in (run.identity, run.dir, run.params)]
            database.write(_ADD_RUNS, (sweep, first + start, *fields))
            continue
        database.write_many(
            _ADD_RUN,
            (
                (sweep, job, run.identity, run.dir, run.params)
                for job, run in enumerate(runs[start : start + _AT_ONCE], first + start)
                if run is not None
            ),
        )


def runs_after(
    database: Database, name: str, cwd: bytes, job: int, *, limit: int, params: bool
) -> list[SweepRunRecord]:
    """Return the runs of a sweep after this job, by job."""
    return list(starmap(SweepRunRecord, database.execute(_RUNS, (params, name, cwd, job, limit))))


def states_of(database: Database, name: str, cwd: bytes) -> list[tuple[int, State]]:
    """Return the jobs of a sweep that exist, with their states, by job."""
    rows = database.execute(_STATES, (name, cwd))
    return [(job, State(state)) for job, state in rows]


def newest_sweeps(database: Database, limit: int) -> list[SweepRecord]:
    """Return the newest sweeps, the newest first."""
    return list(starmap(SweepRecord, database.execute(_NEWEST, (limit,))))


def count_runs(database: Database, sweep: int, limit: int) -> dict[State, int]:
    """Count the newest runs of a sweep by state."""
    rows = database.execute(_COUNTS, (sweep, limit))
    return {State(state): number for state, number in rows}


def sweep_of(database: Database, job: int) -> tuple[str, bytes] | None:
    """Return the name and the folder of the sweep that a job is a run of; None if it is none."""
    row = database.execute(
        "SELECT name, cwd FROM sweep_run JOIN sweep ON sweep.id = sweep WHERE job = ?", (job,)
    ).fetchone()
    return None if row is None else (row[0], row[1])
