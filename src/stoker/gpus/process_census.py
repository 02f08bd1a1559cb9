"""Assignment of the processes on a GPU to jobs, to ourselves, or to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from stoker.core.usage import Foreigner, Sight
from stoker.gpus.driver import GpuProcess, Reading
from stoker.gpus.process_users import GpuUser, is_dead, look_up

OwnerOf = Callable[[int], str | None]
"""Returns the attempt of a pid; empty text if the process is ours but of no attempt; None if foreign."""


class ProcessCount(msgspec.Struct, frozen=True):
    """Processes on a GPU: pids and memory by attempt, and the foreign processes."""

    sight: Sight
    jobs: Mapping[str, Mapping[int, int | None]]
    foreigners: tuple[Foreigner, ...]
    pids: frozenset[int]

    @property
    def tells_load_apart(self) -> bool:
        """Whether a process's load is its own. An MPS server computes for the processes of other jobs."""
        return self.sight is Sight.PROCESSES and "" not in self.jobs

    def mem_bytes(self, key: str) -> int:
        """Return the memory of an attempt on this GPU; valid only with Sight.PROCESSES."""
        return sum(mem or 0 for mem in self.jobs.get(key, {}).values())


class ProcessCensus:
    """Looks up each process once, as long as it stays on the list.

    A pid that our /proc does not show lives outside our container, and may still belong to a job. Pids that
    were there when no job ran are foreign: `note_outsiders` records them.
    """

    def __init__(self, owner_of: OwnerOf) -> None:
        self._owner_of = owner_of
        self._known: dict[int, tuple[str | None, GpuUser]] = {}
        self._outsiders: set[int] = set()

    def note_outsiders(self, reading: Reading) -> None:
        """Count the invisible processes that are on a GPU now as foreign from now on."""
        users = map(look_up, reading.processes or ())
        self._outsiders |= {user.pid for user in users if user and not user.is_visible}

    def count(self, reading: Reading, before: ProcessCount | None = None) -> ProcessCount:
        """Assign the processes of a GPU. If the driver lists none, use those of the previous count."""
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
        """Forget all processes but these, because the kernel reuses pids."""
        kept = set(pids)
        self._known = {pid: known for pid, known in self._known.items() if pid in kept}
        self._outsiders &= kept

    def _find(self, process: GpuProcess) -> tuple[str | None, GpuUser] | None:
        """Return the owner of a process; None if the process is a zombie."""
        known = self._known.get(process.pid)
        if known is not None and not is_dead(process.pid):
            return known
        user = look_up(process)
        if user is None:
            return None
        if not user.is_visible:
            # Perhaps a job's, but of an unknown job.
            return (None if user.pid in self._outsiders else ""), user
        self._known[user.pid] = found = (self._owner_of(user.pid), user)
        return found


def _count_unlisted(reading: Reading, before: ProcessCount | None) -> ProcessCount:
    """Assume that the earlier processes are still there, as long as that is possible."""
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
