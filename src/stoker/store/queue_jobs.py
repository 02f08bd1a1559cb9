"""The daemon's jobs: their submissions, the number of jobs in each state, ids that are used once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from stoker.core.job import Attempt, Ending, Options, Request
from stoker.core.lifecycle import TABLE, Event, State
from stoker.core.planner import Candidate, make_candidate
from stoker.store.database import Database
from stoker.store.jobs import CLASS_COLUMNS, LIVE_STATES, Jobs
from stoker.store.named_values import NamedValues
from stoker.store.submissions import (
    USUAL,
    Common,
    NewRow,
    Reservation,
    add_rows,
    begin_submission,
    environment_of,
    find_submission,
    submitted_at_us,
)
from stoker.store.sweep_records import add_runs

_LAST_ID = "last_id"
_TALLIED_AS = {State.STARTING: State.RUNNING}
_KNOWN_SUBMISSIONS = 256
_STOPPED = (State.PAUSED, State.SUSPENDED)
_FACTS = (
    "SELECT job.id, attempt, tries, command, form, name, log, fresh, submission, ending, job.slots, pid,"  # noqa: S608
    " started_at_us, grace_s, state, rank, begin_at_us, held, stopped_at_us, stopped_us, sweep_run.dir,"
    f" log_since, priority, retries, options, {CLASS_COLUMNS}"
    " FROM job JOIN class ON class.id = job.class LEFT JOIN sweep_run ON sweep_run.job = job.id"
)


_PUT_BEHIND = (
    "UPDATE job SET rank = max(?1, 1 + (SELECT max(rank) FROM job AS other"
    " WHERE other.state = 'waiting' AND other.priority = job.priority)) WHERE id = ?2"
)
_options = msgspec.json.Decoder(Options)


class Facts(msgspec.Struct, frozen=True):
    """All that is needed to start a job, or to adopt its running attempt."""

    id: int
    attempt: int
    tries: int | None
    command: bytes
    form: str | None
    name: str | None
    log: bytes | None
    fresh: int | None
    submission: int
    ending: str | None
    slots: str | None
    pid: int | None
    started_at_us: int | None
    grace_s: float | None
    state: str
    rank: int
    begin_at_us: int | None
    held: int | None
    stopped_at_us: int | None
    stopped_us: int | None
    run_dir: bytes | None
    log_since: int | None
    request: Request

    @property
    def being_ended(self) -> tuple[Ending, str] | None:
        """Why Stoker is ending it, if it is."""
        if self.ending is None:
            return None
        kind, _, reason = self.ending.partition(": ")
        known = {ending.value: ending for ending in Ending}
        return (known[kind], reason) if kind in known else (Ending.KILL, self.ending)

    @property
    def candidate(self) -> Candidate:
        """The job as the planner sees it."""
        return make_candidate(self.id, self.request, self.rank)


def _read_facts(row: Sequence[Any]) -> Facts:
    own = len(Facts.__struct_fields__) - 1
    priority, retries, options, *needs = row[own:]
    request = Request(
        *needs,
        priority=priority,
        retries=retries or 0,
        options=USUAL if options is None else _options.decode(options),
    )
    return Facts(*(*row[:own], request))


class QueueJobs(Jobs):
    """Reads and writes the daemon's jobs. The counts per state are committed together with the changes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        rows = self._execute("SELECT name, value FROM tally")
        self._committed: Counter[str] = Counter(dict(rows.fetchall()))
        self._uncommitted: Counter[str] = Counter()
        self._last_id = max(self._last_id, self._committed[_LAST_ID])
        database.before_commit = self._flush
        database.on_rollback = self.forget_uncommitted
        # Whether there may be jobs that start before all others: they are rare.
        self.has_forced = self._has("forced IS NOT NULL")
        # Whether a waiting job may preempt others.
        self.has_preempting = self._has("options IS NOT NULL AND state = 'waiting'")
        self._stopped = self._find_stopped()
        self.surroundings = lru_cache(_KNOWN_SUBMISSIONS)(partial(environment_of, database))
        self.submitted_at_us = lru_cache(_KNOWN_SUBMISSIONS)(partial(submitted_at_us, database))
        self._removals = NamedValues(database, "removal.")
        self._moved = NamedValues(database, "moved.")

    def _has(self, condition: str) -> bool:
        sql = f"SELECT 1 FROM job WHERE {condition} LIMIT 1"  # noqa: S608 - our own
        return self._execute(sql).fetchone() is not None

    def _find_stopped(self) -> dict[int, State]:
        """Return the jobs that are paused or suspended: few, and counted by their own states."""
        if not any(self._committed[state.value] for state in _STOPPED):
            return {}
        rows = self._execute("SELECT id, state FROM job WHERE state IN ('paused', 'suspended')")
        return {job: State(state) for job, state in rows}

    def tally(self) -> dict[State, int]:
        """Return how many jobs are in each state; starting jobs count as running."""
        known = self._committed + self._uncommitted
        return {state: known[state.value] for state in State if known[state.value]}

    def count(self, state: State) -> int:
        """Return how many jobs are in one state."""
        return self._committed[state.value] + self._uncommitted[state.value]

    def reserve(self, common: Common) -> Reservation:
        """Begin a submission, or find the one with this request id."""
        found = find_submission(self.database, common.request_id)
        if found is not None:
            return found
        first = self._last_id + 1
        self._last_id += common.jobs
        return begin_submission(self.database, common, first)

    def fill(
        self,
        reservation: Reservation,
        offset: int,
        rows: Sequence[NewRow],
        request: Request,
        sweep: int | None = None,
    ) -> None:
        """Add the next jobs of a submission; they wait from now on."""
        self.has_preempting = self.has_preempting or request.options.preempt
        add_rows(self.database, reservation, offset, rows, self.class_of(request), request)
        if sweep is not None:
            first = reservation.first_job + offset
            add_runs(self.database, sweep, first, [row.run for row in rows])
        self._uncommitted[State.WAITING.value] += len(rows)

    def forced(self) -> list[int]:
        """Return the waiting jobs that start before all others."""
        rows = self._execute("SELECT id, state FROM job WHERE forced IS NOT NULL").fetchall()
        self.has_forced = bool(rows)
        return [job for job, state in rows if state == State.WAITING.value]

    def force(self, job: int) -> None:
        """Let a waiting job start before all others."""
        self._write("UPDATE job SET forced = 1 WHERE id = ?", (job,))
        self.has_forced = True

    @property
    def last_id(self) -> int:
        """The highest id that a job ever had."""
        return self._last_id

    def advance_ids(self, past: int) -> None:
        """Use only ids above this one from now on."""
        self._last_id = max(self._last_id, past)

    def attempt_of(self, job: int) -> int | None:
        """Return how many attempts a job had; None if there is no such job."""
        row = self._execute("SELECT attempt FROM job WHERE id = ?", (job,)).fetchone()
        return None if row is None else int(row[0])

    def state_of(self, job: int) -> State:
        """Return the state of a job that exists."""
        return State(self._execute("SELECT state FROM job WHERE id = ?", (job,)).fetchone()[0])

    def params_of(self, job: int) -> str | None:
        """Return the parameters of a sweep's run as JSON; None if the job is no run."""
        row = self._execute("SELECT params FROM sweep_run WHERE job = ?", (job,)).fetchone()
        return None if row is None else row[0]

    def facts(self, job: int) -> Facts:
        """Return the facts of a job that exists."""
        return _read_facts(self._execute(f"{_FACTS} WHERE job.id = ?", (job,)).fetchone())

    def live_facts(self) -> list[Facts]:
        """Return the facts of all jobs that may have a process."""
        rows = self._execute(f"{_FACTS} WHERE state IN ({LIVE_STATES})")
        return [_read_facts(row) for row in rows]

    def environment(self, number: int) -> bytes:
        """Return the entries of an environment, each ending in NUL."""
        row = self._execute("SELECT block FROM environment WHERE id = ?", (number,)).fetchone()
        block = row[0]
        assert isinstance(block, bytes)
        return block

    def change(self, event: Event, job: int, *values: object) -> None:
        """Change the state of a job by an event, and count it."""
        source, target = self._state_before(event, job), TABLE[event][1]
        super().change(event, job, *values)
        if source in _STOPPED:
            self._stopped.pop(job, None)
        elif target in _STOPPED:
            self._stopped[job] = target
        self._uncommitted[_TALLIED_AS.get(source, source).value] -= 1
        self._uncommitted[_TALLIED_AS.get(target, target).value] += 1

    def _state_before(self, event: Event, job: int) -> State:
        sources = TABLE[event][0]
        if len(sources) == 1:
            return sources[0]
        if State.RUNNING in sources:  # saves a query for each attempt that ends
            return self._stopped.get(job, State.RUNNING)
        return self.state_of(job)

    def renew(self, job: int, state: State, *, fresh: bool) -> None:
        """Queue an ended job again with all its retries; with `fresh` without its snapshot."""
        self.retry(job, Event.RERUN if state is State.DONE else Event.RETRY)
        self._write(
            "UPDATE job SET tries = 0, ending = NULL, fresh = coalesce(?, fresh) WHERE id = ?",
            (1 if fresh else None, job),
        )

    def count_try(self, attempt: Attempt, tries: int) -> None:
        """Record how often a job with retries has been tried."""
        self._write("UPDATE job SET tries = ? WHERE id = ?", (tries, attempt.job))

    def mark_ending(
        self, job: int, reason: str, grace_s: float | None = None, ending: Ending = Ending.KILL
    ) -> None:
        """Record that Stoker is ending a job, and why, for a daemon that starts after a crash."""
        mark = f"{ending.value}: {reason}"
        self._write("UPDATE job SET ending = ?, grace_s = ? WHERE id = ?", (mark, grace_s, job))

    def forgive(self, job: int) -> None:
        """Do not count the last try of a job."""
        self._write("UPDATE job SET tries = max(tries - 1, 0) WHERE id = ? AND tries > 0", (job,))

    def put_behind(self, job: int) -> None:
        """Move a waiting job behind all others of its priority."""
        self._write(_PUT_BEHIND, ((self._last_id << 16) + 1, job))
        self._moved.put(str(job), b"")

    def alter(self, job: int, columns: Mapping[str, object]) -> None:
        """Change columns of a job."""
        names = ", ".join(f"{name} = ?" for name in columns)
        self._write(
            f"UPDATE job SET {names} WHERE id = ?",  # noqa: S608 - our own names
            (*columns.values(), job),
        )

    def put_at(self, job: int, priority: int, rank: int) -> None:
        """Set a job's position in the queue; it stays there when the queue is sorted again."""
        self._write("UPDATE job SET priority = ?, rank = ? WHERE id = ?", (priority, rank, job))
        self._moved.put(str(job), b"")

    def remove(self, jobs: Iterable[tuple[int, State]]) -> None:
        """Delete jobs that are not running."""
        for job, state in jobs:
            self._write("DELETE FROM earlier_attempt WHERE job = ?", (job,))
            self._write("DELETE FROM reservation WHERE job = ?", (job,))
            self._write("DELETE FROM job WHERE id = ?", (job,))
            self._moved.forget(str(job))
            # A successful run stays known, so that its sweep does not repeat it.
            if state is State.DONE:
                self._write("UPDATE sweep_run SET done = 1, params = NULL WHERE job = ?", (job,))
            else:
                self._write("DELETE FROM sweep_run WHERE job = ?", (job,))
            self._uncommitted[state.value] -= 1

    def note_removal(self, first: int, files: bytes) -> None:
        """Record which files are removed with jobs; `first` is the first of these jobs."""
        self._removals.put(str(first), files)

    def forget_removal(self, first: int) -> None:
        """Delete the record of a removal that is finished."""
        self._removals.forget(str(first))

    def removals(self) -> list[tuple[int, bytes]]:
        """Return the recorded removals that are not finished."""
        return [(int(first), files) for first, files in self._removals.all().items()]

    def _flush(self) -> None:
        changed = {name: count for name, count in self._uncommitted.items() if count}
        if self._last_id != self._committed[_LAST_ID]:
            changed[_LAST_ID] = self._last_id - self._committed[_LAST_ID]
        self._uncommitted.clear()
        for name, count in changed.items():
            self._committed[name] += count
            self._write(
                "INSERT INTO tally VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                (name, self._committed[name]),
            )

    def forget_uncommitted(self) -> None:
        """Read the committed counts again after a rollback; ids that were not committed are free again."""
        self._uncommitted.clear()
        self._classes.clear()
        rows = self._execute("SELECT name, value FROM tally")
        self._committed = Counter(dict(rows.fetchall()))
        self._last_id = self._committed[_LAST_ID]
        self._stopped = self._find_stopped()
