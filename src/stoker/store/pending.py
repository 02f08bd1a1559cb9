"""Jobs that may not start yet: they are held, or wait for other jobs or for a time."""

from __future__ import annotations

from typing import NamedTuple

from stoker.core.lifecycle import TABLE, Event, State
from stoker.core.readiness import Need, pending_state
from stoker.store.named_values import NamedValues
from stoker.store.queue_jobs import QueueJobs

_SHOWN = 8
_EVENTS = {
    State.WAITING: Event.READY,
    State.HELD: Event.HOLD,
    State.BLOCKED: Event.BLOCK,
    State.DELAYED: Event.DELAY,
    State.SKIPPED: Event.SKIP,
}


class Backoff(NamedTuple):
    """The time at which a failed job may start again, and the length of its pause."""

    begin_at_us: int
    pause_us: int


class PendingJobs:
    """Keeps every pending job in the state that follows from its hold, its needs and its time."""

    def __init__(self, jobs: QueueJobs) -> None:
        self._jobs = jobs
        self._execute = jobs.database.execute
        self._write = jobs.database.write
        self._backoffs = NamedValues(jobs.database, "backoff.")
        self.load()

    def load(self) -> None:
        """Read which jobs others wait for, and when the next delayed job starts."""
        rows = self._execute("SELECT DISTINCT needed FROM dependency")
        self._needed = {needed for (needed,) in rows}
        self.next_begin_us = self._find_next_begin()

    def link(self, job: int, needed: int, any_end: bool) -> None:
        """Make a job wait for another."""
        self._write("INSERT OR REPLACE INTO dependency VALUES (?, ?, ?)", (needed, job, any_end))
        self._needed.add(needed)

    def unlink(self, job: int) -> None:
        """Delete all needs of a job."""
        self._write("DELETE FROM dependency WHERE job = ?", (job,))

    def settle_need(self, job: int) -> None:
        """Delete the needs for a job that is done, before the job is removed."""
        if job in self._needed:
            self._write("DELETE FROM dependency WHERE needed = ?", (job,))
            self._needed.discard(job)

    def needs_of(self, job: int) -> list[Need]:
        """Return the jobs that a job waits for, with their states."""
        rows = self._execute(
            "SELECT needed, state, any FROM dependency LEFT JOIN job ON job.id = needed"
            " WHERE dependency.job = ? ORDER BY needed",
            (job,),
        )
        return [
            Need(needed, State(state) if state else None, bool(any_end))
            for needed, state, any_end in rows
        ]

    def dependants_of(self, job: int) -> list[int]:
        """Return the jobs that wait for a job."""
        if job not in self._needed:
            return []
        rows = self._execute("SELECT job FROM dependency WHERE needed = ? ORDER BY job", (job,))
        return [dependant for (dependant,) in rows]

    def settle(self, job: int, now_us: int) -> list[tuple[int, State]]:
        """Update the state of a pending job, and return all changes.

        If it is skipped, or skipped no longer, the jobs that wait for it change too.
        """
        changed: list[tuple[int, State]] = []
        queue = [job]
        while queue:
            current = queue.pop()
            move = self._settle_one(current, now_us)
            if move is not None:
                changed.append((current, move[1]))
                if State.SKIPPED in move:
                    queue += self.dependants_of(current)
        return changed

    def on_over(self, job: int, now_us: int) -> list[tuple[int, State]]:
        """Update the jobs that wait for a job that has ended or waits again; return the changes."""
        changed = []
        for dependant in self.dependants_of(job):
            changed += self.settle(dependant, now_us)
        return changed

    def wake(self, now_us: int) -> list[tuple[int, State]]:
        """Make delayed jobs ready whose time has come; return the changes."""
        if self.next_begin_us is None or self.next_begin_us > now_us:
            return []
        rows = self._execute(
            "SELECT id FROM job WHERE begin_at_us <= ? AND state = 'delayed'", (now_us,)
        ).fetchall()
        changed = [change for (job,) in rows for change in self.settle(job, now_us)]
        self.next_begin_us = self._find_next_begin()
        return changed

    def hold(self, job: int, held: bool) -> None:
        """Record whether a job is held; call `settle` next."""
        self._write("UPDATE job SET held = ? WHERE id = ?", (1 if held else None, job))

    def delay(self, job: int, begin_at_us: int | None) -> None:
        """Record when a job may start; call `settle` next."""
        self._write("UPDATE job SET begin_at_us = ? WHERE id = ?", (begin_at_us, job))

    def back_off(self, job: int, begin_at_us: int, pause_us: int) -> None:
        """Record the pause of a failed job; call `settle` next."""
        self.delay(job, begin_at_us)
        self._backoffs.put(str(job), f"{begin_at_us} {pause_us}".encode())

    def end_backoff(self, job: int) -> None:
        """Delete the pause of a failed job."""
        self._backoffs.forget(str(job))

    def backoffs(self) -> dict[int, Backoff]:
        """Return the pauses of failed jobs."""
        return {
            int(job): Backoff(*map(int, note.split())) for job, note in self._backoffs.all().items()
        }

    def begins_at(self, job: int) -> int | None:
        """Return when a delayed job starts; None if it is not delayed."""
        row = self._execute(
            "SELECT begin_at_us FROM job WHERE id = ? AND state = 'delayed'", (job,)
        ).fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def _settle_one(self, job: int, now_us: int) -> tuple[State, State] | None:
        """Update one job; return its old and new state, None if it stays."""
        row = self._execute(
            "SELECT state, held, begin_at_us, reason FROM job WHERE id = ?", (job,)
        ).fetchone()
        if row is None:
            return None
        state, held, begin_at_us, recorded_reason = row
        before = State(state)
        if before not in TABLE[Event.CANCEL][0] + (State.SKIPPED,):
            return None
        needs = self.needs_of(job)
        target = pending_state(held=bool(held), needs=needs, begin_at_us=begin_at_us, now_us=now_us)
        reason = _reason(target, needs)
        if target is State.DELAYED:
            known = self.next_begin_us
            self.next_begin_us = begin_at_us if known is None else min(known, begin_at_us)
        if target is before:
            if reason != recorded_reason:
                self._write("UPDATE job SET reason = ? WHERE id = ?", (reason, job))
            return None
        self._move(job, before, target, reason, now_us)
        return before, target

    def _move(self, job: int, state: State, target: State, reason: str | None, now_us: int) -> None:
        if state is State.SKIPPED:
            self._jobs.retry(job)
            state = State.WAITING
        if target is State.SKIPPED and state is not State.BLOCKED:
            self._jobs.move_pending(job, Event.BLOCK)
            state = State.BLOCKED
        if target is not state:
            ended_at_us = now_us if target is State.SKIPPED else None
            self._jobs.move_pending(job, _EVENTS[target], reason, ended_at_us)

    def _find_next_begin(self) -> int | None:
        row = self._execute(
            "SELECT min(begin_at_us) FROM job WHERE begin_at_us IS NOT NULL AND state = 'delayed'"
        ).fetchone()
        return None if row[0] is None else int(row[0])


def _reason(state: State, needs: list[Need]) -> str | None:
    """Return the reason of a pending or skipped state; every such state except waiting has one."""
    match state:
        case State.WAITING:
            return None
        case State.BLOCKED:
            return f"after {_some([str(need.id) for need in needs], ',')}"
        case State.SKIPPED:
            lost = [_describe(need) for need in needs if need.is_hopeless]
            return f"needs what did not succeed: {_some(lost, ', ')}"
        case _:
            return str(state.value)


def _describe(need: Need) -> str:
    return f"job {need.id} {'was removed' if need.state is None else f'is {need.state.value}'}"


def _some(words: list[str], separator: str) -> str:
    more = f"{separator}… ({len(words)} in all)" if len(words) > _SHOWN else ""
    return separator.join(words[:_SHOWN]) + more
