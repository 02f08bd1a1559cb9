"""The planner: decides which waiting job starts on which slots. A pure function of its arguments.

Jobs are served by priority, then rank, then age. A job that needs more slots than are free reserves
the free ones it may use, so that no job behind it can delay it. Three kinds of jobs may pass it: jobs
that need no slot, jobs that may run elsewhere, and jobs whose time limit ends them before the other
slots it waits for can all be free.

In a cluster all slots of a job, and all slots reserved for it, are on one node: see `_choose_node`.

A job that declares CPUs or RAM also needs room for them on its node (`host_room.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.host_room import HostPlan, HostRooms
from stoker.core.job import JobClass, Request

_NO_ROOM: Mapping[int, int] = {}
_NOT_KEPT: Mapping[str, int] = {}
_EMPTY_HOSTS = HostRooms()
FORCED = 1 << 62
"""Priority of a job that its user starts before all others, regardless of thresholds."""
DEPTH = 16
"""How many waiting jobs may reserve slots at once in a cluster. Jobs behind them may be overtaken until
they are among the first; every job gets there in the end. This bounds the cost of a plan and the number
of GPUs that are idle because they are reserved."""


class Candidate(JobClass, frozen=True, kw_only=True):
    """A waiting job, as the planner sees it."""

    id: int
    priority: int = 0
    rank: int = 0
    allowed: frozenset[int] | None = None  # slots it may use, also by `where`; None: all
    node: str = ""  # where it starts if it needs no slot; empty for this machine

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key of the queue."""
        return (-self.priority, self.rank, self.id)


def make_candidate(job: int, request: Request, rank: int = 0) -> Candidate:
    """Return the candidate for a job with this request."""
    fields = msgspec.structs.astuple(request.job_class)
    return Candidate(*fields, id=job, priority=request.priority, rank=rank)


class Busy(msgspec.Struct, frozen=True):
    """An occupied slot. `ends_by` is when a time limit frees it; None if there is no limit."""

    slot: int
    ends_by: float | None = None


class Nodes(msgspec.Struct, frozen=True):
    """Nodes of a cluster: the node of each slot by its index, and the occupied slots of a node."""

    node_of: Sequence[str]
    busy_on: Callable[[str], Iterable[Busy]]


class Start(msgspec.Struct, frozen=True):
    """Start of a job on these slots now, or (`in_advance`) on this slot as soon as it is vacant."""

    job: int
    slots: tuple[int, ...]
    in_advance: bool = False


class Plan(msgspec.Struct, frozen=True):
    """Result of planning: the starts, the first job that must wait, and for which job a free slot is kept.

    `host_kept` has the job for which CPUs and RAM are kept, by node.
    """

    starts: tuple[Start, ...]
    reserved_for: int | None = None
    reserved: Mapping[int, int] = _NO_ROOM
    host_kept: Mapping[str, int] = _NOT_KEPT


def plan(
    waiting: Iterable[Candidate],
    *,
    free: Sequence[int],
    busy: Sequence[Busy] = (),
    room: Mapping[int, int] = _NO_ROOM,
    cpu_places: int = 0,
    now: float = 0.0,
    nodes: Nodes | None = None,
    hosts: HostRooms = _EMPTY_HOSTS,
) -> Plan:
    """Decide which jobs start. `waiting` comes in queue order and is read only as far as needed.

    If slots stay free, all of it is read: callers with a long queue pass only its first jobs of each
    class (`Jobs.heads`).

    `room` gives, for slots with very short jobs, how many more jobs may be claimed in advance, to start
    when the slot becomes vacant. Claims in advance keep the queue's order: behind a job that needs a slot
    and gets none, none is claimed. If `nodes` is given, `busy` is ignored.

    `hosts` gives the CPUs and RAM for jobs that declare them. Such a job is not claimed in advance.
    """
    pool = _SlotPool(free, busy, now, nodes, HostPlan(hosts))
    rooms = _interleave(room)
    starts: list[Start] = []
    first_waiting: int | None = None
    for job in waiting:
        if not (pool.open or rooms or cpu_places):
            break
        if pool.kept and not (rooms or cpu_places) and pool.is_all_kept():
            break
        if job.slots == 0:
            if cpu_places and pool.take_host(job):
                cpu_places -= 1
                starts.append(Start(job.id, ()))
            continue
        taken = pool.take(job)
        if taken is not None:
            starts.append(Start(job.id, taken))
        elif rooms and _can_start_in_advance(job):
            starts.append(Start(job.id, (rooms.pop(),), in_advance=True))
        else:
            if first_waiting is None:
                first_waiting = job.id
            rooms = []
            pool.let_wait(job)
    return Plan(tuple(starts), first_waiting, pool.reserved(), pool.hosts.kept)


