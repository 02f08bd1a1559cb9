"""The planner: which waiting job starts on which slots, as a pure function of what is known.

Jobs are served by priority, then rank, then age. A job that needs more slots than are free reserves
the free ones it may use, so that nothing behind it can keep it waiting: only jobs that need no slot
pass it, jobs that may run elsewhere, and jobs whose time limit ends them before the slots it waits for
can all be free.
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
    allowed: frozenset[int] | None = None  # the slots it may use; None for all
    project: str | None = None
    share: str | None = None  # how it shares its GPU; None if it does not
    gpu_mem: int | None = None  # what it says it needs of each GPU

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
    """What to start, the first job that had to wait, and for which job a free slot is kept."""

    starts: tuple[Start, ...]
    reserved_for: int | None = None
    reserved: Mapping[int, int] = _NO_ROOM


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
    reserved: dict[int, int] = {}
    spare_until: dict[int, float] = {}
    first_waiting: int | None = None
    ends = {place.slot: now if place.ends_by is None else place.ends_by for place in busy}
    for job in waiting:
        if not (open_slots or rooms or cpu_places):
            break
        if reserved and not (rooms or cpu_places) and _all_kept(open_slots, spare_until, now):
            break
        if job.slots == 0:
            if cpu_places:
                cpu_places -= 1
                starts.append(Start(job.id, ()))
            continue
        usable = open_slots
        if reserved or job.allowed is not None:
            usable = _usable(job, open_slots, spare_until, now)
        if job.slots <= len(usable):
            taken = tuple(usable[: job.slots])
            starts.append(Start(job.id, taken))
            if usable is open_slots:
                del open_slots[: job.slots]
            else:
                open_slots = [slot for slot in open_slots if slot not in taken]
            ends.update(dict.fromkeys(taken, now + (job.timeout_s or 0.0)))
        elif job.slots == 1 and not job.share and (place := _find_room(job, rooms)) is not None:
            starts.append(Start(job.id, (place,), in_advance=True))
        else:
            if first_waiting is None:
                first_waiting = job.id
            rooms = [slot for slot in rooms if not _may_use(job, slot)]
            _reserve(job, open_slots, ends, now, reserved, spare_until)
    kept = {slot: owner for slot, owner in reserved.items() if slot in open_slots}
    return Plan(tuple(starts), first_waiting, kept or _NO_ROOM)


def _may_use(job: Candidate, slot: int) -> bool:
    return job.allowed is None or slot in job.allowed


def _all_kept(slots: Sequence[int], spare_until: Mapping[int, float], now: float) -> bool:
    """Whether nothing could pass those for whom the open slots are kept."""
    return all(spare_until.get(slot, now + 1.0) <= now for slot in slots)


def _usable(
    job: Candidate, slots: Sequence[int], spare_until: Mapping[int, float], now: float
) -> list[int]:
    """The open slots that a job may use without keeping one that is ahead of it waiting."""
    ends_by = float("inf") if job.timeout_s is None else now + job.timeout_s
    return [
        slot
        for slot in slots
        if _may_use(job, slot) and ends_by <= spare_until.get(slot, float("inf"))
    ]


def _find_room(job: Candidate, rooms: list[int]) -> int | None:
    if job.allowed is None:
        return rooms.pop() if rooms else None
    for position in range(len(rooms) - 1, -1, -1):
        if rooms[position] in job.allowed:
            return rooms.pop(position)
    return None


def _reserve(
    job: Candidate,
    open_slots: Sequence[int],
    ends: Mapping[int, float],
    now: float,
    reserved: dict[int, int],
    spare_until: dict[int, float],
) -> None:
    """Keep for a job the open slots that it may use, until enough others can be free."""
    mine = [slot for slot in open_slots if _may_use(job, slot) and slot not in reserved]
    others = [end for slot, end in ends.items() if _may_use(job, slot)]
    until = _spare_until(job.slots - len(mine), others, now)
    for slot in mine:
        reserved[slot] = job.id
        spare_until[slot] = until


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
