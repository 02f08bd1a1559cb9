"""State of a job that has not begun, from its hold, its needs and its start time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from stoker.core.lifecycle import State, is_final


class Need(msgspec.Struct, frozen=True):
    """A job that another job needs: its success, or (`any`) only its end. `state` None: it was removed."""

    id: int
    state: State | None
    any: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the needed job has ended as required."""
        if self.state is None:
            return self.any
        return self.state is State.DONE or (self.any and is_final(self.state))

    @property
    def is_hopeless(self) -> bool:
        """Whether the needed job has ended and the need can no longer be met."""
        return not self.is_met and (self.state is None or is_final(self.state))


def pending_state(
    *, held: bool, needs: Iterable[Need], begin_at_us: int | None, now_us: int
) -> State:
    """Return the state of a job that has not begun: held, skipped, blocked, delayed or waiting."""
    open_needs = [need for need in needs if not need.is_met]
    if any(need.is_hopeless for need in open_needs):
        return State.SKIPPED
    if held:
        return State.HELD
    if open_needs:
        return State.BLOCKED
    if begin_at_us is not None and begin_at_us > now_us:
        return State.DELAYED
    return State.WAITING


def find_cycle(job: int, needs_of: Mapping[int, Sequence[int]]) -> list[int] | None:
    """Return the shortest cycle from a job over its needs back to itself; None if there is none."""
    came_from: dict[int, int] = {}
    queue = deque([job])
    while queue:
        current = queue.popleft()
        for needed in needs_of.get(current, ()):
            if needed == job:
                way = [job, current]
                while way[-1] != job:
                    way.append(came_from[way[-1]])
                return way[::-1]
            if needed not in came_from:
                came_from[needed] = current
                queue.append(needed)
    return None
