"""Preemption: ends or suspends preemptible jobs to free slots for a job that may preempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from stoker.core.job import Ending
from stoker.core.preemption import Victim, choose
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.engine.suspensions import Suspensions
from stoker.engine.termination import Termination
from stoker.store.queue_jobs import Facts, QueueJobs


class Preemption:
    """Frees slots for the first waiting job, if it may preempt others.

    Where `suspends` says so, jobs are suspended if the driver can do that; other jobs are ended.
    """

    def __init__(
        self,
        slot_table: SlotTable,
        termination: Termination,
        jobs: QueueJobs,
        suspensions: Suspensions | None = None,
        suspends: Callable[[], bool] = lambda: False,
    ) -> None:
        self._slot_table = slot_table
        self._termination = termination
        self._jobs = jobs
        self._suspensions = suspensions
        self._suspends = suspends

    def make_room(self, entry: QueueEntry) -> None:
        """Preempt as many jobs as the first waiting job needs, inside the turn's transaction."""
        if not self._jobs.has_preempting or entry.known is None:
            return
        job = entry.known.id
        allowed = entry.candidate.allowed if entry.candidate is not None else None
        facts = self._jobs.facts(job)
        if not facts.request.options.preempt:
            return
        usable = [
            state
            for state in self._slot_table.states
            if state.is_open
            and state.whole_slot is None
            and (allowed is None or state.slot.index in allowed)
        ]
        ending = {
            slot.index
            for running in self._slot_table.running.values()
            if self._is_leaving(running)
            for slot in running.slots
        }
        # All slots of a job are on one node. Start with the node that needs the fewest victims.
        for node, coming in _coming(usable, ending).most_common():
            missing = facts.request.slots - coming
            if missing <= 0:
                return
            indexes = {state.slot.index for state in usable if state.slot.node == node}
            victims = choose(self._victims(indexes), missing, facts.request.priority)
            for victim in victims:
                self._preempt(victim.job, facts)
            if victims:
                return

    def _victims(self, usable: set[int]) -> list[Victim]:
        return [
            Victim(
                running.attempt.job,
                tuple(slot.index for slot in running.slots if slot.index in usable),
                running.entry.request.priority,
                running.begun,
            )
            for running in self._slot_table.running.values()
            if running.entry.request.options.preemptible
            and not self._is_leaving(running)
            and running.pid is not None
        ]

    def _is_leaving(self, running: RunningAttempt) -> bool:
        """Whether the slots of an attempt will be free without more preemption."""
        suspensions = self._suspensions
        makes_room = suspensions is not None and suspensions.makes_room(running)
        return running.end_request is not None or makes_room

    def _preempt(self, job: int, winner: Facts) -> None:
        reason = f"preempted by job {winner.id}"
        victim = self._jobs.facts(job)
        priority = victim.request.priority
        if priority == winner.request.priority and victim.rank <= winner.rank:
            # The victim must not come before the job that it is preempted for.
            self._jobs.put_at(job, priority, winner.rank + 1)
        for running in self._slot_table.running.values():
            if running.attempt.job == job:
                self.push(running, reason)

    def push(self, running: RunningAttempt, reason: str) -> None:
        """Suspend a job or end it; it waits again."""
        suspensions = self._suspensions
        if suspensions is not None and self._suspends() and suspensions.can_push(running):
            suspensions.push(running, reason)
        else:
            self._jobs.mark_ending(running.attempt.job, reason, ending=Ending.PUSH)
            self._termination.preempt(running, reason, Ending.PUSH)


def _coming(usable: list[SlotState], ending: set[int]) -> Counter[str]:
    """How many slots of each node are free or will be."""
    coming: Counter[str] = Counter()
    for state in usable:
        coming[state.slot.node] += _is_coming(state) or state.slot.index in ending
    return coming


def _is_coming(state: SlotState) -> bool:
    """Whether a slot is free, or will be when it is leased."""
    return state.is_idle and state.refusal is None
