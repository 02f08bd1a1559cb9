"""Index of slot states, kept up to date on every change: a turn does not scan thousands of slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from stoker.engine.slot_state import ClosedBy, LeaseHeld, SlotState, Unleased

_FOR_A_MOMENT = {ClosedBy.TURN}


class SlotIndex:
    """Sets of free, idle, open and other slots, by the index of the slot.

    A slot reports its change by `touch`. The sets follow when one of them is read next.
    """

    def __init__(self, states: list[SlotState]) -> None:
        self._states = states
        self._changed: set[int] = set()
        self._free: set[int] = set()
        self._unleased: set[int] = set()
        self._idle: set[int] = set()
        self._idle_closed: set[int] = set()
        self._quick: set[int] = set()
        self._open: set[int] = set()
        self._leased: set[int] = set()
        self._users: Counter[str] = Counter()
        self._open_on: Counter[str] = Counter()
        self._most_open: int | None = None
        self._held: set[int] = set()
        self._gathered: dict[int, tuple[str, ...]] = {}
        self._lease_changes = 0

    def touch(self, index: int) -> None:
        """Note that a slot has changed."""
        self._changed.add(index)

    def free(self) -> list[int]:
        """The slots on which a job could start now."""
        return sorted(self._update()._free)

    def unleased(self) -> list[SlotState]:
        """The slots of whole GPUs that are neither ours nor requested."""
        return self._list(self._update()._unleased)

    def idle(self) -> list[SlotState]:
        """The slots that are ours and have no attempt."""
        return self._list(self._update()._idle)

    def idle_closed(self) -> list[SlotState]:
        """The idle slots that may get no jobs."""
        return self._list(self._update()._idle_closed)

    def quick(self) -> list[SlotState]:
        """The slots whose jobs are so short that more are claimed ahead."""
        return self._list(self._update()._quick)

    def gathering(self) -> list[SlotState]:
        """The slots of which some GPUs are ours and others are not."""
        return self._list(self._update()._gathered.keys())

    def lease_changes(self) -> int:
        """How often a slot, or a part of it, has become ours or ceased to be."""
        return self._update()._lease_changes

    def has_unleased(self) -> bool:
        """Whether a slot is not ours: it was not requested, was refused, or has no answer yet."""
        self._update()
        return bool(self._unleased) or len(self._leased) > len(self._held)

    def count_open(self) -> int:
        """How many slots of whole GPUs may get jobs, now or after the turn of another user."""
        return len(self._update()._open)

    def most_open(self) -> int:
        """How many open slots the node with the most has."""
        self._update()
        if self._most_open is None:
            self._most_open = max(self._open_on.values(), default=0)
        return self._most_open

    def is_open(self, index: int) -> bool:
        """Whether a slot is one of whole GPUs that may get jobs."""
        return index in self._update()._open

    def users(self) -> Counter[str]:
        """How many held or requested slots need each lease key."""
        return self._update()._users

    def _list(self, indices: Collection[int]) -> list[SlotState]:
        return [self._states[index] for index in sorted(indices)]

    def _update(self) -> SlotIndex:
        if self._changed:
            changed, self._changed = self._changed, set()
            for index in changed:
                self._sort_in(index, self._states[index])
        return self

    def _sort_in(self, index: int, state: SlotState) -> None:
        whole, is_open = state.whole_slot is None, not state.closed
        lease, unleased = state.lease, isinstance(state.lease, Unleased)
        idle = isinstance(lease, LeaseHeld) and state.current is None and not state.releasing
        _mark(self._free, index, idle and whole and is_open and not state.tenants)
        _mark(self._unleased, index, whole and unleased)
        _mark(self._idle, index, idle)
        _mark(self._idle_closed, index, idle and not is_open)
        _mark(self._quick, index, state.ahead > 0)
        self._lease_changes += _mark(self._held, index, isinstance(lease, LeaseHeld))
        if self._gathered.get(index, ()) != state.gathered:
            self._lease_changes += 1
            self._gathered[index] = state.gathered
            if not state.gathered:
                del self._gathered[index]
        can_come = whole and (is_open or state.closed.keys() == _FOR_A_MOMENT)
        if _mark(self._open, index, can_come):
            self._open_on[state.slot.node] += 1 if can_come else -1
            self._most_open = None
        if _mark(self._leased, index, not unleased):
            for key in state.slot.keys:
                self._users[key] += -1 if unleased else 1


def _mark(members: set[int], index: int, belongs: bool) -> bool:
    """Put a slot into a set or take it out; returns whether that changed the set."""
    if belongs == (index in members):
        return False
    if belongs:
        members.add(index)
    else:
        members.remove(index)
    return True
