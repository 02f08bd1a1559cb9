"""The daemon's jobs: what was submitted with them, how many stand where, and ids never used again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.lifecycle import Event, State
from stoker.store.database import Database
from stoker.store.jobs import NO_USAGE, ClassKey, Jobs, Usage

_LAST_ID = "last_id"
_KNOWN_SUBMISSIONS = 256
_REPEATABLE_US = 86_400_000_000
_ADD = (
    "INSERT INTO job (id, command, class, priority, state, submission, form, name, log, retries)"
    " VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?, ?, ?)"
)
_FACTS = (
    "SELECT job.id, attempt, tries, retries, priority, command, form, name, log, fresh, submission,"
    " class.slots, timeout_s, project, ending, job.slots, pid, started_at_us, sweep_run.dir"
    " FROM job JOIN class ON class.id = job.class LEFT JOIN sweep_run ON sweep_run.job = job.id"
)


_AT_ONCE = 100
_ADD_LINES = (
    "INSERT INTO job (class, priority, state, submission, retries, name, log, id, command) VALUES "  # noqa: S608
    + ", ".join(
        f"(?1, ?2, 'waiting', ?3, ?4, ?5, ?6, ?7 + {row}, ?{row + 8})" for row in range(_AT_ONCE)
    )
)


_ADD_RUN = "INSERT INTO sweep_run (sweep, job, identity, dir, params) VALUES (?, ?, ?, ?, ?)"
_ADD_RUNS = (
    "INSERT INTO sweep_run (sweep, job, identity, dir, params) VALUES "  # noqa: S608
    + ", ".join(
        f"(?1, ?2 + {row}, ?{3 * row + 3}, ?{3 * row + 4}, ?{3 * row + 5})"
        for row in range(_AT_ONCE)
    )
)


class RunRow(msgspec.Struct, frozen=True):
    """What makes a job a run of a sweep."""

    identity: bytes
    dir: bytes
    params: str


class NewRow(msgspec.Struct, frozen=True):
    """What is one job's own in a submission."""

    command: bytes
    form: str | None = None
    name: str | None = None
    log: bytes | None = None
    run: RunRow | None = None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of a submission share."""

    request_id: str
    jobs: int
    submitted_at_us: int
    environment: bytes
    cwd: bytes
    shell: str | None = None
    snapshot: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None
    user: str | None = None
    host: str | None = None
    linger: bool = False


class Reservation(msgspec.Struct, frozen=True):
    """The ids of a submission, and how many of its jobs are in already."""

    submission: int
    first_job: int
    jobs: int
    added: int


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how the jobs of a submission run."""

    environment: int
    cwd: bytes
    shell: str | None
    snapshot: str | None
    linger: bool


class Facts(msgspec.Struct, frozen=True):
    """All that is needed to start a job, or to take it over."""

    id: int
    attempt: int
    tries: int | None
    retries: int | None
    priority: int
    command: bytes
    form: str | None
    name: str | None
    log: bytes | None
    fresh: int | None
    submission: int
    gpus: int
    timeout_s: float | None
    project: str | None
    ending: str | None
    slots: str | None
    pid: int | None
    started_at_us: int | None
    run_dir: bytes | None = None

    @property
    def request(self) -> Request:
        """What it asks for."""
        return Request(
            slots=self.gpus,
            priority=self.priority,
            timeout_s=self.timeout_s,
            retries=self.retries or 0,
        )


