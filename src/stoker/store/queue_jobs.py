"""The daemon's jobs: what was submitted with them, how many stand where, and ids never used again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

from stoker.core.job import Attempt, Ending, Options, Outcome, Request
from stoker.core.lifecycle import TABLE, Event, State
from stoker.core.planner import Candidate
from stoker.store.database import Database
from stoker.store.jobs import HEADS, NO_USAGE, ClassKey, Jobs, Usage, most_of, order_of

_LAST_ID = "last_id"
_REMOVAL = "removal."
_KNOWN_SUBMISSIONS = 256
_REPEATABLE_US = 86_400_000_000
_ADD = (
    "INSERT INTO job (id, rank, command, class, priority, state, submission, form, name, log,"
    " retries, options) VALUES (?1, ?1 << 16, ?2, ?3, ?4, 'waiting', ?5, ?6, ?7, ?8, ?9, ?10)"
)
_FACTS = (
    "SELECT job.id, attempt, tries, retries, priority, command, form, name, log, fresh, submission,"
    " class.slots, timeout_s, project, ending, job.slots, pid, started_at_us, grace_s, state, options,"
    " rank, begin_at_us, held, stopped_at_us, stopped_us, sweep_run.dir, share, gpu_mem, place,"
    " log_since"
    " FROM job JOIN class ON class.id = job.class LEFT JOIN sweep_run ON sweep_run.job = job.id"
)


_PUT_BEHIND = (
    "UPDATE job SET rank = max(?1, 1 + (SELECT max(rank) FROM job AS other"
    " WHERE other.state = 'waiting' AND other.priority = job.priority)) WHERE id = ?2"
)
_AT_ONCE = 100
_ADD_LINES = (
    "INSERT INTO job (class, priority, state, submission, retries, options, name, log, id, rank,"  # noqa: S608
    " command) VALUES "
    + ", ".join(
        f"(?1, ?2, 'waiting', ?3, ?4, ?5, ?6, ?7, ?8 + {row}, (?8 + {row}) << 16, ?{row + 9})"
        for row in range(_AT_ONCE)
    )
)


USUAL = Options()
_options = msgspec.json.Decoder(Options)
_ADD_RUN = "INSERT INTO sweep_run (sweep, job, identity, dir, params) VALUES (?, ?, ?, ?, ?)"
_ADD_RUNS = (
    "INSERT INTO sweep_run (sweep, job, identity, dir, params) VALUES "  # noqa: S608
    + ", ".join(
        f"(?1, ?2 + {row}, ?{3 * row + 3}, ?{3 * row + 4}, ?{3 * row + 5})"
        for row in range(_AT_ONCE)
    )
)


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """What makes a job a run of a sweep."""

    identity: bytes
    dir: bytes
    params: str


class NewRow(msgspec.Struct, frozen=True, gc=False):
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


class JobEnvironment(msgspec.Struct, frozen=True, kw_only=True):
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
    grace_s: float | None
    state: str
    options: bytes | None
    rank: int
    begin_at_us: int | None
    held: int | None
    stopped_at_us: int | None
    stopped_us: int | None
    run_dir: bytes | None = None
    share: str | None = None
    gpu_mem: int | None = None
    where: str | None = None
    log_since: int | None = None

    @property
    def being_ended(self) -> tuple[Ending, str] | None:
        """Why it is being ended, if it is."""
        if self.ending is None:
            return None
        kind, _, reason = self.ending.partition(": ")
        known = {ending.value: ending for ending in Ending}
        return (known[kind], reason) if kind in known else (Ending.KILL, self.ending)

    @property
    def request(self) -> Request:
        """What it asks for."""
        return Request(
            slots=self.gpus,
            priority=self.priority,
            timeout_s=self.timeout_s,
            retries=self.retries or 0,
            share=self.share,
            gpu_mem=self.gpu_mem,
            where=self.where,
            options=USUAL if self.options is None else _options.decode(self.options),
        )


def candidate_of(facts: Facts) -> Candidate:
    """A waiting job as far as planning cares."""
    return Candidate(
        facts.id,
        facts.gpus,
        facts.priority,
        facts.rank,
        facts.timeout_s,
        None,
        facts.project,
        facts.share,
        facts.gpu_mem,
        facts.where,
    )


class QueueJobs(Jobs):
    """Reads and writes the daemon's jobs; its tally is committed with what it counts."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        rows = self._execute("SELECT name, value FROM tally")
        self._committed: Counter[str] = Counter(dict(rows.fetchall()))
        self._pending: Counter[str] = Counter()
        self._last_id = max(self._last_id, self._committed[_LAST_ID])
        database.before_commit = self._flush
        database.on_rollback = self.forget_uncommitted
        # Whether to look for jobs that start before all others; they are few, and seldom.
        self.has_forced = self._has("forced IS NOT NULL")
        # Whether a job may push others out.
        self.has_preempting = self._has("options IS NOT NULL AND state = 'waiting'")
        self._paused = self._find_paused()
        self.surroundings = lru_cache(_KNOWN_SUBMISSIONS)(self._surroundings)

    def _has(self, condition: str) -> bool:
        sql = f"SELECT 1 FROM job WHERE {condition} LIMIT 1"  # noqa: S608 - our own
        return self._execute(sql).fetchone() is not None

    def _find_paused(self) -> set[int]:
        if not self._committed[State.PAUSED.value]:
            return set()
        return {job for (job,) in self._execute("SELECT id FROM job WHERE state = 'paused'")}

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
        options = None if request.options == USUAL else msgspec.json.encode(request.options)
        self.has_preempting = self.has_preempting or request.options.preempt
        common = (number, request.priority, reservation.submission, request.retries, options)
        first = reservation.first_job + offset
        done = 0
        if _are_lines(rows):
            # One statement for many rows costs half as much as many for one each.
            for done in range(_AT_ONCE, len(rows) + 1, _AT_ONCE):
                part = [row.command for row in rows[done - _AT_ONCE : done]]
                shared = (rows[0].name, rows[0].log, first + done - _AT_ONCE)
                self._write(_ADD_LINES, (*common, *shared, *part))
        self.database.write_many(
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
                    options,
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

    def added(self, reservation: Reservation) -> int:
        """How many of a submission's jobs are in by now."""
        row = self._execute(
            "SELECT added FROM submission WHERE id = ?", (reservation.submission,)
        ).fetchone()
        return int(row[0])

    def heads_by_project(
        self,
        limit: int,
        light: int,
        room_of: Callable[[str | None], int | None],
        allowed_of: Callable[[str | None, str | None], frozenset[int] | None],
        deep: int = 0,
    ) -> list[Candidate]:
        """As `heads`, of each project as many as have room, with the slots that it may use there."""
        found: list[Candidate] = []
        for number, slots, timeout_s, project, share, gpu_mem, where in self.classes():
            room = room_of(project)
            most = most_of(slots, share, limit, light, deep)
            wanted = most if room is None else min(most, room)
            rows = self._execute(HEADS, (number, wanted)).fetchall() if wanted else ()
            if rows:
                allowed = allowed_of(project, where)
                found += [
                    Candidate(
                        *(job, slots, priority, rank, timeout_s, allowed, project, share, gpu_mem),
                        where,
                    )
                    for job, priority, rank in rows
                ]
        return sorted(found, key=order_of)

    def candidate(self, job: int) -> Candidate:
        """A waiting job as far as planning cares."""
        return candidate_of(self.facts(job))

    def forced(self) -> list[int]:
        """The waiting jobs that are to start before all others."""
        rows = self._execute("SELECT id, state FROM job WHERE forced IS NOT NULL").fetchall()
        self.has_forced = bool(rows)
        return [job for job, state in rows if state == State.WAITING.value]

    def force(self, job: int) -> None:
        """Let a waiting job start before all others."""
        self._write("UPDATE job SET forced = 1 WHERE id = ?", (job,))
        self.has_forced = True

    @property
    def last_id(self) -> int:
        """The highest id that was given out."""
        return self._last_id

    def advance_ids(self, past: int) -> None:
        """Give out only ids above this one from now on."""
        self._last_id = max(self._last_id, past)

    def attempt_of(self, job: int) -> int | None:
        """How many attempts of a job were claimed; None if there is no such job."""
        row = self._execute("SELECT attempt FROM job WHERE id = ?", (job,)).fetchone()
        return None if row is None else int(row[0])

    def state_of(self, job: int) -> State:
        """Where a job that exists stands."""
        return State(self._execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()[0])

    def _add_runs(self, sweep: int, first: int, runs: Sequence[RunRow | None]) -> None:
        """Record which jobs are runs of a sweep; a job of a submission may also be none."""
        for start in range(0, len(runs), _AT_ONCE):
            part = [run for run in runs[start : start + _AT_ONCE] if run is not None]
            if len(part) == _AT_ONCE:
                fields = [field for run in part for field in (run.identity, run.dir, run.params)]
                self._write(_ADD_RUNS, (sweep, first + start, *fields))
                continue
            self.database.write_many(
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
        rows = self._execute(f"{_FACTS} WHERE state IN ('starting', 'running', 'paused')")
        return [Facts(*row) for row in rows]

    def _surroundings(self, submission: int) -> JobEnvironment:
        row = self._execute(
            "SELECT environment, cwd, shell, snapshot, linger FROM submission WHERE id = ?",
            (submission,),
        ).fetchone()
        return JobEnvironment(
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
        self.count_move(State.WAITING, State.RUNNING)

    def revoke(self, job: int) -> None:
        """Take a claim back."""
        super().revoke(job)
        self.count_move(State.RUNNING, State.WAITING)

    def end(
        self,
        job: int,
        outcome: Outcome,
        usage: Usage = NO_USAGE,
        pid: int | None = None,
        started_at_us: int | None = None,
        slots: str | None = None,
    ) -> None:
        """Record how a job's attempt ended, and on which slots if that is not on record."""
        super().end(job, outcome, usage, pid, started_at_us, slots)
        self.count_move(State.PAUSED if job in self._paused else State.RUNNING, outcome.state)
        self._paused.discard(job)

    def pause(self, job: int, at_us: int) -> None:
        """Record that a running job is stopped."""
        super().pause(job, at_us)
        self._paused.add(job)
        self.count_move(State.RUNNING, State.PAUSED)

    def resume(self, job: int, at_us: int) -> None:
        """Record that a stopped job goes on."""
        super().resume(job, at_us)
        self._paused.discard(job)
        self.count_move(State.PAUSED, State.RUNNING)

    def shelve(
        self, job: int, event: Event, reason: str | None = None, at_us: int | None = None
    ) -> None:
        """Record whether a job that has not begun may begin."""
        state = self.state_of(job)
        super().shelve(job, event, reason, at_us)
        self.count_move(state, TABLE[event][1])

    def cancel(self, job: int, reason: str, at_us: int) -> None:
        """End a job that has not begun."""
        state = self.state_of(job)
        super().cancel(job, reason, at_us)
        self.count_move(state, State.KILLED)

    def retry(self, job: int, event: Event = Event.RETRY) -> None:
        """Let a job wait for another attempt."""
        state = self.state_of(job)
        super().retry(job, event)
        self.count_move(state, State.WAITING)

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

    def mark_ending(
        self, job: int, reason: str, grace_s: float | None = None, ending: Ending = Ending.KILL
    ) -> None:
        """Remember that a job is being ended and why, whatever happens to this process."""
        mark = f"{ending.value}: {reason}"
        self._write("UPDATE job SET ending = ?, grace_s = ? WHERE id = ?", (mark, grace_s, job))

    def forgive(self, job: int) -> None:
        """Let a try not count among those that a job has."""
        self._write("UPDATE job SET tries = max(tries - 1, 0) WHERE id = ? AND tries > 0", (job,))

    def put_behind(self, job: int) -> None:
        """Let a waiting job wait behind all others of its priority."""
        self._write(_PUT_BEHIND, ((self._last_id << 16) + 1, job))

    def alter(self, job: int, columns: Mapping[str, object]) -> None:
        """Change what a job asks for; the names are the database's own."""
        names = ", ".join(f"{name} = ?" for name in columns)
        self._write(
            f"UPDATE job SET {names} WHERE id = ?",  # noqa: S608 - our own names
            (*columns.values(), job),
        )

    def put_at(self, job: int, priority: int, rank: int) -> None:
        """Give a job its place in the queue."""
        self._write("UPDATE job SET priority = ?, rank = ? WHERE id = ?", (priority, rank, job))

    def remove(self, jobs: Iterable[tuple[int, State]]) -> None:
        """Forget jobs that are over or wait."""
        for job, state in jobs:
            self._write("DELETE FROM earlier_attempt WHERE job = ?", (job,))
            self._write("DELETE FROM reservation WHERE job = ?", (job,))
            self._write("DELETE FROM job WHERE id = ?", (job,))
            # A success stays known, whatever is tidied away.
            if state is State.DONE:
                self._write("UPDATE sweep_run SET done = 1, params = NULL WHERE job = ?", (job,))
            else:
                self._write("DELETE FROM sweep_run WHERE job = ?", (job,))
            self._pending[state.value] -= 1

    def note_removal(self, first: int, files: bytes) -> None:
        """Remember that files are to be removed with jobs, of which this is the first."""
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", (f"{_REMOVAL}{first}", files))

    def forget_removal(self, first: int) -> None:
        """The files are gone."""
        self._write("DELETE FROM meta WHERE name = ?", (f"{_REMOVAL}{first}",))

    def removals(self) -> list[tuple[int, bytes]]:
        """What was noted, and not finished."""
        rows = self._execute("SELECT name, value FROM meta WHERE name GLOB ?", (f"{_REMOVAL}*",))
        return [(int(name.removeprefix(_REMOVAL)), bytes(value)) for name, value in rows]

    def forget_submissions(self) -> None:
        """Drop what no job refers to any more; the newest stay, so that a late repeat is known."""
        with self.database.transaction():
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
        import hashlib  # late: a foreground run has no use for it

        digest = hashlib.sha256(block).digest()
        find = "SELECT id FROM environment WHERE digest = ?"
        row = self._execute(find, (digest,)).fetchone()
        if row is None:
            self._write("INSERT INTO environment (digest, block) VALUES (?, ?)", (digest, block))
            row = self._execute(find, (digest,)).fetchone()
        return int(row[0])

    def count_move(self, source: State, target: State) -> None:
        """Count that a job went from one state to another; what is starting is running here."""
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

    def forget_uncommitted(self) -> None:
        """After a rollback: believe only what is committed; ids that nobody was told are free again."""
        self._pending.clear()
        self._classes.clear()
        rows = self._execute("SELECT name, value FROM tally")
        self._committed = Counter(dict(rows.fetchall()))
        self._last_id = self._committed[_LAST_ID]
        self._paused = self._find_paused()


def _are_lines(rows: Sequence[NewRow]) -> bool:
    """Whether rows are shell lines that have all but their commands in common."""
    name, log = rows[0].name, rows[0].log
    return all(row.form is None and row.name == name and row.log == log for row in rows)
