"""Whose the processes on a GPU are: a job's, ours otherwise, or somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from stoker.core.usage import Foreigner, Sight
from stoker.gpus.nvml import Reading
from stoker.gpus.users import GpuUser, look_up

OwnerOf = Callable[[int], str | None]
"""The attempt that a pid belongs to, an empty text if it is ours but of none, None if it is not ours."""


class Count(msgspec.Struct, frozen=True):
    """Who is on a GPU: pids and memory by attempt, and everybody else."""

    sight: Sight
    jobs: Mapping[str, Mapping[int, int | None]]
    foreigners: tuple[Foreigner, ...]
    pids: frozenset[int]

    def mem_bytes(self, key: str) -> int:
        """What an attempt holds there; only with sight of processes."""
        return sum(mem or 0 for mem in self.jobs.get(key, {}).values())


class Census:
    """Asks once for each process, as long as it stays on the list.

    A pid that our /proc does not show lives outside our container, and may still be a job's. Those
    that were there before any job are told with `note_outsiders`: they are foreign.
    """

    def __init__(self, owner_of: OwnerOf) -> None:
        self._owner_of = owner_of
        self._owners: dict[int, str | None] = {}
        self._outsiders: set[int] = set()

    def note_outsiders(self, reading: Reading) -> None:
        """Take whoever is on a GPU from outside our container for somebody else."""
        users = _living(reading)
        self._outsiders |= {user.pid for user in users if not user.is_visible}

    def count(self, reading: Reading) -> Count:
        """Sort the processes of a GPU."""
        if reading.lost or not reading.gpu.mem_total_bytes:
            return Count(Sight.NONE, {}, (), frozenset())
        jobs: dict[str, dict[int, int | None]] = {}
        foreigners: list[Foreigner] = []
        sight = Sight.PROCESSES
        users = _living(reading)
        for user in users:
            if user.mem_bytes is None:
                sight = Sight.DEVICE
            if not user.is_visible and user.pid not in self._outsiders:
                sight = Sight.DEVICE
                continue
            owner = self._owner(user)
            if owner is None:
                foreigners.append(Foreigner(user.pid, user.user, user.mem_bytes))
            else:
                jobs.setdefault(owner, {})[user.pid] = user.mem_bytes
        return Count(sight, jobs, tuple(foreigners), frozenset(user.pid for user in users))

    def forget_but(self, pids: Iterable[int]) -> None:
        """Remember no process but these: a number may be given to another one."""
        kept = set(pids)
        self._owners = {pid: owner for pid, owner in self._owners.items() if pid in kept}

    def _owner(self, user: GpuUser) -> str | None:
        if not user.is_visible:
            return None
        if user.pid not in self._owners:
            self._owners[user.pid] = self._owner_of(user.pid)
        return self._owners[user.pid]


def _living(reading: Reading) -> list[GpuUser]:
    found = (look_up(process) for process in reading.processes)
    return [user for user in found if user is not None]
