"""Queries for jobs, their states and the reasons of these."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from stoker.core.job import JobClass
from stoker.core.lifecycle import State
from stoker.store.database import Database, open_read_only
from stoker.store.jobs import CLASS_COLUMNS, FINAL_STATES

# Jobs in these states always have a reason, so the index of reasons finds them.
RARE_STATES = frozenset(
    {State.HELD, State.BLOCKED, State.DELAYED, State.SKIPPED, State.FAILED, State.LOST}
    | {State.PRUNED}
)
TRIAL = "trial-"  # how the request ids begin that add runs of adaptive sweeps
_STATES = {state.value: state for state in State}
_MATCHING = (
    "SELECT state, count(*) FROM job JOIN class ON class.id = job.class"
    " WHERE submission IS NOT NULL AND (:project IS NULL OR project = :project)"
    " AND (:gpu IS NULL OR instr('+' || replace(job.slots, ',', '+') || '+', '+' || :gpu || '+'))"
    " AND (:text IS NULL OR instr(lower(ifnull(name, '')), :text)"
    " OR instr(lower(CAST(substr(command, 1, 1000) AS TEXT)), :text)) GROUP BY state"
)
_PENDING_BY_PROJECT = (
    "SELECT project, state, sum(jobs) FROM ("
    "SELECT class AS of_class, state, count(*) AS jobs FROM job WHERE state = 'waiting' GROUP BY class"
    " UNION ALL SELECT class, state, count(*) FROM job"
    " WHERE state IN ('held', 'blocked', 'delayed') AND reason IS NOT NULL GROUP BY class, state"
    ") JOIN class ON class.id = of_class GROUP BY project, state"
)
_WAITING = (
    f"SELECT job.id, priority, name, substr(command, 1, ?), form, {CLASS_COLUMNS} FROM job"  # noqa: S608 - ours
    " JOIN class ON class.id = job.class WHERE state = 'waiting'"
    " ORDER BY priority DESC, rank, job.id LIMIT ?"
)


class NamedJob(NamedTuple):
    """A job that was found by its name."""

    id: int
    state: State
    project: str | None


class Condition(NamedTuple):
    """Jobs in one of these states (none: in any) and of this project (None: of any)."""

    states: Sequence[State] = ()
    project: str | None = None

    def sql(self) -> str:
        """The condition of a WHERE clause."""
        names = ", ".join(f"'{state.value}'" for state in self.states)
        parts = [f"state IN ({names})"] if names else []
        if names and RARE_STATES.issuperset(self.states):
            parts.append("reason IS NOT NULL")
        if self.project is not None:
            parts.append("class IN (SELECT id FROM class WHERE project = ?)")
        return " AND ".join(parts) or "1"

    def values(self) -> tuple[str, ...]:
        """The values that the condition has places for."""
        return () if self.project is None else (self.project,)


class WaitingJob(msgspec.Struct, frozen=True, gc=False):
    """What the duration of a waiting job can be estimated from."""

    id: int
    priority: int
    name: str | None
    command_head: bytes
    form: str | None
    needs: JobClass


def state_of(database: Database, job: int) -> State | None:
    """Return the state of a job; None if there is no such job."""
    row = database.execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()
    return State(row[0]) if row else None


def reason_of(database: Database, job: int) -> str | None:
    """Return the reason of a job's state; None if there is no such job or no reason."""
    row = database.execute("SELECT reason FROM job WHERE id = ?", (job,)).fetchone()
    return row[0] if row else None


def newest_id(database: Database) -> int:
    """Return the highest id of a job; 0 if there is none."""
    return int(database.execute("SELECT coalesce(max(id), 0) FROM job").fetchone()[0])


def newest_job(database: Database) -> list[tuple[int, State]]:
    """Return the job that was added last, if there is one."""
    return _find(database, "ORDER BY id DESC LIMIT 1", ())


def jobs_between(database: Database, first: int, last: int) -> list[tuple[int, State]]:
    """Return the jobs in a range of ids."""
    return _find(database, "WHERE id BETWEEN ? AND ?", (first, last))


def is_any_between(database: Database, first: int, last: int) -> bool:
    """Whether there is a job in a range of ids."""
    return bool(_find(database, "WHERE id BETWEEN ? AND ? LIMIT 1", (first, last)))


def jobs_that_fit(database: Database, condition: Condition) -> list[tuple[int, State]]:
    """Return the jobs that fit a condition, by id."""
    return _find(database, f"WHERE {condition.sql()} ORDER BY id", condition.values())


def _find(database: Database, clause: str, values: Sequence[object]) -> list[tuple[int, State]]:
    rows = database.execute(f"SELECT id, state FROM job {clause}", values)  # noqa: S608 - ours
    return [(job, _STATES[state]) for job, state in rows]


