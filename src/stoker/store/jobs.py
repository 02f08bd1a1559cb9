"""Jobs of one database. Every change of a state is one UPDATE that checks the state before."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from stoker.core.job import Attempt, JobClass, Outcome, Request
from stoker.core.lifecycle import TABLE, Event, State, is_final, is_live
from stoker.core.planner import Candidate
from stoker.core.usage import AttemptUse
from stoker.store.database import Database


class Known(msgspec.Struct, frozen=True):
    """What is recorded about a command of an earlier run."""

    id: int
    state: State
    attempt: int


class Live(msgspec.Struct, frozen=True):
    """An attempt that has not ended, as far as the database knows."""

    attempt: Attempt
    pid: int | None
    started_at_us: int | None


class Usage(msgspec.Struct, frozen=True):
    """When an attempt ended and what it used."""

    ended_at_us: int | None = None
    cpu_us: int | None = None
    max_rss_kb: int | None = None


NO_USAGE = Usage()


AllowedOf = Callable[[str | None, str | None], frozenset[int] | None]
"""Returns the slots that jobs of a project with a placement rule may use; None for all."""
RoomOf = Callable[[str | None], int | None]
"""Returns how many more jobs of a project may start; None for any number."""


_use_decoder = msgspec.json.Decoder(AttemptUse)


def encode_use(use: AttemptUse) -> str:
    """Encode the GPU use of an attempt for the database."""
    return msgspec.json.encode(use).decode()


def decode_use(text: str | None) -> AttemptUse | None:
    """Decode what `encode_use` encoded."""
    return None if text is None else _use_decoder.decode(text)


# The states in which a process may exist, for a query.
LIVE_STATES = ", ".join(f"'{state.value}'" for state in State if is_live(state))
# And those in which a job has ended.
FINAL_STATES = ", ".join(f"'{state.value}'" for state in State if is_final(state))


class StateConflictError(Exception):
    """The state of a job does not allow an event."""


def _sources(event: Event) -> str:
    # Not IN: for more than two values SQLite would build a list anew in every statement.
    return " OR ".join(f"state = '{state.value}'" for state in TABLE[event][0])


_ADD = (
    "INSERT INTO job (id, command, class, priority, state, attempt, slots)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_AGAIN = (
    ", slots = NULL, pid = NULL, started_at_us = NULL, ended_at_us = NULL, status = NULL,"
    " reason = NULL, cpu_us = NULL, max_rss_kb = NULL, failure = NULL, gpu_use = NULL"
)
_END = (
    ", pid = ?, started_at_us = ?, ended_at_us = ?, status = ?, reason = ?, cpu_us = ?,"
    " max_rss_kb = ?, slots = coalesce(?, slots)"
)
_GO_ON = ", stopped_us = coalesce(stopped_us, 0) + max(1, ? - stopped_at_us), stopped_at_us = NULL"
_MOVE = ", reason = ?, ended_at_us = ?"
# The columns that each event sets besides the state.
_COLUMNS = {
    Event.CLAIM: ", attempt = attempt + 1, slots = ?, forced = NULL, ending = NULL, grace_s = NULL,"
    " stopped_at_us = NULL, stopped_us = NULL, log_since = NULL",
    Event.REVOKE: ", attempt = attempt - 1, slots = NULL, tries = max(tries - 1, 0)",
    Event.REVIVE: ", slots = (SELECT slots FROM earlier_attempt"
    " WHERE earlier_attempt.job = job.id AND number = attempt)",
    Event.START: ", pid = ?, started_at_us = ?, slots = coalesce(?, slots)",
    Event.PAUSE: ", stopped_at_us = ?",
    Event.RESUME: _GO_ON,
    Event.SUSPEND: ", stopped_at_us = ?",
    Event.RESTORE: _GO_ON,
    Event.SUCCEED: _END,
    Event.FAIL: _END,
    Event.KILL: _END,
    Event.LOSE: _END,
    Event.PREEMPT: _END,
    Event.PRUNE: _END,
    Event.RETRY: _AGAIN,
    Event.RERUN: _AGAIN,
    Event.CANCEL: _MOVE,
    Event.DISCARD: _MOVE,
    Event.HOLD: _MOVE,
    Event.BLOCK: _MOVE,
    Event.DELAY: _MOVE,
    Event.READY: _MOVE,
    Event.SKIP: _MOVE,
}
_CHANGES = {
    event: f"UPDATE job SET state = '{TABLE[event][1].value}'{columns} WHERE id = ? AND ({_sources(event)})"  # noqa: S608
    for event, columns in _COLUMNS.items()
}
# A job that was cancelled while it waited has no attempt to keep, or keeps it already.
_ARCHIVE = {
    event: "INSERT OR IGNORE INTO earlier_attempt SELECT id, attempt, state, slots, pid,"  # noqa: S608 - ours
    " started_at_us, ended_at_us, status, reason, cpu_us, max_rss_kb, failure, gpu_use FROM job"
    f" WHERE id = ? AND attempt > 0 AND ({_sources(event)})"
    for event in (Event.RETRY, Event.RERUN)
}


# Classes outlive their jobs. If there are many, only those with waiting jobs are read, each by one step
# through the index.
_FEW = 8
CLASS_COLUMNS = (  # as in JobClass
    "class.slots, timeout_s, project, share, gpu_mem, place, cpus, mem_bytes"
)
_ADD_CLASS = (
    "INSERT INTO class (slots, timeout_s, project, share, gpu_mem, place, cpus, mem_bytes)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_FIND_CLASS = "SELECT id FROM class WHERE " + CLASS_COLUMNS.replace(",", " IS ? AND") + " IS ?"  # noqa: S608
# Many jobs that share GPUs may start in one turn, on GPUs that have room beside other jobs.
SHARERS = 32
_SOME_CLASSES = f"SELECT id, {CLASS_COLUMNS} FROM class LIMIT {_FEW + 1}"  # noqa: S608 - ours
_WAITING_CLASSES = (
    "WITH RECURSIVE waiting (number) AS (SELECT min(class) FROM job WHERE state = 'waiting'"  # noqa: S608 - ours
    " UNION ALL SELECT (SELECT min(class) FROM job WHERE state = 'waiting' AND class > number)"
    " FROM waiting WHERE number IS NOT NULL)"
    f" SELECT id, {CLASS_COLUMNS} FROM waiting JOIN class ON id = number"
)
_HEADS = (
    "SELECT id, priority, rank FROM job WHERE class = ? AND state = 'waiting'"
    " ORDER BY priority DESC, rank, id LIMIT ?"
)


def _count_of_heads(needs: JobClass, limit: int, light: int, deep: int) -> int:
    if not needs.slots:
        return light
    most = limit + deep if needs.slots > 1 else limit
    return most if needs.share is None else max(most, SHARERS)


class Jobs:
    """Reads and writes jobs inside the database's transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._execute = database.execute
        self._write = database.write
        self._last_id: int = self._execute("SELECT coalesce(max(id), 0) FROM job").fetchone()[0]
        self._classes: dict[JobClass, int] = {}

    def remember_earlier(self) -> None:
        """Prepare `read_again`: number the recorded occurrences of each command."""
        self.database.run_script("resume.sql")

    def read_again(self, command: bytes) -> Known | None:
        """Count one more occurrence of a command, and return what is recorded about this occurrence."""
        self._write(
            "INSERT INTO seen VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1", (command,)
        )
        row = self._execute(
            "SELECT id, state, attempt FROM seen JOIN earlier"
            " ON earlier.command = seen.command AND occurrence = times WHERE seen.command = ?",
            (command,),
        ).fetchone()
        if row is None:
            return None
        job, state, attempt = row
        return Known(job, State(state), attempt)

    def absent(self) -> int:
        """Return how many recorded commands have not been read again."""
        row = self._execute(
            "SELECT count(*) FROM earlier LEFT JOIN seen USING (command)"
            " WHERE occurrence > coalesce(times, 0)"
        ).fetchone()
        return int(row[0])

    def add_claimed(self, command: bytes, request: Request, slots: str) -> Attempt:
        """Record a new command and the claim of its first attempt."""
        return Attempt(self._add(command, request, State.STARTING, 1, slots), 1)

    def add_waiting(self, command: bytes, request: Request) -> int:
        """Record a new command that waits."""
        return self._add(command, request, State.WAITING, 0, None)

    def _add(
        self, command: bytes, request: Request, state: State, attempt: int, slots: str | None
    ) -> int:
        self._last_id += 1
        number = self.class_of(request)
        self._write(
            _ADD,
            (self._last_id, command, number, request.priority, state.value, attempt, slots),
        )
        return self._last_id

    def claim(self, job: int, slots: str) -> None:
        """Record the intent to start a waiting job."""
        self.change(Event.CLAIM, job, slots)

    def reclaim(self, known: Known, slots: str) -> Attempt:
        """Record the intent to start a job of an earlier run that was not done."""
        if known.state is not State.WAITING:
            self.retry(known.id)
        self.claim(known.id, slots)
        return Attempt(known.id, known.attempt + 1)

    def mark_running(
        self, job: int, pid: int, started_at_us: int, slots: str | None = None
    ) -> None:
        """Record that the attempt is running, and on which slots if that was not known before."""
        self.change(Event.START, job, pid, started_at_us, slots)

    def revoke(self, job: int) -> None:
        """Undo a claim; the attempt does not count."""
        self.change(Event.REVOKE, job)

    def revive(self, job: int) -> None:
        """Let a waiting job have its last attempt again, which was given up with its node."""
        row = self._execute(
            "SELECT pid, started_at_us FROM earlier_attempt WHERE job = ?1"
            " AND number = (SELECT attempt FROM job WHERE id = ?1)",
            (job,),
        ).fetchone()
        self.change(Event.REVIVE, job)
        self._write(
            "DELETE FROM earlier_attempt WHERE job = ?1"
            " AND number = (SELECT attempt FROM job WHERE id = ?1)",
            (job,),
        )
        if row is not None and row[0] is not None:
            self.mark_running(job, *row)

    def pause(self, job: int, at_us: int) -> None:
        """Record that a running job is paused."""
        self.change(Event.PAUSE, job, at_us)

    def resume(self, job: int, at_us: int) -> None:
        """Record that a paused job is running again."""
        self.change(Event.RESUME, job, at_us)

    def suspend(self, job: int, at_us: int) -> None:
        """Record that a running job is suspended."""
        self.change(Event.SUSPEND, job, at_us)

    def restore(self, job: int, at_us: int) -> None:
        """Record that a suspended job is running again."""
        self.change(Event.RESTORE, job, at_us)

    def move_pending(
        self, job: int, event: Event, reason: str | None = None, at_us: int | None = None
    ) -> None:
        """Record that a job that has not started must wait, may start, or (SKIP) never starts."""
        self.change(event, job, reason, at_us)

    def cancel(self, job: int, reason: str, at_us: int) -> None:
        """End a job that has not started."""
        self.change(Event.CANCEL, job, reason, at_us)

    def discard(self, job: int, reason: str, at_us: int) -> None:
        """End a job that has not started, because its sweep needs it no more."""
        self.change(Event.DISCARD, job, reason, at_us)

    def retry(self, job: int, event: Event = Event.RETRY) -> None:
        """Let a job wait for another attempt; the last one is kept. RERUN is for jobs that are done."""
        self._write(_ARCHIVE[event], (job,))
        self.change(event, job)

    def end(
        self,
        job: int,
        outcome: Outcome,
        usage: Usage = NO_USAGE,
        pid: int | None = None,
        started_at_us: int | None = None,
        slots: str | None = None,
    ) -> None:
        """Record how a job's attempt ended, and on which slots if that is not recorded yet."""
        used = (usage.cpu_us, usage.max_rss_kb)
        times = (started_at_us, usage.ended_at_us)
        self.change(outcome.event, job, pid, *times, outcome.status, outcome.reason, *used, slots)

    def note_failure(self, job: int, kind: str) -> None:
        """Record the failure class of a job's attempt."""
        self._write("UPDATE job SET failure = ? WHERE id = ?", (kind, job))

    def note_gpu_use(self, job: int, use: AttemptUse) -> None:
        """Record the GPU use of a job's attempt."""
        self._write("UPDATE job SET gpu_use = ? WHERE id = ?", (encode_use(use), job))

    def count_failures(self, job: int, kind: str) -> int:
        """Return how many earlier attempts of a job failed with this class."""
        row = self._execute(
            "SELECT count(*) FROM earlier_attempt WHERE job = ? AND failure = ?", (job, kind)
        ).fetchone()
        return int(row[0])

    def note_log(self, job: int, log: str) -> None:
        """Record the path of a job's log."""
        self._write("UPDATE job SET log = ? WHERE id = ?", (os.fsencode(log), job))

    def note_log_since(self, job: int, count: int) -> None:
        """Record how many bytes at the start of a job's log are of earlier attempts."""
        self._write("UPDATE job SET log_since = ? WHERE id = ?", (count, job))

    def command_of(self, job: int) -> bytes:
        """Return the command as it was submitted."""
        command = self._execute("SELECT command FROM job WHERE id = ?", (job,)).fetchone()[0]
        assert isinstance(command, bytes)
        return command

    def live(self) -> list[Live]:
        """Return all attempts that have not ended."""
        rows = self._execute(
            f"SELECT id, attempt, pid, started_at_us FROM job WHERE state IN ({LIVE_STATES})"  # noqa: S608 - ours
        )
        return [
            Live(Attempt(job, number), pid, started_at_us)
            for job, number, pid, started_at_us in rows
        ]

    def heads(
        self,
        limit: int,
        light: int,
        allowed_of: AllowedOf = lambda _project, _where: None,
        deep: int = 0,
        room_of: RoomOf = lambda _project: None,
    ) -> list[Candidate]:
        """Return the first waiting jobs in queue order, each with the slots that it may use.

        At most `limit` jobs of each class, or `light` if they need no GPU; of jobs that need several slots
        `deep` more; and at most as many as their project has room for.
        """
        found: list[Candidate] = []
        for number, needs in self._waiting_classes():
            room = room_of(needs.project)
            most = _count_of_heads(needs, limit, light, deep)
            wanted = most if room is None else min(most, room)
            rows = self._execute(_HEADS, (number, wanted)).fetchall() if wanted else ()
            if rows:
                allowed = allowed_of(needs.project, needs.where)
                fields = msgspec.structs.astuple(needs)
                found += [
                    Candidate(*fields, id=job, priority=priority, rank=rank, allowed=allowed)
                    for job, priority, rank in rows
                ]
        return sorted(found, key=lambda candidate: candidate.order)

    def _waiting_classes(self) -> list[tuple[int, JobClass]]:
        """Return all classes in which jobs may wait."""
        found = self._execute(_SOME_CLASSES).fetchall()
        rows = self._execute(_WAITING_CLASSES).fetchall() if len(found) > _FEW else found
        return [(number, JobClass(*fields)) for number, *fields in rows]

    def counts(self) -> dict[State, int]:
        """Return how many jobs are in each state."""
        rows = self._execute("SELECT state, count(*) FROM job GROUP BY state")
        return {State(state): number for state, number in rows}

    def class_of(self, needs: JobClass) -> int:
        """Return the number of a class; a new class gets a number now."""
        key = needs.job_class
        number = self._classes.get(key)
        if number is None:
            values = msgspec.structs.astuple(key)
            row = self._execute(_FIND_CLASS, values).fetchone()
            if row is None:
                self._write(_ADD_CLASS, values)
                row = self._execute("SELECT last_insert_rowid()").fetchone()
            number = self._classes[key] = int(row[0])
        return number

    def change(self, event: Event, job: int, *values: object) -> None:
        """Change the state of a job by an event; raise StateConflictError if its state does not allow it."""
        if self._write(_CHANGES[event], (*values, job)) != 1:
            raise StateConflictError(f"{event.value} of job {job} with {values}")