def _can_start_in_advance(job: Candidate) -> bool:
    is_plain = job.allowed is None and not job.share and not job.declares_host
    return job.slots == 1 and is_plain


class _SlotPool:
    """The slots while a plan is made: which are open, and which of them are kept for which job."""

    def __init__(
        self,
        free: Sequence[int],
        busy: Sequence[Busy],
        now: float,
        nodes: Nodes | None,
        hosts: HostPlan,
    ) -> None:
        self.open = list(free)
        self.hosts = hosts
        self.kept: dict[int, int] = {}
        self._keepers = 0
        self._spare_until: dict[int, float] = {}
        self._taken: dict[int, float | None] = {}  # slots given in this plan, and until when
        # Classes of jobs that got no slots. Open slots only become fewer, so later jobs of a class get none.
        self._refused: set[tuple[object, ...]] = set()
        self._hopeless: set[tuple[object, ...]] = set()
        self._busy = busy
        self._now = now
        self._nodes = nodes
        self._busy_on: dict[
            str, dict[int, float | None]
        ] = {}  # cache of the answers of `nodes.busy_on`

    def is_all_kept(self) -> bool:
        """Whether every open slot is kept, and none can be lent to a later job."""
        spare_until, now = self._spare_until, self._now
        return all(spare_until.get(slot, now + 1.0) <= now for slot in self.open)

    def take(self, job: Candidate) -> tuple[int, ...] | None:
        """Give a job open slots, all on one node, and what it declares; None if there is too little."""
        wanted, declares_host = job.slots, job.declares_host
        if declares_host and self._nodes is None and not self.hosts.has_room(job, ""):
            return None
        one_node = (wanted > 1 or declares_host) and self._nodes is not None
        if self.kept or job.allowed is not None or one_node:
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
            if declares_host:
                self.hosts.take(job, self._node_of(taken[0]))
        return taken

    def take_host(self, job: Candidate) -> bool:
        """Give a job without slots what it declares; False if there is too little, or it is kept."""
        if not job.declares_host:
            return True
        if not self.hosts.has_room(job, job.node):
            self.hosts.keep(job, job.id, [job.node])
            return False
        self.hosts.take(job, job.node)
        return True

    def let_wait(self, job: Candidate) -> None:
        """Keep for a job that has to wait what jobs behind it could take.

        For a job of one slot there is no usable free slot left to keep. A job keeps no slots while it
        lacks CPUs or RAM.
        """
        if job.declares_host:
            nodes = self._nodes_of(job)
            has_room = any(self.hosts.has_room(job, node) for node in nodes)
            self.hosts.keep(job, job.id, nodes)
            if not has_room:
                return
        if job.slots > 1:
            self.keep(job)

    def _nodes_of(self, job: Candidate) -> list[str]:
        """Return the nodes with slots that a job may use."""
        if self._nodes is None:
            return [""]
        node_of = self._nodes.node_of
        return sorted(
            {*(node_of if job.allowed is None else map(node_of.__getitem__, job.allowed))}
        )

    def _take_some(self, job: Candidate) -> tuple[int, ...] | None:
        """Do the same for a job that may not use every open slot."""
        kind = (job.slots, job.timeout_s, job.allowed, job.cpus, job.mem_bytes)
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
        """Return the open slots that a job may use without delaying a job ahead of it."""
        ends_by = float("inf") if job.timeout_s is None else self._now + job.timeout_s
        spare_until, allowed = self._spare_until, job.allowed
        usable = [
            slot
            for slot in self.open
            if (allowed is None or slot in allowed)
            and ends_by <= spare_until.get(slot, float("inf"))
        ]
        if self._nodes is None or not job.declares_host:
            return usable
        nodes = {self._node_of(slot) for slot in usable}
        roomy = {node for node in nodes if self.hosts.has_room(job, node)}
        return [slot for slot in usable if self._node_of(slot) in roomy]

    def keep(self, job: Candidate) -> None:
        """Keep the open slots that a job may use for it, until enough other slots can be free."""
        kept, allowed = self.kept, job.allowed
        if self._nodes is not None and (
            self._keepers >= DEPTH or (job.slots, allowed) in self._hopeless
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
            self._hopeless.add((job.slots, allowed))
        until = _free_at(job.slots - len(mine), ends, self._now)
        for slot in mine:
            kept[slot] = job.id
            self._spare_until[slot] = until

    def _choose_node(
        self, job: Candidate, mine: Sequence[int]
    ) -> tuple[list[int], list[float | None]]:
        """Choose the node on which a job waits. Returns its open slots, and when its busy slots are free.

        Of the nodes with an open slot for the job, this is the one where the fewest jobs without a time
        limit must end first; among equal ones, the one that has room first according to the time limits.
        No job can be delayed for ever by this choice: jobs that pass it on its node end within the limits
        counted already, so both figures stay; every other end there makes them smaller; and another node
        is chosen only for smaller figures. Other nodes keep no slots for the job and stay usable.
        """
        best: tuple[int, float, str] | None = None
        found: tuple[list[int], list[float | None]] = ([], [])
        kept_on = Counter(self._node_of(slot) for slot in self.kept)
        for node, slots in self._by_node(mine).items():
            ends = _ends(job, self._busy_there(node))
            missing = job.slots - len(slots)
            if len(ends) + kept_on[node] < missing:
                continue  # the node has too few slots at present
            limits = sorted([end for end in ends if end is not None])
            by_limit = limits[min(missing, len(limits)) - 1] if limits else self._now
            key = (max(0, missing - len(limits)), by_limit, node)
            if best is None or key < best:
                best, found = key, (slots, ends)
        return found

    def _busy_there(self, node: str) -> dict[int, float | None]:
        """Return when each busy slot of a node is free again, including slots given in this plan."""
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
        """Return the job for which each remaining open slot is kept."""
        still = set(self.open) if self.kept else ()
        return {slot: job for slot, job in self.kept.items() if slot in still} or _NO_ROOM


def _ends(job: Candidate, busy: Mapping[int, float | None]) -> list[float | None]:
    """Return when the slots that a job may use are free again."""
    allowed = job.allowed
    if allowed is None:
        return [*busy.values()]
    return [ends_by for slot, ends_by in busy.items() if slot in allowed]


def _tightest(wanted: int, by_node: Mapping[str, list[int]]) -> list[int]:
    """Return the open slots of the node that has enough, but the fewest: whole nodes stay free for others."""
    enough = [slots for slots in by_node.values() if len(slots) >= wanted]
    return min(enough, key=len, default=[])


def _interleave(room: Mapping[int, int]) -> list[int]:
    """List each slot once for each job it has room for; the next one to fill is last."""
    deepest = max(room.values(), default=0)
    slots = [*room][::-1]
    return [slot for depth in range(deepest, 0, -1) for slot in slots if room[slot] >= depth]


def _free_at(missing: int, ends: Iterable[float | None], now: float) -> float:
    """Return the earliest time at which that many busy slots could be free.

    A slot without a time limit may become free at any time, so it counts as free now.
    """
    moments = sorted(now if end is None else end for end in ends)
    return moments[missing - 1] if 0 < missing <= len(moments) else now
