"""Which of its GPUs a Stoker keeps for its user's reservations, and how many more it asks for.

The reservations are those of this Stoker's queue. Other Stokers of the user, such as `stoker run`, count
with it: what they hold is part of what is reserved, and they keep it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from stoker.core.user_reservation import UserReservation, cut, next_change, reserved_until
from stoker.engine.slot_state import SlotState
from stoker.engine.user_reservations import UserReservations
from stoker.gpus.turn_files import Notice, OtherStoker

_CHECK_S = 60.0  # the wall clock may be set while nothing is reserved yet
_OVERDUE_S = 1.0  # turns that plan nothing do not review reservations either
_NEVER = float("inf")


class Reserver(NamedTuple):
    """The user who has reserved a GPU that it holds, and until when."""

    uid: int
    end_at: int


def find_reserver(
    keys: Sequence[str],
    others: Iterable[OtherStoker],
    holders: Mapping[str, int],
    is_possible: Callable[[Reserver], bool],
) -> Reserver | None:
    """Return who tells that it has reserved a slot; only the user who holds it is believed."""
    for other in others:
        if all(holders.get(key) == other.uid for key in keys):
            found = Reserver(other.uid, max(other.notice.reserved.get(key, 0) for key in keys))
            if is_possible(found):
                return found
    return None


class ReservedGpus:
    """The GPUs that are not yielded to other users, and until when.

    `until` has their lease keys. `lacking` is how many more GPUs this Stoker asks for. `ends` has the end of
    each GPU that its queue has reserved, held or not, for the user's other Stokers. `may_use` are those of
    them that may have reserved GPUs: their queues have reserved none. `now` is the wall clock.
    """

    def __init__(
        self,
        reservations: UserReservations | None,
        longest_s: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.until: dict[str, float] = {}
        self.lacking = 0
        self.ends: list[float] = []
        self.may_use: set[str] = set()
        self.elsewhere = 0  # how many GPUs the user's other Stokers hold
        self._reservations = reservations
        self._longest_s = longest_s
        self.now = wall_clock
        self._version = 0
        self._change_at = _NEVER
        self._ends_elsewhere: list[float] = []
        self._given: dict[str, float] = {}  # released for another Stoker of the user

    @property
    def is_in_force(self) -> bool:
        """Whether a GPU is kept, or asked for, or is to be asked for."""
        return bool(self.ends or self.until)

    def has(self, keys: Sequence[str]) -> bool:
        """Whether a GPU of a slot is not yielded to other users."""
        return not self.until.keys().isdisjoint(keys)

    def see(self, others: Mapping[str, Notice]) -> None:
        """Note what the user's other Stokers tell, by the names of their turn files."""
        self.elsewhere = sum(notice.holds for notice in others.values())
        self._ends_elsewhere = [end for notice in others.values() for end in notice.reserves]
        self.may_use = {name for name, notice in others.items() if not notice.reserves}

    def review(self, states: Callable[[], Iterable[SlotState]]) -> None:
        """Choose the GPUs to keep, of the slots of this machine. Costs nothing without reservations."""
        if self._reservations is not None and self._is_due(self._reservations):
            self._compute(self._reservations.version)
        if not (self.ends or self._ends_elsewhere or self.until):
            self.lacking, self._given = 0, {}
            return
        now = self.now()
        ends = sorted([*self.ends, *(at for at in self._ends_elsewhere if at > now)], reverse=True)
        needed = max(0, len(ends) - self.elsewhere)
        own = [*states()]
        held = {key for state in own if state.is_held for key in state.slot.keys}
        kept = self._choose(own, held, needed) if needed else []
        given = {**self._given, **self.until}
        self._given = {key: end for key, end in given.items() if key not in held and end > now}
        self.until = {key: ends[min(at, len(ends) - 1)] for at, key in enumerate(kept)}
        self.lacking = max(0, needed - len(kept)) if self.ends else 0

    def current(self, now: float) -> list[UserReservation]:
        """Return the reservations of the queue that are not over, as the rules of the machine allow them."""
        found = [] if self._reservations is None else self._reservations.all
        return cut((each for each in found if each.end_at > now), self._longest_s())

    def due_in_s(self) -> float:
        """Return in how many seconds a reservation begins or ends, or the clock is to be looked at."""
        if self._change_at == _NEVER:
            return _NEVER
        left_s = self._change_at - self.now()
        return min(left_s, _CHECK_S) if left_s > 0 else _OVERDUE_S

    @property
    def kept(self) -> dict[str, float]:
        """The GPUs that are kept also while they are idle, for the reservations of this queue."""
        return self.until if self.ends else {}

    def left_s(self) -> dict[str, float]:
        """Return for how many seconds each of these GPUs is kept."""
        now = self.now()
        return {key: end - now for key, end in self.kept.items()}

    def notice(self) -> Notice:
        """Return what the turn file tells of reservations, in whole seconds."""
        return Notice(
            reserves=tuple(math.ceil(end) for end in self.ends),
            reserved={key: math.ceil(end) for key, end in {**self._given, **self.until}.items()},
        )

    def _is_due(self, reservations: UserReservations) -> bool:
        if reservations.version != self._version or self.ends:  # the rules may cut one in force
            return True
        return bool(reservations.all) and self.now() >= self._change_at

    def _compute(self, version: int) -> None:
        """Work out until when each GPU is reserved now."""
        now = self.now()
        found = self.current(now)
        self._version = version
        self.ends, self._change_at = reserved_until(found, now), next_change(found, now)

    def _choose(self, states: list[SlotState], held: set[str], needed: int) -> list[str]:
        """Return the lease keys to keep: those kept before, then those that are in use, then idle ones."""
        usable = [
            state
            for state in states
            if state.whole_slot is None and state.is_open and held.issuperset(state.slot.keys)
        ]
        before = {key: at for at, key in enumerate(self.until)}
        usable.sort(
            key=lambda state: (
                min(before.get(key, len(before)) for key in state.slot.keys),
                state.is_idle,
            )
        )
        kept: dict[str, None] = {}
        for state in usable:
            if len(kept) >= needed:
                break
            kept.update(dict.fromkeys(state.slot.keys))
        return [*kept]
