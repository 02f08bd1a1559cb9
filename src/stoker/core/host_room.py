"""CPUs and RAM of machines: what is set aside for running jobs, and what is left for waiting ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from stoker.core.size import format_memory

_KEPT_SHARE = 0.05
"""Part of a machine's RAM that is never set aside: the system and the user's shells need some."""


class Needs(Protocol):
    """CPUs and RAM that a job needs; None for any."""

    @property
    def cpus(self) -> int | None:
        """How many CPUs."""

    @property
    def mem_bytes(self) -> int | None:
        """How much RAM."""


class HostNeed(msgspec.Struct, frozen=True):
    """CPUs and RAM that a job declares or is known to need."""

    cpus: int | None = None
    mem_bytes: int | None = None


class HostRoom(msgspec.Struct, frozen=True, kw_only=True):
    """CPUs and RAM of one machine. None: unknown, so jobs are not kept waiting for it.

    `cpus` and `mem_bytes` are what can be set aside in all, `used_cpus` and `used_bytes` what is set aside.
    `available_bytes` is the RAM that is free at this moment, whatever uses the rest.
    """

    cpus: int | None = None
    mem_bytes: int | None = None
    used_cpus: int = 0
    used_bytes: int = 0
    available_bytes: int | None = None

    def shortage(self, job: Needs) -> str | None:
        """Return what a job lacks here, in figures; None if it has room."""
        return self._too_few_cpus(job) or self._too_little_ram(job)

    def _too_few_cpus(self, job: Needs) -> str | None:
        if job.cpus is None or self.cpus is None or job.cpus <= self.cpus - self.used_cpus:
            return None
        left = max(0, self.cpus - self.used_cpus)
        return f"needs {describe_cpus(job.cpus)}, and {left} of {self.cpus} are not set aside"

    def _too_little_ram(self, job: Needs) -> str | None:
        if job.mem_bytes is None or self.mem_bytes is None:
            return None
        needs = f"needs {format_memory(job.mem_bytes)} of RAM"
        left = max(0, self.mem_bytes - self.used_bytes)
        if job.mem_bytes > left:
            all_of_it = format_memory(self.mem_bytes)
            return f"{needs}, and {format_memory(left)} of {all_of_it} are not set aside"
        if self.available_bytes is not None and job.mem_bytes > self.available_bytes:
            return (
                f"{needs}, and only {format_memory(self.available_bytes)} are free on the machine"
            )
        return None

    def can_ever_have(self, job: Needs) -> bool:
        """Whether a job has room when nothing is set aside."""
        empty = msgspec.structs.replace(self, used_cpus=0, used_bytes=0, available_bytes=None)
        return empty.shortage(job) is None

    def with_job(self, job: Needs) -> HostRoom:
        """Return what is left when a job has started here."""
        available = self.available_bytes
        return msgspec.structs.replace(
            self,
            used_cpus=self.used_cpus + (job.cpus or 0),
            used_bytes=self.used_bytes + (job.mem_bytes or 0),
            available_bytes=None if available is None else available - (job.mem_bytes or 0),
        )


UNKNOWN = HostRoom()
_NO_ROOMS: Mapping[str, HostRoom] = {}


class HostRooms(msgspec.Struct, frozen=True):
    """The room on each node that answers. `own` is this machine's name in a cluster, else empty."""

    by_node: Mapping[str, HostRoom] = _NO_ROOMS
    own: str = ""

    def on(self, node: str) -> HostRoom:
        """Return the room on a node; an empty name means this machine."""
        return self.by_node.get(node or self.own, UNKNOWN)


class HostPlan:
    """CPUs and RAM while a plan is made.

    The first job that has to wait keeps what it declares on one node: jobs behind it cannot delay it.
    """

    def __init__(self, rooms: HostRooms) -> None:
        self._rooms = dict(rooms.by_node)
        self._own = rooms.own
        self.kept: dict[str, int] = {}  # node: the job for which CPUs and RAM are kept there

    def shortage(self, job: Needs, node: str) -> str | None:
        """Return what a job lacks on a node; None if it can have what it needs."""
        return self._room(node).shortage(job)

    def has_room(self, job: Needs, node: str) -> bool:
        """Whether a job can have what it needs on a node."""
        return self.shortage(job, node) is None

    def take(self, job: Needs, node: str) -> None:
        """Set aside what a job needs."""
        self._rooms[node or self._own] = self._room(node).with_job(job)

    def keep(self, job: Needs, number: int, nodes: Iterable[str]) -> None:
        """Keep CPUs and RAM for the first job that has to wait, on the node that has most for it.

        Another node is chosen later only if it has more, so the job gets there in the end.
        """
        known = [node for node in nodes if (node or self._own) in self._rooms]
        if self.kept or not known:
            return
        best = max(known, key=lambda node: self._fullness(job, node))
        self.take(job, best)
        self.kept[best or self._own] = number

    def _room(self, node: str) -> HostRoom:
        return self._rooms.get(node or self._own, UNKNOWN)

    def _fullness(self, job: Needs, node: str) -> tuple[bool, float]:
        """Return how much of its need a job finds on a node: nodes on which it can never run come last."""
        room = self._room(node)
        parts = [1.0]
        if job.cpus is not None and room.cpus is not None:
            parts.append((room.cpus - room.used_cpus) / job.cpus)
        if job.mem_bytes is not None and room.mem_bytes is not None:
            parts.append((room.mem_bytes - room.used_bytes) / job.mem_bytes)
        return (room.can_ever_have(job), min(parts))


def most_ram(total_bytes: int) -> int:
    """Return how much of a machine's RAM can be set aside for jobs."""
    return int(total_bytes * (1.0 - _KEPT_SHARE))


def describe_cpus(count: int) -> str:
    """Write a number of CPUs."""
    return "1 CPU" if count == 1 else f"{count} CPUs"
