"""`gpus`: shows GPUs, and adds, drains and removes slots while jobs run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from stoker.core.node import split_label
from stoker.core.slot import Slot
from stoker.core.usage import GpuUse
from stoker.engine.context import QueueContext
from stoker.engine.gpu_features import GpuSource
from stoker.engine.slot_state import DRAINED, REMOVED, ClosedBy, SlotState
from stoker.errors import ConflictError, NotFoundError
from stoker.executors.node_reports import GpuState
from stoker.failpoints import reach
from stoker.gpus.lease_holder import holder
from stoker.service.gpu_tenants import Packing
from stoker.service.status import is_shown, reserved_until, why_closed
from stoker.wire import GpuChange, GpuEvent, GpuInfo, GpuOrder, GpusQuery, History

_SHOWN = 24
_LOOK_S = 3.0
Sample = tuple[float, int | None, float | None]


def change_gpus(context: QueueContext, order: GpuOrder) -> GpuChange:
    """Add, drain or remove a slot. Jobs that run there go on."""
    labels = _add(context, order.gpu) if order.action == "add" else [_take_out(context, order)]
    _remember(context)
    for label in labels:
        closed = REMOVED if order.action == "remove" else None
        context.events.publish(GpuEvent(slot=label, closed=closed, at=time.time()))
    context.slots_changed()
    context.driver.poke()
    touched = [
        slot_state
        for slot_state in context.engine.slot_table.whole_slots()
        if slot_state.slot.label in labels
    ]
    jobs = sorted(
        {
            each.attempt.job
            for slot_state in touched
            for each in context.engine.slot_table.attempts_on(slot_state)
        }
    )
    return GpuChange(slots=labels, jobs=jobs, notice=_notice(context, order))


async def _sample_nodes(context: QueueContext) -> None:
    """Ask nodes that have not sampled their GPUs yet to do so, and wait a moment for the samples."""
    gpu_monitor = context.engine.gpus.monitor
    if gpu_monitor is None:
        return
    deadline = time.monotonic() + _LOOK_S
    while not gpu_monitor.has_seen_all() and time.monotonic() < deadline:
        gpu_monitor.rouse()
        context.driver.poke()
        await asyncio.sleep(0.05)


async def read_gpus(context: QueueContext, query: GpusQuery) -> list[GpuInfo]:
    """Return the state of every GPU, what the queue does there, and which other processes use it."""
    await _sample_nodes(context)
    slot_states = [
        slot_state for slot_state in context.engine.slot_table.whole_slots() if is_shown(slot_state)
    ]
    gpu_monitor = context.engine.gpus.monitor
    if gpu_monitor is None:
        return [_unseen(context, slot_state) for slot_state in slot_states]
    if not context.viewers:
        gpu_monitor.rouse()  # for one sample: the next turn lets it rest again
        context.driver.poke()
    seen = gpu_monitor.gpus()
    packing = Packing(context)
    found = [
        _seen(
            context,
            gpu_monitor,
            packing,
            use,
            [slot_state for slot_state in slot_states if key in slot_state.slot.keys],
            history=query.history,
        )
        for key, use in seen.items()
    ]
    return [
        *found,
        *(
            _unseen(context, slot_state)
            for slot_state in slot_states
            if seen.keys().isdisjoint(slot_state.slot.keys)
        ),
    ]


def _seen(
    context: QueueContext,
    gpu_monitor: GpuSource,
    packing: Packing,
    use: GpuUse,
    slot_states: list[SlotState],
    *,
    history: bool,
) -> GpuInfo:
    state = gpu_monitor.state(use.key)
    kept_for, kept_needs = packing.kept_for(use.key, slot_states)
    return GpuInfo(
        label=use.label if "/" in use.label else _label(context, use.label),
        name=gpu_monitor.name_of(use.key),
        mem_total_bytes=use.total_bytes,
        mem_used_bytes=use.used_bytes,
        mem_reserved_bytes=max(
            [_reserved(context, slot_state, use) for slot_state in slot_states], default=0
        ),
        utilisation_pct=use.utilisation_pct,
        temperature_c=None if state is None else state.temperature_c,
        power_w=None if state is None else state.power_w,
        lost=state is not None and state.lost,
        users=list(use.foreigners),
        history=history_of(gpu_monitor.history(use.key) if history else ()),
        held_by=_held_by(use, state),
        tenants=packing.tenants(use, slot_states),
        kept_for=kept_for,
        kept_needs=kept_needs,
        **_in_queue(context, slot_states),
    )


def _held_by(use: GpuUse, state: GpuState | None) -> str | None:
    """Return the process that holds the lease of a GPU; of another node as that node reported it."""
    if "/" in use.label:
        return None if state is None else state.held_by
    found = holder(use.key)
    return None if found is None else found.text


def _label(context: QueueContext, gpu: str) -> str:
    """Return the label of a GPU of this machine, with its node in a cluster."""
    head = context.engine.slot_table.head
    return f"{head}/{gpu}" if head in context.engine.slot_table.nodes else gpu


def _reserved(context: QueueContext, slot_state: SlotState, use: GpuUse) -> int:
    """Return the memory that the jobs on a GPU may use: all of it unless the GPU is shared."""
    if slot_state.current is not None:
        return use.total_bytes
    sharing = context.engine.gpus.sharing
    shared = sharing.view(slot_state) if sharing is not None and slot_state.tenants else None
    return 0 if shared is None else shared.reserved_bytes


def _unseen(context: QueueContext, slot_state: SlotState) -> GpuInfo:
    """Describe a GPU without samples: there is no NVML, or it is on another node."""
    return GpuInfo(
        label=slot_state.slot.label,
        name=next(map(context.engine.slot_table.models.get, slot_state.slot.keys), None),
        mem_total_bytes=0,
        mem_used_bytes=0,
        mem_reserved_bytes=0,
        utilisation_pct=None,
        temperature_c=None,
        power_w=None,
        lost=False,
        users=[],
        history=History(),
        **_in_queue(context, [slot_state]),
    )


def _in_queue(context: QueueContext, slot_states: list[SlotState]) -> dict[str, Any]:
    """Return what the queue does on a GPU; several slots may contain it."""
    if not slot_states:
        return {"slot": None, "jobs": [], "closed": None, "drained": None, "reserved_until": None}
    tenants = [
        each
        for slot_state in slot_states
        for each in context.engine.slot_table.attempts_on(slot_state)
    ]
    return {
        "slot": slot_states[0].slot.label,
        "jobs": sorted({each.attempt.job for each in tenants}),
        "closed": why_closed(slot_states[0]),
        "drained": slot_states[0].drained,
        "reserved_until": reserved_until(context, slot_states[0]),
    }


def history_of(samples: Sequence[Sample]) -> History:
    """Convert samples to the wire: from the monotonic clock to Unix time."""
    ahead_s = time.time() - time.monotonic()
    return History(
        at=[at_s + ahead_s for at_s, _mem_bytes, _busy_pct in samples],
        mem_bytes=[mem_bytes for _at_s, mem_bytes, _busy_pct in samples],
        utilisation_pct=[busy_pct for _at_s, _mem_bytes, busy_pct in samples],
    )


def _notice(context: QueueContext, order: GpuOrder) -> str | None:
    if order.action == "add" or context.engine.slot_table.count_open():
        return None
    return "no GPU is left in use: only jobs without GPU start until one is added"


def _add(context: QueueContext, text: str) -> list[str]:
    """Use drained, removed or faulty slots again, or add new ones."""
    named = _named(context, text)
    closed = [slot_state for slot_state in named if slot_state.drained is not None]
    if closed:
        for slot_state in closed:
            slot_state.close(ClosedBy.USER, None)
        return [closed[0].slot.label]
    gpu_monitor = context.engine.gpus.monitor
    if gpu_monitor is not None:
        sick = [p.slot for p in named if gpu_monitor.is_sick(p.slot.keys)]
        for slot in sick:
            gpu_monitor.forgive(slot.keys)
        if sick:
            return [sick[0].label]
    wanted = _new_slots(context, text)
    keys = {
        key: slot_state.slot.label
        for slot_state in context.engine.slot_table.whole_slots()
        if slot_state.drained != REMOVED
        for key in slot_state.slot.keys
    }
    for slot in wanted:
        used = [keys[key] for key in slot.keys if key in keys]
        if used:
            raise ConflictError(f"GPU {slot.label} is in use already, as GPU {used[0]}")
    for slot in wanted:
        removed = _named(context, slot.label)
        if removed:
            removed[0].close(ClosedBy.USER, None)
        else:
            context.engine.add_slot(slot.gpus, slot.keys, slot.node, slot.cards)
    context.no_gpu_reason = None
    return [slot.label for slot in wanted]


def _take_out(context: QueueContext, order: GpuOrder) -> str:
    wanted = DRAINED if order.action == "drain" else REMOVED
    known = [
        slot_state
        for slot_state in context.engine.slot_table.whole_slots()
        if slot_state.drained != REMOVED
    ]
    slot_states = [
        slot_state for slot_state in _named(context, order.gpu) if slot_state.drained != REMOVED
    ]
    if not slot_states:
        raise NotFoundError(f"there is no GPU {order.gpu} in this queue; there are: {_list(known)}")
    usable = [slot_state for slot_state in slot_states if slot_state.drained != wanted]
    if not usable:
        raise ConflictError(f"GPU {order.gpu} is drained already: stoker gpus add {order.gpu}")
    for slot_state in usable:
        slot_state.close(ClosedBy.USER, wanted)
    return usable[0].slot.label


def _named(context: QueueContext, text: str) -> list[SlotState]:
    """Return the slots with a label; the node is optional for slots of this machine."""
    slot_table = context.engine.slot_table
    node, gpus = split_label(text) if slot_table.head else ("", text)
    same = slot_table.is_own if slot_table.is_own(node) else node.__eq__
    return [p for p in slot_table.whole_slots() if p.slot.bare == gpus and same(p.slot.node)]


def _new_slots(context: QueueContext, text: str) -> tuple[Slot, ...]:
    """Parse new slots of this machine; other nodes report their own slots."""
    slot_table = context.engine.slot_table
    node, gpus = split_label(text) if slot_table.head else ("", text)
    if not slot_table.is_own(node):
        raise NotFoundError(
            f"there is no GPU {text} in this queue; there are: {_list(slot_table.whole_slots())}"
        )
    name = slot_table.head if slot_table.head in slot_table.nodes else ""
    return tuple(msgspec.structs.replace(slot, node=name) for slot in context.parse_slots(gpus))


def _list(slot_states: list[SlotState]) -> str:
    more = f" and {len(slot_states) - _SHOWN} more" if len(slot_states) > _SHOWN else ""
    return ", ".join(slot_state.slot.label for slot_state in slot_states[:_SHOWN]) + more or "none"


def _remember(context: QueueContext) -> None:
    """Record the slots, and which are drained or removed, for the next start."""
    slot_states = context.engine.slot_table.whole_slots()
    with context.database.transaction(durable=True):
        if context.config.gpus is None:
            # By default the queue uses all GPUs it finds, so the removed ones are recorded.
            context.config.write("gpus-removed", context.engine.slot_table.drained_labels(REMOVED))
        else:
            own = [
                slot_state
                for slot_state in slot_states
                if context.engine.slot_table.is_own(slot_state.slot.node)
            ]
            kept = [slot_state.slot.bare for slot_state in own if slot_state.drained != REMOVED]
            context.config.write("gpus", ",".join(kept) or "none")
            context.config.write(
                "gpus-removed", context.engine.slot_table.drained_labels(REMOVED, own=False)
            )
        context.config.write("gpus-drained", context.engine.slot_table.drained_labels(DRAINED))
    reach("gpus-committed")
    context.config.load()
