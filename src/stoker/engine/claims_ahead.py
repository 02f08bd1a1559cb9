"""Attempts that are claimed ahead: the first slot that becomes vacant takes the next one."""

from __future__ import annotations

from stoker.engine.candidates import Candidates
from stoker.engine.running_attempt import ClaimedAhead, RunningAttempt
from stoker.engine.slot_state import QUICK_S, SlotState
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Executor


class ClaimsAhead:
    """Decides which slots take attempts claimed ahead, and revokes these to keep the queue's order."""

    def __init__(self, slot_table: SlotTable, executor: Executor, *, enabled: bool) -> None:
        self._slot_table = slot_table
        self._executor = executor
        self._enabled = enabled
        self._offered: list[int] = []
        self._is_closed = False  # nothing more is claimed ahead until all attempts have started
        self.gives_way = False  # another user waits for a GPU: each end of a job is looked at
        self.needs_slot_first = False  # a job waits that must know its GPU before it is launched

    def offer_slots(self, *, in_queue_order: bool) -> None:
        """Let slots with short jobs take attempts claimed ahead; without such slots, revoke these.

        Attempts are claimed ahead only if one supervisor starts the jobs of all slots in queue order.
        """
        is_possible = (
            in_queue_order
            and self._enabled
            and not self.needs_slot_first
            and not self.gives_way
            and self._slot_table.has_one_supervisor
        )
        offered = self._slot_table.slots_taking_ahead() if is_possible else []
        if not self._slot_table.claimed_ahead:
            self._is_closed = False
        indices = [state.slot.index for state in offered]
        if indices != self._offered:
            self._offered = indices
            self._executor.offer([state.slot for state in offered])
        if not offered:
            self.revoke()

    def room(self) -> dict[int, int]:
        """How many more attempts may be claimed ahead, as a number for the first offered slot."""
        offered = [] if self._is_closed else self._offered_slots()
        return self._slot_table.room_ahead(offered) if offered else {}

    def forget_offers(self) -> None:
        """Note that the executor knows no offer any more."""
        self._offered = []

    def revoke(self, project: str | None = None) -> None:
        """Take back the attempts claimed ahead: all of them, or those of a project."""
        for running in [*self._slot_table.claimed_ahead.values()]:
            phase = running.phase
            if not isinstance(phase, ClaimedAhead) or phase.revoking:
                continue
            if project in (None, _project_of(running)):
                phase.revoking = True
                self._is_closed = self._is_closed or project is None
                self._executor.revoke(running.key)

    def leave_slots(self, free: list[int]) -> list[int]:
        """The free slots that a plan may use: none while attempts are claimed ahead, for they take them.

        If a free slot is not offered to these attempts, they are revoked.
        """
        if not self._slot_table.claimed_ahead:
            return free
        if not {*self._offered}.issuperset(free):
            self.revoke()
        return []

    def has_to_give_way(self, demand: Candidates) -> bool:
        """Whether a waiting job comes before the last attempt claimed ahead."""
        if self._is_closed or not self._slot_table.claimed_ahead:
            return False
        return demand.precedes(next(reversed(self._slot_table.claimed_ahead.values())))

    def due_at(self) -> list[float]:
        """When the current jobs of offered slots will be too long for their slots to be offered."""
        if self._is_closed or not self._slot_table.claimed_ahead:
            return []
        return [
            state.current.begun + QUICK_S
            for state in self._offered_slots()
            if state.current is not None and state.ahead
        ]

    def exclude_long(self, now: float) -> None:
        """Stop offering slots whose current job turned out long."""
        if self._slot_table.claimed_ahead:
            for state in self._offered_slots():
                if state.current is not None and now >= state.current.begun + QUICK_S:
                    state.ahead = 0

    def _offered_slots(self) -> list[SlotState]:
        return [self._slot_table.states[index] for index in self._offered]


def _project_of(running: RunningAttempt) -> str | None:
    return None if running.entry.facts is None else running.entry.facts.request.project
