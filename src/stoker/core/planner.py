"""The planner: which waiting job starts on which slots, as a pure function of what is known.

Jobs are served by priority, then rank, then age. A job that needs more slots than are free reserves
the free ones it may use, so that nothing behind it can keep it waiting: only jobs that need no slot
pass it, jobs that may run elsewhere, and jobs whose time limit ends them before the slots it waits for
can all be free.

In a cluster the slots of a job are of one node, and so is what is kept for it: see `_choose_node`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

_NO_ROOM: Mapping[int, int] = {}
FORCED = 1 << 62
"""The priority of a job that its user starts before all others, whatever thresholds say."""
DEPTH = 16
"""For how many jobs slots are kept at once in a cluster: the first that wait. Those behind them may be
overtaken until they are among these, which all come to be; a plan's cost does not grow with their number,
nor do the GPUs that stand idle for them."""


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
    where: str | None = (
        None  # on which nodes and GPUs it may run, as text; it says so in `allowed` too
    )

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it stands in the queue."""
        return (-self.priority, self.rank, self.id)


class Busy(msgspec.Struct, frozen=True):
    """A slot at work. `ends_by` is when a time limit frees it; None if nobody knows."""

    slot: int
    ends_by: float | None = None


class Nodes(msgspec.Struct, frozen=True):
    """Where the slots of a cluster are: each one's node, by its index, and what is at work on a node."""

    node_of: Sequence[str]
    busy_on: Callable[[str], Iterable[Busy]]


class Start(msgspec.Struct, frozen=True):
    """A job gets these slots now; or (`in_advance`) the first slot that becomes vacant."""

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
    nodes: Nodes | None = None,
) -> Plan:
    """Decide what starts. `waiting` comes in queue order and is read only as far as needed.

    Where places stand empty for which no job comes, that is to its end: callers with a long queue
    pass its head, class by class, as `Jobs.heads` has it.

    `room` tells for slots whose jobs are very short how many more may be claimed in advance, for
    when such a slot becomes vacant. Claims in advance keep the order: behind a job that needs a slot
    and gets none, nothing is claimed. With `nodes`, which know what is busy where, nothing is read of
    `busy`.
    """
    scene = _Scene(free, busy, now, nodes)
    rooms = _interleave(room)
    starts: list[Start] = []
    first_waiting: int | None = None
    for job in waiting:
        if not (scene.open or rooms or cpu_places):
            break
        if scene.kept and not (rooms or cpu_places) and scene.is_all_kept():
            break
        if job.slots == 0:
            if cpu_places:
                cpu_places -= 1
                starts.append(Start(job.id, ()))
            continue
        taken = scene.take(job)
        if taken is not None:
            starts.append(Start(job.id, taken))
        elif rooms and job.slots == 1 and job.allowed is None and not job.share:
            starts.append(Start(job.id, (rooms.pop(),), in_advance=True))
        else:
            if first_waiting is None:
                first_waiting = job.id
            rooms = []
            if job.slots > 1:  # one that needs a single slot finds none that could be kept for it
                scene.keep(job)
    return Plan(tuple(starts), first_waiting, scene.reserved())


