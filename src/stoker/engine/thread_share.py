"""Fair part of a machine's CPUs for the threads of each job.

Without it, each of eight jobs starts as many threads as there are CPUs. The part does not depend on how many
jobs run at this moment: all runs of a sweep have the same number of threads, so one warm worker serves them,
and their results do not differ in the last digits.
"""

from __future__ import annotations

from collections.abc import Callable

from stoker.core.job import JobClass
from stoker.core.sharing.rules import parse_share
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable

_TENANTS = 4
"""Jobs that are expected on a GPU that is shared as its memory allows. If there are more, the GPU is busy."""


def fair_threads(job: JobClass, cpus: int, places: int) -> int | None:
    """Return how many threads a process of a job gets; None if the job has the machine for itself.

    `places` is how many jobs run at once where none of them shares its GPU. A job on several GPUs usually has
    a process for each, so each process gets the part of one.
    """
    if job.cpus is not None:
        return job.cpus
    if job.share is not None:
        places *= parse_share(job.share).most or _TENANTS
    return max(1, cpus // places) if places > 1 else None


class ThreadShares:
    """Threads for the attempts of an engine, by the slots of their nodes. `is_on`: whether to set any."""

    def __init__(self, slot_table: SlotTable, is_on: Callable[[], bool] = lambda: True) -> None:
        self._slot_table = slot_table
        self._is_on = is_on
        self._version = -1
        self._places: dict[str, int] = {}

    def of(self, running: RunningAttempt) -> int | None:
        """Return how many threads each process of an attempt gets; None for any."""
        node = running.where or self._slot_table.head
        cpus = self._slot_table.cpus_of(node)
        if cpus is None or not self._is_on():
            return None
        return fair_threads(running.entry.request, cpus, self._count_places(node))

    def _count_places(self, node: str) -> int:
        if self._version != self._slot_table.layout_version:
            self._version = self._slot_table.layout_version
            self._places.clear()
        found = self._places.get(node)
        if found is None:
            states = self._slot_table.by_node.get(node, ())
            found = self._places[node] = sum(state.whole_slot is None for state in states)
        return found