def jobs_named(database: Database, name: str) -> list[NamedJob]:
    """Return the jobs with a name, by id."""
    rows = database.execute(
        "SELECT job.id, state, project FROM job JOIN class ON class.id = job.class"
        " WHERE name = ? ORDER BY job.id",
        (name,),
    )
    return [NamedJob(job, _STATES[state], project) for job, state, project in rows]


def projects(database: Database) -> list[str]:
    """Return the projects that jobs were added to, the newest first."""
    rows = database.execute(
        "SELECT project FROM class WHERE project IS NOT NULL GROUP BY project ORDER BY max(id) DESC"
    )
    return [name for (name,) in rows]


def count_between(
    database: Database, first: int, last: int, condition: Condition
) -> dict[State, int]:
    """Count the jobs in a range of ids that fit a condition, by state."""
    sql = (
        "SELECT state, count(*) FROM job WHERE id BETWEEN ? AND ?"  # noqa: S608 - ours
        f" AND {condition.sql()} GROUP BY state"
    )
    return _by_state(database.execute(sql, (first, last, *condition.values())))


def run_times_between(
    database: Database, first: int, last: int, condition: Condition
) -> list[tuple[int, int]]:
    """Return start and end in microseconds of the attempts of jobs in a range that fit a condition."""
    where = f"id BETWEEN ? AND ? AND {condition.sql()}"
    sql = (
        f"SELECT started_at_us, ended_at_us FROM job WHERE {where}"  # noqa: S608 - ours
        " UNION ALL SELECT started_at_us, ended_at_us FROM earlier_attempt"
        f" WHERE job IN (SELECT id FROM job WHERE {where})"
    )
    rows = database.execute(sql, (first, last, *condition.values()) * 2)
    return [(begin, end) for begin, end in rows if begin is not None and end is not None]


def count_newer(database: Database, job: int) -> dict[State, int]:
    """Count the jobs that were added after this one, by state."""
    return _by_state(
        database.execute(
            "SELECT state, count(*) FROM job WHERE id > ? AND submission IS NOT NULL GROUP BY state",
            (job,),
        )
    )


def count_newer_trials(database: Database, job: int) -> dict[State, int]:
    """Count the runs that adaptive sweeps added after this job, by state."""
    return _by_state(
        database.execute(
            "SELECT state, count(*) FROM job JOIN submission ON submission.id = job.submission"  # noqa: S608 - ours
            f" WHERE job.id > ? AND request_id GLOB '{TRIAL}*' GROUP BY state",
            (job,),
        )
    )


def count_ended(database: Database, since_us: int, last: int) -> dict[State, int]:
    """Count the jobs up to this one that have ended since a time, by state."""
    return _by_state(
        database.execute(
            "SELECT state, count(*) FROM job WHERE submission IS NOT NULL AND ended_at_us >= ? AND id <= ?"  # noqa: S608 - ours
            f" AND state IN ({FINAL_STATES}) GROUP BY state",
            (since_us, last),
        )
    )


def count_matching(
    path: str, *, project: str | None, text: str | None, gpu: str | None
) -> dict[State, int]:
    """Count matching jobs by state; reads every job, with its own connection."""
    values = {"project": project, "gpu": gpu, "text": None if text is None else text.lower()}
    with contextlib.closing(open_read_only(path)) as connection:
        return _by_state(connection.execute(_MATCHING, values))


def count_pending(path: str) -> dict[tuple[str | None, State], int]:
    """Count the jobs that have not begun by project and state, with its own connection."""
    with contextlib.closing(open_read_only(path)) as connection:
        rows = connection.execute(_PENDING_BY_PROJECT)
        return {(project, _STATES[state]): number for project, state, number in rows}


def _by_state(rows: Iterable[tuple[str, int]]) -> dict[State, int]:
    return {_STATES[state]: number for state, number in rows}


def has_pending(database: Database, project: str | None) -> bool:
    """Whether a project, or None for no project, has jobs that have not started."""
    row = database.execute(
        "SELECT 1 FROM job JOIN class ON class.id = job.class WHERE project IS ?"
        " AND state IN ('waiting', 'starting', 'blocked', 'delayed') AND pid IS NULL LIMIT 1",
        (project,),
    ).fetchone()
    return row is not None


def first_waiting(database: Database, limit: int, head_bytes: int) -> list[WaitingJob]:
    """Return the first jobs in queue order, each with so many bytes of its command."""
    rows = database.execute(_WAITING, (head_bytes, limit))
    return [WaitingJob(*(*row[:5], JobClass(*row[5:]))) for row in rows]


def read_states(path: str) -> dict[int, State]:
    """Return the states of all jobs in a database that other processes may use."""
    with contextlib.closing(open_read_only(path)) as connection:
        rows = connection.execute("SELECT id, state FROM job")
        return {job: _STATES[state] for job, state in rows}
