"""Index of slot states, kept up to date on every change, so that a turn does not scan thousands of slots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.engine.slots import SlotState


class SlotIndex:
    """Which states are free, wanted, idle and so on, by their indices.

    A state says when it has changed; what follows from that is worked out when somebody asks.
    """

    def __init__(self, states: list[SlotState]) -> None:
        self._states = states
        self._changed: set[int] = set()
        self._free: set[int] = set()
        self._unheld: set[int] = set()
        self._idle: set[int] = set()
        self._shut: set[int] = set()
        self._quick: set[int] = set()
        self._followed: set[int] = set()
        self._open: set[int] = set()
        self._users: Counter[str] = Counter()  # of each lease key: the states that have or want it
        self._using: set[int] = set()
        self._open_on: Counter[str] = Counter()
        self._most_open: int | None = None

    def touch(self, index: int) -> None:
        """Take note that a state has changed."""
        self._changed.add(index)

    def free(self) -> list[int]:
        """Where a job could start now."""
        return sorted(self._settle()._free)

    def unheld(self) -> list[SlotState]:
        """The states of whole GPUs that are neither ours nor asked for."""
        return self._list(self._settle()._unheld)

    def idle(self) -> list[SlotState]:
        """Those that are ours, with nothing on them."""
        return self._list(self._settle()._idle)

    def shut(self) -> list[SlotState]:
        """Those that are ours, with nothing on them, and may have no jobs."""
        return self._list(self._settle()._shut)

    def quick(self) -> list[SlotState]:
        """Those whose jobs are so short that more are claimed in advance."""
        return self._list(self._settle()._quick)

    def followed(self) -> list[SlotState]:
        """Those on which jobs are claimed in advance."""
        return self._list(self._settle()._followed)

    def count_open(self) -> int:
        """How many whole GPUs may have jobs at all."""
        return len(self._settle()._open)

    def most_open(self) -> int:
        """How many of those there are on the node with the most."""
        self._settle()
        if self._most_open is None:
            self._most_open = max(self._open_on.values(), default=0)
        return self._most_open

    def is_open(self, index: int) -> bool:
        """Whether a state of whole GPUs may have jobs at all."""
        return index in self._settle()._open

    def users(self) -> Counter[str]:
        """How many states have or want each lease key."""
        return self._settle()._users

    def _list(self, indices: set[int]) -> list[SlotState]:
        return [self._states[index] for index in sorted(indices)]

    def _settle(self) -> SlotIndex:
        if self._changed:
            changed, self._changed = self._changed, set()
            for index in changed:
                self._judge(index, self._states[index])
        return self

    def _judge(self, index: int, state: SlotState) -> None:
        whole, is_open = state.whole_slot is None, state.is_open
        nothing = state.current is None
        idle = state.held and nothing and not state.releasing
        _mark(self._free, index, idle and whole and is_open and not state.tenants)
        _mark(self._unheld, index, whole and not (state.held or state.asked))
        _mark(self._idle, index, idle)
        _mark(self._shut, index, idle and not is_open)
        _mark(self._quick, index, state.ahead > 0)
        _mark(self._followed, index, bool(state.followers))
        self._count_open(index, state, is_open=whole and is_open)
        self._count_users(index, state)

    def _count_open(self, index: int, state: SlotState, *, is_open: bool) -> None:
        if is_open != (index in self._open):
            _mark(self._open, index, is_open)
            self._open_on[state.slot.node] += 1 if is_open else -1
            self._most_open = None

    def _count_users(self, index: int, state: SlotState) -> None:
        uses = state.held or state.asked
        if uses != (index in self._using):
            _mark(self._using, index, uses)
            for key in state.slot.keys:
                self._users[key] += 1 if uses else -1


def _mark(members: set[int], index: int, belongs: bool) -> None:
    if belongs:
        members.add(index)
    else:
        members.discard(index)
