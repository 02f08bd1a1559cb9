"""The line of attempts that are claimed ahead: the first slot that becomes vacant takes the next one."""

from __future__ import annotations

from stoker.engine.candidates import Candidates
from stoker.engine.slots import QUICK_S, RunningAttempt, SlotState, SlotTable
from stoker.executors.contract import Executor


class ClaimsAhead:
    """Decides which slots take attempts from the line, and takes attempts back where order demands it."""

    def __init__(self, slot_table: SlotTable, executor: Executor, *, enabled: bool) -> None:
        self._slot_table = slot_table
        self._executor = executor
        self._enabled = enabled
        self._offered: list[int] = []
        self._is_closed = False  # nothing joins the line until it is empty
        self.needs_slot_first = False  # a job waits that must know its GPU before it is launched

    def offer_slots(self, *, in_queue_order: bool) -> None:
        """Let slots with short jobs take attempts from the line; with none left, nothing waits there.

        There is a line only where one supervisor starts the jobs of all slots in queue order.
        """
        takers = (
            self._slot_table.slots_taking_ahead() if in_queue_order and self._is_possible() else []
        )
        if not self._slot_table.claimed_ahead:
            self._is_closed = False
        indices = [state.slot.index for state in takers]
        if indices != self._offered:
            self._offered = indices
            self._executor.offer([state.slot for state in takers])
        if not takers:
            self.revoke()

    def room(self) -> dict[int, int]:
        """How many more attempts may join the line, told for the first slot that takes from it."""
        takers = [] if self._is_closed else self._takers()
        return self._slot_table.room_ahead(takers) if takers else {}

    def _is_possible(self) -> bool:
        return self._enabled and not self.needs_slot_first and self._slot_table.has_one_supervisor

    def forget_offers(self) -> None:
        """Take note that the executor knows of no offer any more."""
        self._offered = []

    def revoke(self, project: str | None = None) -> None:
        """Take back what was claimed ahead: all of it, or a project's."""
        for running in [*self._slot_table.claimed_ahead.values()]:
            if not running.revoking and project in (None, _project_of(running)):
                running.revoking = True
                self._is_closed = self._is_closed or project is None
                self._executor.revoke(running.key)

    def leave_slots(self, free: list[int]) -> list[int]:
        """The free slots that a plan may use: none while attempts wait in line, for these take them.

        If a slot is free that takes nothing from the line, the line is taken back first.
        """
        if not self._slot_table.claimed_ahead:
            return free
        if not {*self._offered}.issuperset(free):
            self.revoke()
        return []

    def has_to_give_way(self, demand: Candidates) -> bool:
        """Whether a job waits that comes before the last of the line, and the line is still open."""
        if self._is_closed or not self._slot_table.claimed_ahead:
            return False
        return demand.precedes(next(reversed(self._slot_table.claimed_ahead.values())))

    def due_at(self) -> list[float]:
        """When the jobs on slots that take from the line will have lasted too long for that."""
        if self._is_closed or not self._slot_table.claimed_ahead:
            return []
        return [
            state.current.begun + QUICK_S
            for state in self._takers()
            if state.current is not None and state.ahead
        ]

    def exclude_long(self, now: float) -> None:
        """Let slots whose job turned out long take no more from the line."""
        if self._slot_table.claimed_ahead:
            for state in self._takers():
                if state.current is not None and now >= state.current.begun + QUICK_S:
                    state.ahead = 0

    def _takers(self) -> list[SlotState]:
        return [self._slot_table.states[index] for index in self._offered]


def _project_of(running: RunningAttempt) -> str | None:
    return None if running.entry.facts is None else running.entry.facts.project
