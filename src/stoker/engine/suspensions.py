"""Suspends running attempts to host RAM, and resumes them on their GPUs.

The intent is recorded before the driver is called, so that a daemon that starts after a crash finishes what
its predecessor began. A suspended attempt stays among the running attempts, without slots.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Protocol

import msgspec

from stoker.core.job import Attempt, Ending, Outcome, Request
from stoker.core.lifecycle import State
from stoker.core.planner import Candidate, Start
from stoker.core.slot import Slot
from stoker.core.suspension import Stage, Suspension
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import Running, RunningAttempt, Suspended
from stoker.engine.sharing import Sharing
from stoker.engine.slots import SlotTable
from stoker.engine.suspend_helper import HelperAnswer, HelperOrder
from stoker.engine.termination import Termination
from stoker.executors.contract import Executor, Restore
from stoker.failpoints import reach
from stoker.store.jobs import Known
from stoker.store.queue_jobs import QueueJobs
from stoker.store.suspension_records import SuspensionRecords

_TRY_AGAIN_S = 2.0
_NEVER = float("inf")


class Helper(Protocol):
    """Makes the driver's calls for one job."""

    async def suspend(self, order: HelperOrder) -> HelperAnswer:
        """Move the job's GPU memory to host RAM."""

    async def check(self, order: HelperOrder) -> HelperAnswer:
        """Make sure that the job's memory is in host RAM, after a daemon has died."""

    async def resume(self, order: HelperOrder) -> HelperAnswer:
        """Move the job's memory back."""


class SuspensionParts(msgspec.Struct, frozen=True, kw_only=True):
    """What suspensions are built from. `name` begins the cookies of all jobs of this queue."""

    slot_table: SlotTable
    executor: Executor
    jobs: QueueJobs
    records: SuspensionRecords
    sharing: Sharing
    helper: Helper
    clock: Callable[[], float]
    name: str
    notify: Callable[[str], None]
    changed: Callable[[int, State], None]


