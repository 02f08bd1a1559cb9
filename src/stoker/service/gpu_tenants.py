"""The jobs on a GPU with their memory, and the job that a GPU without one is kept for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stoker.core.lifecycle import State
from stoker.core.usage import GpuUse
from stoker.engine.context import QueueContext
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import SlotState
from stoker.wire import GpuTenant


class Packing:
    """What is on which GPU at this moment, for all GPUs of one answer."""

    def __init__(self, context: QueueContext) -> None:
        self._table = context.engine.slot_table
        self._gpus = context.engine.gpus
        look = context.look()
        self._uses = {} if look is None else look.jobs
        self._kept = _kept_slots(context)
        self._needs = {
            job: context.jobs.facts(job).request.slots for job in set(self._kept.values())
        }

    def tenants(self, use: GpuUse, slot_states: Sequence[SlotState]) -> list[GpuTenant]:
        """Return the jobs on a GPU, the first that started first."""
        found: dict[int, GpuTenant] = {}
        for slot_state in slot_states:
            for running in self._table.attempts_on(slot_state):
                found[running.attempt.job] = self._tenant(running, use)
        return [found[job] for job in sorted(found)]

    def kept_for(self, key: str, slot_states: Sequence[SlotState]) -> tuple[int | None, int | None]:
        """Return the waiting job that a GPU is kept for, and how many GPUs it needs; None if for none."""
        for slot_state in slot_states:
            if slot_state.slot.index in self._kept:
                job = self._kept[slot_state.slot.index]
                return job, self._needs[job]
        sharing = self._gpus.sharing
        kept = None if sharing is None else sharing.kept.get(key)
        return kept, None if kept is None else 1

    def _tenant(self, running: RunningAttempt, use: GpuUse) -> GpuTenant:
        seen = self._uses.get(running.key)
        facts = running.entry.facts
        by_gpu = None if seen is None else seen.mem_bytes
        tenancy = self._gpus.tenancy_of(running)
        return GpuTenant(
            job=running.attempt.job,
            name=None if facts is None else facts.name,
            project=None if facts is None else facts.request.project,
            mem_used_bytes=None if by_gpu is None else by_gpu.get(use.key, 0),
            mem_reserved_bytes=use.total_bytes
            if tenancy is None
            else tenancy.tenant.reserved_bytes,
            utilisation_pct=None if seen is None else seen.sm_pct,
        )


def _kept_slots(context: QueueContext) -> Mapping[int, int]:
    """Return the slots that are free and kept for a waiting job, with that job."""
    if not context.jobs.count(State.WAITING) or not context.engine.slot_table.free():
        return {}
    return context.engine.preview().reserved
