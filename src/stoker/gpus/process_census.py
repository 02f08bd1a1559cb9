"""Whose the processes on a GPU are: a job's, ours otherwise, or somebody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from stoker.core.usage import Foreigner, Sight
from stoker.gpus.nvml import GpuProcess, Reading
from stoker.gpus.process_users import GpuUser, is_dead, look_up

OwnerOf = Callable[[int], str | None]
"""The attempt that a pid belongs to, an empty text if it is ours but of none, None if it is not ours."""


class ProcessCount(msgspec.Struct, frozen=True):
    """Who is on a GPU: pids and memory by attempt, and everybody else."""

    sight: Sight
    jobs: Mapping[str, Mapping[int, int | None]]
    foreigners: tuple[Foreigner, ...]
    pids: frozenset[int]

    @property
    def tells_load_apart(self) -> bool:
        """Whether a process's load is its own: a server of MPS, which is of no job, computes for others."""
        return self.sight is Sight.PROCESSES and "" not in self.jobs

    def mem_bytes(self, key: str) -> int:
        """What an attempt holds there; only with sight of processes."""
        return sum(mem or 0 for mem in self.jobs.get(key, {}).values())


class ProcessCensus:
    """Asks once for each process, as long as it stays on the list.

    A pid that our /proc does not show lives outside our container, and may still be a job's. Those
    that are there without any job are told with `note_outsiders`: they are foreign.
    """

    def __init__(self, owner_of: OwnerOf) -> None:
        self._owner_of = owner_of
        self._known: dict[int, tuple[str | None, GpuUser]] = {}
        self._outsiders: set[int] = set()

    def note_outsiders(self, reading: Reading) -> None:
        """Take whoever is on a GPU from outside our container, now and later, for somebody else."""
        users = map(look_up, reading.processes or ())
        self._outsiders |= {user.pid for user in users if user and not user.is_visible}

    def count(self, reading: Reading, before: ProcessCount | None = None) -> ProcessCount:
        """Sort the processes of a GPU; where none are listed, go by who was there before."""
        if reading.lost or not reading.gpu.mem_total_bytes:
            return ProcessCount(Sight.NONE, {}, (), frozenset())
        if reading.processes is None:
            return _count_unlisted(reading, before)
        jobs: dict[str, dict[int, int | None]] = {}
        foreigners: list[Foreigner] = []
        pids = set()
        sight = Sight.PROCESSES
        for process in reading.processes:
            found = self._find(process)
            if found is None:
                continue
            owner, user = found
            pids.add(process.pid)
            if process.mem_bytes is None or (not user.is_visible and owner is not None):
                sight = Sight.DEVICE
            if owner is None:
                foreigners.append(Foreigner(process.pid, user.user, process.mem_bytes))
            else:
                jobs.setdefault(owner, {})[process.pid] = process.mem_bytes
        return ProcessCount(sight, jobs, tuple(foreigners), frozenset(pids))

    def forget_but(self, pids: Iterable[int]) -> None:
        """Remember no process but these: a number may be given to another one."""
        kept = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in kept}
        self._outsiders &= kept

    def _find(self, process: GpuProcess) -> tuple[str | None, GpuUser] | None:
        """Whose a process is; None if it has died and only waits to be reaped."""
        known = self._known.get(process.pid)
        if known is not None and not is_dead(process.pid):
            return known
        user = look_up(process)
        if user is None:
            return None
        if not user.is_visible:
            # Perhaps a job's, and nobody can tell of which.
            return (None if user.pid in self._outsiders else ""), user
        self._known[user.pid] = found = (self._owner_of(user.pid), user)
        return found


def _count_unlisted(reading: Reading, before: ProcessCount | None) -> ProcessCount:
    """Nobody has said that those who were there are gone: they are there as long as that can be."""
    if before is None:
        return ProcessCount(Sight.DEVICE, {}, (), frozenset())
    strangers = tuple(each for each in before.foreigners if _may_be_there(each, reading))
    alive = {pid for pid in before.pids if not is_dead(pid)}
    return ProcessCount(
        Sight.DEVICE, {}, strangers, frozenset(alive | {each.pid for each in strangers})
    )


def _may_be_there(stranger: Foreigner, reading: Reading) -> bool:
    if stranger.user is not None:
        return not is_dead(stranger.pid)
    return reading.mem_used_bytes >= max(1, stranger.mem_bytes or 0)