class Suspensions:
    """All suspended attempts of an engine, from the intent to suspend them until they run again.

    Construct it in the event loop in which the helpers are awaited.
    """

    def __init__(self, parts: SuspensionParts, termination: Termination) -> None:
        self._parts = parts
        self._slot_table = parts.slot_table
        self._termination = termination
        self._restores: list[RunningAttempt] = []  # to begin once the turn is recorded
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry_at: dict[str, float] = {}
        self._checking: set[str] = set()  # adopted attempts of which the driver is asked
        self._pushed: set[str] = (
            set()
        )  # attempts that are suspended to make room, before they begin to be
        self.poke: Callable[[], None] = lambda: None  # asks for a turn of the engine

    async def suspend(
        self, running: RunningAttempt, *, resumes: bool = False, parked: bool = False
    ) -> str | None:
        """Suspend a running attempt; returns why it runs on. With `resumes` it waits for its GPUs at once."""
        phase = running.phase
        assert isinstance(phase, Running)
        suspension = Suspension(
            stage=Stage.SUSPENDING,
            held_bytes=self._measure(running),
            resumes=resumes,
            parked=parked,
        )
        self._record(running, suspension)
        reach("suspension-intended")
        running.phase = Suspended(
            phase.pid, phase.started_at_us, self._parts.clock(), suspension, self._homes(running)
        )
        return await self._finish_suspending(running)

    async def _finish_suspending(self, running: RunningAttempt) -> str | None:
        self._limit(running, is_lifted=True)  # its GPU memory comes on top of its RAM
        answer = await self._parts.helper.suspend(self._order(running))
        reach("suspension-made")
        phase = running.phase
        if not self._is_here(running) or not isinstance(phase, Suspended):
            return f"job {running.attempt.job} ended before it was suspended"
        if answer.refusal is not None:
            self._record(running, None)
            self._go_on(running, phase, answer.refusal)
            return answer.refusal
        suspension = phase.suspension.measured(answer.held_bytes)
        next_stage = Stage.QUEUED if suspension.resumes else Stage.SUSPENDED
        with self._parts.jobs.database.transaction(durable=True):
            self._parts.jobs.suspend(running.attempt.job, time.time_ns() // 1000)
            self._parts.records.put(running.attempt, suspension.now(next_stage))
        reach("suspension-recorded")
        self._set(running, suspension.now(next_stage))
        self._park(running)
        self._parts.changed(running.attempt.job, State.SUSPENDED)
        self.poke()
        return None

    def push(self, running: RunningAttempt, reason: str) -> None:
        """Suspend an attempt after this turn to make room; if that fails, preempt it by its stop signal."""
        self._pushed.add(running.key)
        self._start(self._push(running, reason))

    async def _push(self, running: RunningAttempt, reason: str) -> None:
        try:
            refusal = None
            if self._is_here(running) and running.end_request is None:
                refusal = await self.suspend(running, resumes=True)
        finally:
            self._pushed.discard(running.key)
        if refusal is not None and self._is_here(running) and running.end_request is None:
            self._parts.notify(f"{refusal}; it is {reason} by its stop signal instead")
            with self._parts.jobs.database.transaction(durable=True):
                self._parts.jobs.mark_ending(running.attempt.job, reason, ending=Ending.PUSH)
            self._termination.preempt(running, reason, Ending.PUSH)
        self.poke()

    def can_push(self, running: RunningAttempt) -> bool:
        """Whether the driver may be able to suspend an attempt."""
        return (
            isinstance(running.phase, Running)
            and self._slot_table.is_own(running.where)
            and not running.entry.request.options.mps
        )

    def makes_room(self, running: RunningAttempt) -> bool:
        """Whether an attempt is about to leave its slots."""
        suspension = self.of(running)
        leaves = suspension is not None and suspension.stage is Stage.SUSPENDING
        return leaves or running.key in self._pushed

    def queue(self, running: RunningAttempt) -> None:
        """Let a suspended attempt wait for its GPUs; the caller has a transaction open."""
        suspension = self.of(running)
        assert suspension is not None
        self._parts.records.put(running.attempt, suspension.now(Stage.QUEUED))
        self._set(running, suspension.now(Stage.QUEUED))
        self._retry_at.pop(running.key, None)

    @staticmethod
    def of(running: RunningAttempt) -> Suspension | None:
        """The suspension of an attempt; None if it runs."""
        phase = running.phase
        return phase.suspension if isinstance(phase, Suspended) else None

    def entries(self) -> list[QueueEntry]:
        """The suspended attempts that wait for their GPUs, as entries of the queue."""
        now = self._parts.clock()
        return [
            self._entry(running, running.phase)
            for running in self._slot_table.running.values()
            if isinstance(running.phase, Suspended)
            and running.phase.suspension.stage is Stage.QUEUED
            and not running.phase.is_adopted
            and running.key not in self._checking
            and running.end_request is None
            and self._retry_at.get(running.key, 0.0) <= now
        ]

    def due_at(self) -> float:
        """When an attempt that found too little GPU memory is planned again."""
        return min(self._retry_at.values(), default=_NEVER)

    def claim(self, entry: QueueEntry, start: Start, _now: float) -> Restore:
        """Give a suspended attempt its slots, inside the turn's transaction."""
        assert entry.suspended is not None
        running = self._slot_table.running[entry.suspended]
        suspension = self.of(running)
        assert suspension is not None
        self._parts.records.put(running.attempt, suspension.now(Stage.RESUMING))
        self._set(running, suspension.now(Stage.RESUMING))
        running.slots = tuple(self._slot_table.states[index].slot for index in start.slots)
        self._slot_table.occupy(running)
        self._retry_at.pop(running.key, None)
        self._restores.append(running)
        return Restore(running.key)

    def carry_out(self) -> None:
        """Begin the restores of the recorded turn."""
        restores, self._restores = self._restores, []
        for running in restores:
            reach("resumption-intended")
            self._begin_restore(running)

    def recorded(self) -> dict[Attempt, Suspension]:
        """The suspensions that an earlier daemon has recorded."""
        return self._parts.records.all()

    def on_started(self, running: RunningAttempt) -> None:
        """Handle an attempt that is alive: finish, or check, what an earlier daemon began with it."""
        phase = running.phase
        if not isinstance(phase, Suspended) or running.end_request is not None:
            return
        running.phase = msgspec.structs.replace(phase, is_adopted=False)
        stage = phase.suspension.stage
        if not phase.is_adopted:
            if not phase.suspension.has_slots and running.key not in self._checking:
                self._stop(running)
        elif stage is Stage.SUSPENDING:
            self._start(self._suspend_again(running))
        elif stage is Stage.RESUMING:
            self._begin_restore(running)
        else:
            self._checking.add(running.key)
            self._start(self._check(running))

    def on_end(self, running: RunningAttempt, _outcome: Outcome) -> None:
        """Forget the suspension of an attempt that has ended, inside the turn's transaction."""
        if running.is_suspended:
            self._parts.records.forget(running.attempt)
            self._retry_at.pop(running.key, None)

    async def _suspend_again(self, running: RunningAttempt) -> None:
        refusal = await self._finish_suspending(running)
        if refusal is not None:
            self._parts.notify(refusal)

    async def _check(self, running: RunningAttempt) -> None:
        """Ask the driver whether an attempt that is recorded as suspended is; otherwise suspend it again."""
        try:
            answer = await self._parts.helper.check(self._order(running))
        finally:
            self._checking.discard(running.key)
        suspension = self.of(running)
        if not self._is_here(running) or suspension is None:
            return
        note = suspension.note if answer.refusal is None else answer.refusal
        suspension = suspension.measured(answer.held_bytes).now(suspension.stage, note)
        self._record(running, suspension)
        self._set(running, suspension)
        self._stop(running)
        if answer.refusal is not None:
            self._parts.notify(f"job {running.attempt.job} is not suspended as it was: {note}")
        self.poke()

    def _begin_restore(self, running: RunningAttempt) -> None:
        slots = tuple(slot.index for slot in running.slots)
        self._parts.executor.move(running.key, slots)
        self._parts.executor.signal(running.key, signal.SIGCONT)
        self._start(self._restore(running))

    async def _restore(self, running: RunningAttempt) -> None:
        answer = await self._parts.helper.resume(self._order(running))
        reach("resumption-made")
        phase = running.phase
        if not self._is_here(running) or not isinstance(phase, Suspended):
            return
        if answer.refusal is not None:
            self._give_up_restore(running, phase.suspension, answer)
            return
        with self._parts.jobs.database.transaction(durable=True):
            self._parts.jobs.restore(running.attempt.job, time.time_ns() // 1000)
            self._parts.records.forget(running.attempt)
        reach("resumption-recorded")
        self._go_on(running, phase)
        self._parts.changed(running.attempt.job, State.RUNNING)
        self.poke()

    def _give_up_restore(
        self, running: RunningAttempt, suspension: Suspension, answer: HelperAnswer
    ) -> None:
        """Take a suspended attempt off its slots again: there is no room, or the driver failed."""
        if answer.try_again:
            stage, note = Stage.QUEUED, answer.refusal
            self._retry_at[running.key] = self._parts.clock() + _TRY_AGAIN_S
        else:
            stage, note = Stage.SUSPENDED, f"it was not resumed: {answer.refusal}"
            self._parts.notify(f"job {running.attempt.job} was not resumed: {answer.refusal}")
        self._record(running, suspension.now(stage, note))
        self._set(running, suspension.now(stage, note))
        self._park(running)
        self.poke()

    def _park(self, running: RunningAttempt) -> None:
        """Stop the processes of a suspended attempt, and give its slots to others."""
        self._parts.sharing.gpus.leave(running)
        self._slot_table.leave(running)
        self._stop(running)
        self._parts.executor.move(running.key, None)

    def _stop(self, running: RunningAttempt) -> None:
        self._parts.executor.signal(running.key, signal.SIGSTOP)

    def _limit(self, running: RunningAttempt, *, is_lifted: bool) -> None:
        """Lift the limit of an attempt's RAM, or impose it again."""
        mem_bytes = running.entry.request.mem_bytes
        if mem_bytes is not None:
            self._parts.executor.limit(running.key, 0 if is_lifted else mem_bytes)

    def _go_on(
        self, running: RunningAttempt, phase: Suspended, not_suspended: str | None = None
    ) -> None:
        """Note that an attempt runs; its time limit is extended by the suspension."""
        running.phase = Running(phase.pid, phase.started_at_us, not_suspended)
        self._limit(running, is_lifted=False)
        self._slot_table.hosts.add(running)
        self._termination.count_stop(running, phase.since)
        self._slot_table.deadlines.note(running)

    def _record(self, running: RunningAttempt, suspension: Suspension | None) -> None:
        with self._parts.jobs.database.transaction(durable=True):
            if suspension is None:
                self._parts.records.forget(running.attempt)
            else:
                self._parts.records.put(running.attempt, suspension)

    @staticmethod
    def _set(running: RunningAttempt, suspension: Suspension) -> None:
        assert isinstance(running.phase, Suspended)
        running.phase = msgspec.structs.replace(running.phase, suspension=suspension)

    def _is_here(self, running: RunningAttempt) -> bool:
        return self._slot_table.running.get(running.key) is running

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _order(self, running: RunningAttempt) -> HelperOrder:
        suspension = self.of(running)
        assert suspension is not None
        assert running.pid is not None
        return HelperOrder(
            job=running.attempt.job,
            root_pid=running.pid,
            cookie=f"{self._parts.name}:{running.key}",
            held_bytes=suspension.held_bytes,
            others_bytes=self._being_suspended_bytes(running),
        )

    def _being_suspended_bytes(self, but: RunningAttempt) -> int:
        """The GPU memory of other attempts that is on its way to host RAM."""
        found = [self.of(each) for each in self._slot_table.running.values() if each is not but]
        return sum(
            sum(each.held_bytes.values())
            for each in found
            if each is not None and each.stage is Stage.SUSPENDING
        )

    def _homes(self, running: RunningAttempt) -> tuple[Slot, ...]:
        """The slots of the whole GPUs that an attempt uses."""
        states = [self._slot_table.states[slot.index] for slot in running.slots]
        return tuple(
            state.slot
            if state.whole_slot is None
            else self._slot_table.states[state.whole_slot].slot
            for state in states
        )

    def _measure(self, running: RunningAttempt) -> dict[str, int]:
        """The GPU memory of an attempt by the last look; empty if it was not seen."""
        look = self._parts.sharing.gpus.look()
        seen = None if look is None else look.jobs.get(running.key)
        return dict(seen.mem_bytes or {}) if seen is not None else {}

    def _entry(self, running: RunningAttempt, phase: Suspended) -> QueueEntry:
        """A suspended attempt at its present position of the queue."""
        facts = self._parts.jobs.facts(running.attempt.job)
        return make_entry(running, phase, facts.request, facts.rank)


def make_entry(
    running: RunningAttempt, phase: Suspended, request: Request, rank: int
) -> QueueEntry:
    """A suspended attempt as the planner sees it: it needs its own GPUs, and the memory it held."""
    candidate = Candidate(
        slots=len(phase.home_slots),
        timeout_s=request.timeout_s,
        share=request.share,
        gpu_mem=phase.suspension.most_bytes or request.gpu_mem,
        id=running.attempt.job,
        priority=request.priority,
        rank=rank,
        allowed=frozenset(slot.index for slot in phase.home_slots),
    )
    plain = Request(slots=candidate.slots, priority=request.priority, timeout_s=request.timeout_s)
    known = Known(running.attempt.job, State.SUSPENDED, running.attempt.number)
    return QueueEntry(b"", plain, known, suspended=running.key, candidate=candidate)
