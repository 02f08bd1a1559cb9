"""CPUs and RAM that are set aside for running attempts, on this machine and on the nodes of a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.host_room import HostRoom, HostRooms, describe_cpus, most_ram
from stoker.core.job import JobClass
from stoker.core.node import NodeFacts
from stoker.core.size import format_memory
from stoker.engine.running_attempt import RunningAttempt, Suspended
from stoker.errors import UsageError
from stoker.machine import count_cpus, read_memory

_READ_S = 0.5


class HostCapacity(msgspec.Struct, frozen=True):
    """CPUs and RAM of this machine, and a function that reads how much RAM is free."""

    cpus: int
    mem_bytes: int
    read_available: Callable[[], int]


def read_capacity() -> HostCapacity | None:
    """Return the capacity of this machine; None if the kernel does not tell it."""
    total_bytes = read_memory().total_bytes
    if not total_bytes:
        return None
    return HostCapacity(count_cpus(), total_bytes, lambda: read_memory().available_bytes)


class _SetAside(msgspec.Struct, frozen=True):
    """What is set aside for one attempt."""

    node: str
    cpus: int
    mem_bytes: int


class HostResources:
    """Keeps the sums of each node up to date on every change.

    Without a `capacity` jobs are never kept waiting for CPUs or RAM of this machine. Attempts on this machine
    name it by an empty node or, in a cluster, by its name, the `head`.
    """

    def __init__(self, capacity: HostCapacity | None = None) -> None:
        self.capacity = capacity
        self._by_key: dict[str, _SetAside] = {}
        self._used: dict[str, tuple[int, int]] = {}
        self._available: int | None = None
        self._read_at = -_READ_S

    def add(self, running: RunningAttempt) -> None:
        """Set aside what an attempt declares; if it declares no RAM, what is known of its kind.

        A suspended attempt uses no CPUs, but keeps its RAM, and has its GPU memory there too.
        """
        request, phase = running.entry.request, running.phase
        cpus, mem_bytes = request.cpus or 0, request.mem_bytes or running.learned_mem_bytes
        if isinstance(phase, Suspended):
            cpus, mem_bytes = 0, mem_bytes + sum(phase.suspension.held_bytes.values())
        self.remove(running)
        if cpus or mem_bytes:
            self._by_key[running.key] = _SetAside(running.where, cpus, mem_bytes)
            self._count(running.where, cpus, mem_bytes)

    def remove(self, running: RunningAttempt) -> None:
        """Set aside nothing more for an attempt."""
        found = self._by_key.pop(running.key, None)
        if found is not None:
            self._count(found.node, -found.cpus, -found.mem_bytes)

    def _count(self, node: str, cpus: int, mem_bytes: int) -> None:
        used_cpus, used_bytes = self._used.get(node, (0, 0))
        self._used[node] = (used_cpus + cpus, used_bytes + mem_bytes)

    def rooms(self, nodes: Mapping[str, NodeFacts], head: str) -> HostRooms:
        """The room on this machine, and on each node that answers."""
        rooms = {head: self.own_room(head)}
        for name, facts in nodes.items():
            if facts.away is None and name != head:
                rooms[name] = self.room_of(facts)
        return HostRooms(rooms, head)

    def own_room(self, head: str) -> HostRoom:
        """The room on this machine."""
        if self.capacity is None:
            return HostRoom()
        room = self._room(self.capacity.cpus, self.capacity.mem_bytes, {"", head})
        return msgspec.structs.replace(room, available_bytes=self._read_available())

    def awaits_free_ram(self, waiting: Iterable[JobClass], head: str) -> bool:
        """Whether one of these jobs has room on this machine, but other processes use too much of its RAM."""
        declared = [job for job in waiting if job.mem_bytes is not None]
        if not declared:
            return False
        room = self.own_room(head)
        unused = msgspec.structs.replace(room, available_bytes=None)
        return any(room.shortage(job) and not unused.shortage(job) for job in declared)

    def room_of(self, facts: NodeFacts) -> HostRoom:
        """The room on another node."""
        return self._room(facts.cpus, facts.mem_bytes, {facts.name})

    def _room(self, cpus: int | None, mem_bytes: int | None, names: set[str]) -> HostRoom:
        used = [self._used.get(name, (0, 0)) for name in names]
        return HostRoom(
            cpus=cpus,
            mem_bytes=None if mem_bytes is None else most_ram(mem_bytes),
            used_cpus=sum(cpus for cpus, _bytes in used),
            used_bytes=sum(mem_bytes for _cpus, mem_bytes in used),
        )

    def _read_available(self) -> int | None:
        now = time.monotonic()
        if self.capacity is not None and now - self._read_at >= _READ_S:
            self._read_at, self._available = now, self.capacity.read_available()
        return self._available


def refuse_impossible(job: JobClass, rooms: Sequence[HostRoom], place: str) -> None:
    """Raise UsageError if a job declares more than any of these machines has, where that is known.

    `place` names the machines in the message.
    """
    if not job.declares_host or any(room.can_ever_have(job) for room in rooms):
        return
    most_cpus = max((room.cpus or 0 for room in rooms), default=0)
    if job.cpus is not None and job.cpus > most_cpus:
        raise UsageError(
            f"the job asks for {describe_cpus(job.cpus)}, and {place} {most_cpus}: ask for fewer (--cpus)",
            field="cpus",
        )
    most_bytes = max((room.mem_bytes or 0 for room in rooms), default=0)
    if job.mem_bytes is not None and job.mem_bytes > most_bytes:
        raise UsageError(
            f"the job asks for {format_memory(job.mem_bytes)} of RAM, and {place}"
            f" {format_memory(most_bytes)} for jobs: ask for less (--mem)",
            field="mem_bytes",
        )
    raise UsageError(
        f"the job asks for {describe_cpus(job.cpus or 1)} and {format_memory(job.mem_bytes or 0)} of RAM,"
        " and no machine has both: ask for less (--cpus, --mem)",
        field="mem_bytes",
    )
