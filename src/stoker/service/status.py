"""`status`: how the daemon is."""

from __future__ import annotations

import os

from stoker import __version__
from stoker.engine.context import QueueContext
from stoker.engine.gpu_leases import lease_fault
from stoker.engine.slots import REMOVED, SlotState
from stoker.engine.warm_status import mem_bytes_of
from stoker.gpus.lease_holder import holder
from stoker.wire import Shared, SlotInfo, Status, WarmWorker


def status(context: QueueContext) -> Status:
    """What runs where, what waits, and what a person should know."""
    notices = list(context.publisher.notices)
    if context.no_gpu_reason is not None:
        notices.insert(0, context.no_gpu_reason)
    return Status(
        version=__version__,
        pid=os.getpid(),
        supervisor_pids=context.supervisor_pids(),
        home=context.home,
        since=context.since,
        counts=context.jobs.tally(),
        slots=[
            SlotInfo(
                label=place.slot.label,
                jobs=[each.attempt.job for each in context.engine.slot_table.attempts_on(place)],
                closed=why_closed(place),
                drained=place.drained,
                held=place.held,
                paused=place.current is not None and place.current.paused_at is not None,
                shared=_shared(context, place),
            )
            for place in context.engine.slot_table.states
            if place.whole_slot is None and is_shown(place)
        ],
        cpu_places=context.engine.slot_table.cpu_places,
        queue_paused=context.admission.queue_paused,
        projects_paused={
            project: reason
            for project, reason in context.admission.projects_paused.items()
            if project is not None
        },
        no_project_paused=context.admission.projects_paused.get(None),
        eta_s=context.eta.queue_s(),
        notices=notices,
        warm=[
            WarmWorker(pid=pid, modules=modules, mem_bytes=mem_bytes_of(pid))
            for pid, modules in context.engine.warm_status.workers.items()
        ],
    )


def _shared(context: QueueContext, place: SlotState) -> Shared | None:
    """The sums of a GPU that is shared at this moment."""
    sharing = context.engine.sharing
    gpu = sharing.view(place) if sharing is not None and place.tenants else None
    if gpu is None or sharing is None:
        return None
    return Shared(
        capacity_bytes=gpu.capacity(sharing.rules),
        reserved_bytes=gpu.reserved_bytes,
        used_bytes=gpu.used_bytes,
        foreign_bytes=gpu.foreign_bytes,
        sm=gpu.sm,
        capped=sum(tenant.capped for tenant in gpu.tenants),
        kept_for=sharing.kept.get(gpu.key),
    )


def is_shown(place: SlotState) -> bool:
    """Whether people are shown a slot: one that was removed, while a job still runs there."""
    return place.drained != REMOVED or not place.is_idle


def why_closed(place: SlotState) -> str | None:
    """Why a slot has no jobs, where that is nobody's wish; None if it may have some."""
    return place.shut or _held_by(place)


def _held_by(place: SlotState) -> str | None:
    """What kept a slot from us when it was asked for last, if its holder has it still."""
    if place.held or place.waits_for is None:
        return None
    fault = lease_fault(place)
    return fault or (place.waits_for if any(map(holder, place.slot.keys)) else None)
