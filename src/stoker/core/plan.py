"""The planner: which waiting job starts on which slots, as a pure function of what is known.

Jobs are served by priority, then rank, then age. A job that needs more slots than are free reserves
the free ones, so that nothing behind it can keep it waiting: only jobs that need no slot pass it, and
jobs whose time limit ends them before the slots it waits for can all be free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

_NO_ROOM: Mapping[int, int] = {}


class Candidate(msgspec.Struct, frozen=True):
    """A waiting job, as far as planning cares."""

    id: int
    slots: int = 1
    priority: int = 0
    rank: int = 0
    timeout_s: float | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it stands in the queue."""
        return (-self.priority, self.rank, self.id)


class Busy(msgspec.Struct, frozen=True):
    """A slot at work. `ends_by` is when a time limit frees it; None if nobody knows."""

    slot: int
    ends_by: float | None = None


class Start(msgspec.Struct, frozen=True):
    """A job gets these slots: now, or (`in_advance`) when what was claimed before it has ended."""

    job: int
    slots: tuple[int, ...]
    in_advance: bool = False


class Plan(msgspec.Struct, frozen=True):
    """What to start, and the first job that had to wait while slots were free."""

    starts: tuple[Start, ...]
    reserved_for: int | None = None


def plan(
    waiting: Iterable[Candidate],
    *,
    free: Sequence[int],
    busy: Sequence[Busy] = (),
    room: Mapping[int, int] = _NO_ROOM,
    cpu_places: int = 0,
    now: float = 0.0,
) -> Plan:
    """Decide what starts. `waiting` comes in queue order and is read only as far as needed.

    Where places stand empty for which no job comes, that is to its end: callers with a long queue
    pass its head, class by class, as `Jobs.heads` has it.

    `room` tells for slots whose jobs are very short how many more may be claimed in advance, behind
    the one that runs there or starts now.
    """
    open_slots = list(free)
    rooms = _interleave(room)
    starts: list[Start] = []
    reserved_for: int | None = None
    spare_until = 0.0
    ends = [now if place.ends_by is None else place.ends_by for place in busy]
    for job in waiting:
        if not (open_slots or rooms or cpu_places):
            break
        if reserved_for is not None and spare_until <= now and not cpu_places:
            break
        if job.slots == 0:
            if cpu_places:
                cpu_places -= 1
                starts.append(Start(job.id, ()))
        elif reserved_for is not None:
            ends_by = now + job.timeout_s if job.timeout_s is not None else None
            if ends_by is not None and ends_by <= spare_until and job.slots <= len(open_slots):
                starts.append(Start(job.id, _take(open_slots, job.slots)))
        elif job.slots <= len(open_slots):
            starts.append(Start(job.id, _take(open_slots, job.slots)))
            ends += [now + (job.timeout_s or 0.0)] * job.slots
        elif job.slots == 1 and rooms:
            starts.append(Start(job.id, (rooms.pop(),), in_advance=True))
        else:
            reserved_for = job.id
            rooms.clear()
            spare_until = _spare_until(job.slots - len(open_slots), ends, now)
    return Plan(tuple(starts), reserved_for)


def _take(slots: list[int], count: int) -> tuple[int, ...]:
    taken = tuple(slots[:count])
    del slots[:count]
    return taken


def _interleave(room: Mapping[int, int]) -> list[int]:
    """Slots with room, once for each job they have room for, the next one to fill at the end."""
    deepest = max(room.values(), default=0)
    slots = [*room][::-1]
    return [slot for depth in range(deepest, 0, -1) for slot in slots if room[slot] >= depth]


def _spare_until(missing: int, ends: list[float], now: float) -> float:
    """The earliest moment at which that many busy slots could be free.

    A slot without a time limit may be free at any moment, so it counts as free now.
    """
    return sorted(ends)[missing - 1] if 0 < missing <= len(ends) else now