class _Scene:
    """The slots as a plan is made: which are open, and which of those are kept for whom, until when."""

    def __init__(
        self, free: Sequence[int], busy: Sequence[Busy], now: float, nodes: Nodes | None
    ) -> None:
        self.open = list(free)
        self.kept: dict[int, int] = {}
        self._keepers = 0
        self._spare_until: dict[int, float] = {}
        self._taken: dict[int, float | None] = {}  # by when those that start now end
        # What one did not get, none of its kind gets after it: open slots become fewer only.
        self._refused: set[tuple[object, ...]] = set()
        self._vain: set[tuple[object, ...]] = set()
        self._busy = busy
        self._now = now
        self._nodes = nodes
        self._busy_on: dict[str, dict[int, float | None]] = {}  # what was asked of the nodes

    def is_all_kept(self) -> bool:
        """Whether nothing could pass those for whom the open slots are kept."""
        spare_until, now = self._spare_until, self._now
        return all(spare_until.get(slot, now + 1.0) <= now for slot in self.open)

    def take(self, job: Candidate) -> tuple[int, ...] | None:
        """Give a job open slots, all of one node; None if there are not enough for it."""
        wanted = job.slots
        if self.kept or job.allowed is not None or (wanted > 1 and self._nodes is not None):
            taken = self._take_some(job)
        else:
            taken = tuple(self.open[:wanted]) if wanted <= len(self.open) else None
            if taken is not None:
                del self.open[:wanted]
        if taken is not None:
            ends_by = None if job.timeout_s is None else self._now + job.timeout_s
            for slot in taken:
                self._taken[slot] = ends_by
            if self._busy_on:
                self._busy_on.pop(self._node_of(taken[0]), None)
        return taken

    def _take_some(self, job: Candidate) -> tuple[int, ...] | None:
        """The same for a job that may not have just any."""
        kind = (job.slots, job.timeout_s, job.allowed)
        if kind in self._refused:
            return None
        usable = self._usable(job)
        if job.slots > 1 and self._nodes is not None:
            usable = _tightest(job.slots, self._by_node(usable))
        if job.slots > len(usable):
            self._refused.add(kind)
            return None
        taken = tuple(usable[: job.slots])
        for slot in taken:
            self.open.remove(slot)
        return taken

    def _usable(self, job: Candidate) -> list[int]:
        """The open slots that a job may use without keeping one that is ahead of it waiting."""
        ends_by = float("inf") if job.timeout_s is None else self._now + job.timeout_s
        spare_until, allowed = self._spare_until, job.allowed
        return [
            slot
            for slot in self.open
            if (allowed is None or slot in allowed)
            and ends_by <= spare_until.get(slot, float("inf"))
        ]

    def keep(self, job: Candidate) -> None:
        """Keep for a job the open slots that it may use, until enough others can be free."""
        kept, allowed = self.kept, job.allowed
        if self._nodes is not None and (
            self._keepers >= DEPTH or (job.slots, allowed) in self._vain
        ):
            return
        mine = [
            slot for slot in self.open if slot not in kept and (allowed is None or slot in allowed)
        ]
        if self._nodes is None:
            busy = {place.slot: place.ends_by for place in self._busy}
            ends = _ends(job, busy | self._taken)
        else:
            mine, ends = self._choose_node(job, mine)
        if mine:
            self._keepers += 1
        else:
            self._vain.add((job.slots, allowed))
        until = _free_at(job.slots - len(mine), ends, self._now)
        for slot in mine:
            kept[slot] = job.id
            self._spare_until[slot] = until

    def _choose_node(
        self, job: Candidate, mine: Sequence[int]
    ) -> tuple[list[int], list[float | None]]:
        """The open slots of the node on which a job is to wait, and when others there end.

        Of the nodes with a slot open for it, that is the one on which it needs the end of the fewest
        jobs without a time limit; of equal ones the one that has room first by the limits. Nobody can
        keep a job waiting by that: what is let past it on its node ends within the limits counted
        already, and so leaves both figures as they are; every other end there makes them smaller; and
        another node is chosen only for smaller ones. Kept slots are of one node, so the others go on.
        """
        best: tuple[int, float, str] | None = None
        found: tuple[list[int], list[float | None]] = ([], [])
        kept_on = Counter(self._node_of(slot) for slot in self.kept)
        for node, slots in self._by_node(mine).items():
            ends = _ends(job, self._busy_there(node))
            missing = job.slots - len(slots)
            if len(ends) + kept_on[node] < missing:
                continue  # too small, as things are
            limits = sorted([end for end in ends if end is not None])
            by_limit = limits[min(missing, len(limits)) - 1] if limits else self._now
            key = (max(0, missing - len(limits)), by_limit, node)
            if best is None or key < best:
                best, found = key, (slots, ends)
        return found

    def _busy_there(self, node: str) -> dict[int, float | None]:
        """By when each busy slot of a node is free again, with those that start now."""
        assert self._nodes is not None
        busy = self._busy_on.get(node)
        if busy is None:
            busy = {place.slot: place.ends_by for place in self._nodes.busy_on(node)}
            node_of = self._nodes.node_of
            busy |= {slot: end for slot, end in self._taken.items() if node_of[slot] == node}
            self._busy_on[node] = busy
        return busy

    def _by_node(self, slots: Iterable[int]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for slot in slots:
            found.setdefault(self._node_of(slot), []).append(slot)
        return found

    def _node_of(self, slot: int) -> str:
        return "" if self._nodes is None else self._nodes.node_of[slot]

    def reserved(self) -> Mapping[int, int]:
        """For which job each slot is kept that stays open."""
        still = set(self.open) if self.kept else ()
        return {slot: job for slot, job in self.kept.items() if slot in still} or _NO_ROOM


def _ends(job: Candidate, busy: Mapping[int, float | None]) -> list[float | None]:
    """By when those slots are free again that a job may use."""
    allowed = job.allowed
    if allowed is None:
        return [*busy.values()]
    return [ends_by for slot, ends_by in busy.items() if slot in allowed]


def _tightest(wanted: int, by_node: Mapping[str, list[int]]) -> list[int]:
    """The open slots of the node with enough and the fewest of them, to leave whole nodes to others."""
    enough = [slots for slots in by_node.values() if len(slots) >= wanted]
    return min(enough, key=len, default=[])


def _interleave(room: Mapping[int, int]) -> list[int]:
    """Slots with room, once for each job they have room for, the next one to fill at the end."""
    deepest = max(room.values(), default=0)
    slots = [*room][::-1]
    return [slot for depth in range(deepest, 0, -1) for slot in slots if room[slot] >= depth]


def _free_at(missing: int, ends: Iterable[float | None], now: float) -> float:
    """The earliest moment at which that many busy slots could be free.

    A slot without a time limit may be free at any moment, so it counts as free now.
    """
    moments = sorted(now if end is None else end for end in ends)
    return moments[missing - 1] if 0 < missing <= len(moments) else now
