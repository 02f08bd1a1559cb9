"""`status`: the state of the daemon and its slots."""

from __future__ import annotations

import os

from stoker import __version__
from stoker.engine.context import QueueContext
from stoker.engine.slot_state import REMOVED, SlotState
from stoker.engine.warm_status import mem_bytes_of
from stoker.gpus.lease_holder import holder
from stoker.wire import Shared, SlotInfo, Status, WarmWorker


def status(context: QueueContext) -> Status:
    """Return the state of the daemon: its slots, the number of jobs in each state, and notices."""
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
                label=slot_state.slot.label,
                jobs=[
                    each.attempt.job for each in context.engine.slot_table.attempts_on(slot_state)
                ],
                closed=why_closed(slot_state),
                drained=slot_state.drained,
                held=slot_state.is_held,
                paused=slot_state.current is not None and slot_state.current.is_paused,
                shared=_shared(context, slot_state),
                reserved_until=reserved_until(context, slot_state),
            )
            for slot_state in context.engine.slot_table.states
            if slot_state.whole_slot is None and is_shown(slot_state)
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
            WarmWorker(
                pid=pid,
                modules=worker.modules,
                mem_bytes=mem_bytes_of(pid),
                left_out=worker.left_out or None,
            )
            for pid, worker in context.engine.warm_status.workers.items()
        ],
    )


def _shared(context: QueueContext, slot_state: SlotState) -> Shared | None:
    """Return the memory sums of a GPU that jobs share now."""
    sharing = context.engine.gpus.sharing
    gpu = sharing.view(slot_state) if sharing is not None and slot_state.tenants else None
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


def reserved_until(context: QueueContext, slot_state: SlotState) -> float | None:
    """Return until when a slot is kept for a reservation of the queue's user; None if it is not."""
    turns = context.engine.turns
    kept = {} if turns is None else turns.reserved.kept
    return max((kept[key] for key in slot_state.slot.keys if key in kept), default=None)


def is_shown(slot_state: SlotState) -> bool:
    """Whether a slot is shown: a removed slot only while a job still runs there."""
    return slot_state.drained != REMOVED or not slot_state.is_idle


def why_closed(slot_state: SlotState) -> str | None:
    """Return why a slot can take no job although it is not drained; None if it can."""
    return slot_state.fault or _held_by(slot_state)


def _held_by(slot_state: SlotState) -> str | None:
    """Return who holds the lease of a slot, as of our last try, if it is still held."""
    refusal = slot_state.refusal
    if refusal is None or not (refusal.is_fault or any(map(holder, slot_state.slot.keys))):
        return None
    return refusal.reason