class QueuedJobs(Jobs):
    """Reads and writes the daemon's jobs; its tally is committed with what it counts."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        rows = self._execute("SELECT name, value FROM tally")
        self._committed: Counter[str] = Counter(dict(rows.fetchall()))
        self._pending: Counter[str] = Counter()
        self._last_id = max(self._last_id, self._committed[_LAST_ID])
        database.before_commit = self._flush
        database.on_rollback = self._forget
        self.surroundings = lru_cache(_KNOWN_SUBMISSIONS)(self._surroundings)

    def tally(self) -> dict[State, int]:
        """How many jobs stand where; those that are starting count as running."""
        known = self._committed + self._pending
        return {state: known[state.value] for state in State if known[state.value]}

    def count(self, state: State) -> int:
        """How many jobs are in one state."""
        return self._committed[state.value] + self._pending[state.value]

    def reserve(self, common: Common) -> Reservation:
        """Begin a submission, or find the one with this request id."""
        row = self._execute(
            "SELECT id, first_job, jobs, added FROM submission WHERE request_id = ?",
            (common.request_id,),
        ).fetchone()
        if row is not None:
            return Reservation(*row)
        first = self._last_id + 1
        self._last_id += common.jobs
        values = msgspec.structs.asdict(common)
        values["environment"] = self._intern(common.environment)
        values["first_job"] = first
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        self._write(
            f"INSERT INTO submission ({names}) VALUES ({marks})",  # noqa: S608 - our own names
            tuple(values.values()),
        )
        number = self._execute("SELECT last_insert_rowid()").fetchone()[0]
        return Reservation(number, first, common.jobs, 0)

    def fill(
        self,
        reservation: Reservation,
        offset: int,
        rows: Sequence[NewRow],
        key: ClassKey,
        request: Request,
        sweep: int | None = None,
    ) -> None:
        """Add the next jobs of a submission; they wait from now on."""
        number = self.class_of(key)
        common = (number, request.priority, reservation.submission, request.retries)
        first = reservation.first_job + offset
        done = 0
        if _are_lines(rows):
            # One statement for many rows costs half as much as many for one each.
            for done in range(_AT_ONCE, len(rows) + 1, _AT_ONCE):
                part = [row.command for row in rows[done - _AT_ONCE : done]]
                shared = (rows[0].name, rows[0].log, first + done - _AT_ONCE)
                self._write(_ADD_LINES, (*common, *shared, *part))
        self._database.write_many(
            _ADD,
            (
                (
                    job,
                    row.command,
                    number,
                    request.priority,
                    reservation.submission,
                    row.form,
                    row.name,
                    row.log,
                    request.retries,
                )
                for job, row in enumerate(rows[done:], first + done)
            ),
        )
        if sweep is not None:
            self._add_runs(sweep, first, [row.run for row in rows])
        self._write(
            "UPDATE submission SET added = ? WHERE id = ?",
            (offset + len(rows), reservation.submission),
        )
        self._pending[State.WAITING.value] += len(rows)

    def _add_runs(self, sweep: int, first: int, runs: Sequence[RunRow | None]) -> None:
        """Record which jobs are runs of a sweep; a job of a submission may also be none."""
        for start in range(0, len(runs), _AT_ONCE):
            part = [run for run in runs[start : start + _AT_ONCE] if run is not None]
            if len(part) == _AT_ONCE:
                fields = [field for run in part for field in (run.identity, run.dir, run.params)]
                self._write(_ADD_RUNS, (sweep, first + start, *fields))
                continue
            self._database.write_many(
                _ADD_RUN,
                (
                    (sweep, job, run.identity, run.dir, run.params)
                    for job, run in enumerate(runs[start : start + _AT_ONCE], first + start)
                    if run is not None
                ),
            )

    def sweep_of(self, name: str, cwd: bytes) -> int:
        """The number of a sweep, which is new or known."""
        self._write("INSERT OR IGNORE INTO sweep (name, cwd) VALUES (?, ?)", (name, cwd))
        row = self._execute("SELECT id FROM sweep WHERE name = ? AND cwd = ?", (name, cwd))
        return int(row.fetchone()[0])

    def params_of(self, job: int) -> str | None:
        """The parameters of a sweep's run, as JSON."""
        row = self._execute("SELECT params FROM sweep_run WHERE job = ?", (job,)).fetchone()
        return None if row is None else row[0]

    def facts(self, job: int) -> Facts:
        """All that is needed to start a job that exists."""
        return Facts(*self._execute(f"{_FACTS} WHERE job.id = ?", (job,)).fetchone())

    def live_facts(self) -> list[Facts]:
        """The same of all jobs that had a process when last heard of."""
        rows = self._execute(f"{_FACTS} WHERE state IN ('starting', 'running')")
        return [Facts(*row) for row in rows]

    def _surroundings(self, submission: int) -> Surroundings:
        row = self._execute(
            "SELECT environment, cwd, shell, snapshot, linger FROM submission WHERE id = ?",
            (submission,),
        ).fetchone()
        return Surroundings(
            environment=row[0], cwd=row[1], shell=row[2], snapshot=row[3], linger=bool(row[4])
        )

    def environment(self, number: int) -> bytes:
        """An environment's entries, each ending in NUL."""
        row = self._execute("SELECT block FROM environment WHERE id = ?", (number,)).fetchone()
        block = row[0]
        assert isinstance(block, bytes)
        return block

    def claim(self, job: int, slots: str) -> None:
        """Record the intent to start a waiting job."""
        super().claim(job, slots)
        self._move(State.WAITING, State.RUNNING)

    def revoke(self, job: int) -> None:
        """Take a claim back."""
        super().revoke(job)
        self._move(State.RUNNING, State.WAITING)

    def end(
        self,
        job: int,
        outcome: Outcome,
        usage: Usage = NO_USAGE,
        pid: int | None = None,
        started_at_us: int | None = None,
    ) -> None:
        """Record how a job's attempt ended."""
        super().end(job, outcome, usage, pid, started_at_us)
        self._move(State.RUNNING, outcome.state)

    def cancel(self, job: int, reason: str, at_us: int) -> None:
        """End a job that waits."""
        super().cancel(job, reason, at_us)
        self._move(State.WAITING, State.KILLED)

    def retry(self, job: int, event: Event = Event.RETRY) -> None:
        """Let a job wait for another attempt."""
        state = State(self._execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()[0])
        super().retry(job, event)
        self._move(state, State.WAITING)

    def renew(self, job: int, state: State, *, fresh: bool) -> None:
        """Retry by hand: all its retries are open again; with `fresh` without its snapshot."""
        self.retry(job, Event.RERUN if state is State.DONE else Event.RETRY)
        self._write(
            "UPDATE job SET tries = 0, ending = NULL, fresh = coalesce(?, fresh) WHERE id = ?",
            (1 if fresh else None, job),
        )

    def count_try(self, attempt: Attempt, tries: int) -> None:
        """Remember how often a job with retries has been tried."""
        self._write("UPDATE job SET tries = ? WHERE id = ?", (tries, attempt.job))

    def mark_ending(self, job: int, reason: str) -> None:
        """Remember that a job is being killed, whatever happens to this process."""
        self._write("UPDATE job SET ending = ? WHERE id = ?", (reason, job))

    def remove(self, jobs: Iterable[tuple[int, State]]) -> None:
        """Forget jobs that are over or wait."""
        for job, state in jobs:
            self._write("DELETE FROM earlier_attempt WHERE job = ?", (job,))
            self._write("DELETE FROM job WHERE id = ?", (job,))
            # A success stays known, whatever is tidied away.
            if state is State.DONE:
                self._write("UPDATE sweep_run SET done = 1, params = NULL WHERE job = ?", (job,))
            else:
                self._write("DELETE FROM sweep_run WHERE job = ?", (job,))
            self._pending[state.value] -= 1

    def forget_submissions(self) -> None:
        """Drop what no job refers to any more; the newest stay, so that a late repeat is known."""
        with self._database.transaction():
            self._write(
                "DELETE FROM submission WHERE added = jobs AND submitted_at_us < ("
                " SELECT max(submitted_at_us) FROM submission) - ?"
                " AND NOT EXISTS (SELECT 1 FROM job WHERE id BETWEEN first_job"
                " AND first_job + submission.jobs - 1)",
                (_REPEATABLE_US,),
            )
            self._write(
                "DELETE FROM environment WHERE id NOT IN (SELECT environment FROM submission)", ()
            )

    def _intern(self, block: bytes) -> int:
        digest = hashlib.sha256(block).digest()
        find = "SELECT id FROM environment WHERE digest = ?"
        row = self._execute(find, (digest,)).fetchone()
        if row is None:
            self._write("INSERT INTO environment (digest, block) VALUES (?, ?)", (digest, block))
            row = self._execute(find, (digest,)).fetchone()
        return int(row[0])

    def _move(self, source: State, target: State) -> None:
        self._pending[source.value] -= 1
        self._pending[target.value] += 1

    def _flush(self) -> None:
        changed = {name: count for name, count in self._pending.items() if count}
        if self._last_id != self._committed[_LAST_ID]:
            changed[_LAST_ID] = self._last_id - self._committed[_LAST_ID]
        self._pending.clear()
        for name, count in changed.items():
            self._committed[name] += count
            self._write(
                "INSERT INTO tally VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (name, self._committed[name]),
            )

    def _forget(self) -> None:
        """After a rollback: believe only what is committed."""
        self._pending.clear()
        self._classes.clear()
        rows = self._execute("SELECT name, value FROM tally")
        self._committed = Counter(dict(rows.fetchall()))


def _are_lines(rows: Sequence[NewRow]) -> bool:
    """Whether rows are shell lines that have all but their commands in common."""
    name, log = rows[0].name, rows[0].log
    return all(row.form is None and row.name == name and row.log == log for row in rows)
