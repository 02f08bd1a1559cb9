"""`gpus`: slots that come and go while jobs run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from stoker.core.node import split_label
from stoker.core.slot import Slot
from stoker.core.usage import GpuUse
from stoker.engine.board import DRAINED, REMOVED, Place
from stoker.engine.hub import Hub
from stoker.engine.lookout import Lookout, Sentinel
from stoker.engine.service.status import is_shown, why_closed
from stoker.errors import ConflictError, NotFoundError
from stoker.failpoints import reach
from stoker.wire import GpuChange, GpuEvent, GpuInfo, GpuOrder, History

_SHOWN = 24
_LOOK_S = 3.0
Sample = tuple[float, int | None, float | None]


def gpus(hub: Hub, order: GpuOrder) -> GpuChange:
    """Add a slot, or take one out of use; what runs there is never touched."""
    labels = _add(hub, order.gpu) if order.action == "add" else [_take_out(hub, order)]
    _remember(hub)
    for label in labels:
        closed = REMOVED if order.action == "remove" else None
        hub.events.publish(GpuEvent(slot=label, closed=closed, at=hub.engine.wall_clock()))
    hub.slots_changed()
    hub.pulse.poke()
    touched = [place for place in hub.engine.board.whole() if place.slot.label in labels]
    jobs = sorted(
        {each.attempt.job for place in touched for each in hub.engine.board.tenants(place)}
    )
    return GpuChange(slots=labels, jobs=jobs, notice=_notice(hub, order))


async def have_a_look(hub: Hub) -> None:
    """Have nodes look at their GPUs where nobody did, and wait a moment for what they tell."""
    watchman = hub.engine.watchman
    if not isinstance(watchman, Lookout):
        return
    deadline = time.monotonic() + _LOOK_S
    while not watchman.far.has_seen_all() and time.monotonic() < deadline:
        watchman.rouse()
        hub.pulse.poke()
        await asyncio.sleep(0.05)


def read(hub: Hub, *, history: bool) -> list[GpuInfo]:
    """Every GPU of the machine: how it is, what the queue does there, who else uses it."""
    places = [place for place in hub.engine.board.whole() if is_shown(place)]
    watchman = hub.engine.watchman
    if watchman is None:
        return [_unseen(hub, place) for place in places]
    if not hub.viewers:
        watchman.rouse()  # for this one look: the next turn of the loop lets it rest again
        hub.pulse.poke()
    seen = watchman.gpus()
    found = [
        _seen(
            hub,
            watchman,
            use,
            [place for place in places if key in place.slot.keys],
            history=history,
        )
        for key, use in seen.items()
    ]
    return [
        *found,
        *(_unseen(hub, place) for place in places if seen.keys().isdisjoint(place.slot.keys)),
    ]


def _seen(
    hub: Hub, watchman: Sentinel, use: GpuUse, places: list[Place], *, history: bool
) -> GpuInfo:
    state = watchman.state(use.key)
    return GpuInfo(
        label=use.label if "/" in use.label else _label(hub, use.label),
        name=watchman.name_of(use.key),
        mem_total_bytes=use.total_bytes,
        mem_used_bytes=use.used_bytes,
        mem_reserved_bytes=max([_reserved(hub, place, use) for place in places], default=0),
        utilisation_pct=use.utilisation_pct,
        temperature_c=None if state is None else state.temperature_c,
        power_w=None if state is None else state.power_w,
        lost=state is not None and state.lost,
        users=list(use.foreigners),
        history=history_of(watchman.history(use.key) if history else ()),
        **_in_queue(hub, places),
    )


def _label(hub: Hub, gpu: str) -> str:
    """A GPU of this machine, with its node where there are others."""
    head = hub.engine.board.head
    return f"{head}/{gpu}" if head in hub.engine.board.nodes else gpu


def _reserved(hub: Hub, place: Place, use: GpuUse) -> int:
    """What the jobs on a GPU may use: of a GPU that is not shared, all of it."""
    if place.current is not None:
        return use.total_bytes
    sharing = hub.engine.sharing
    shared = sharing.view(place) if sharing is not None and place.guests else None
    return 0 if shared is None else shared.reserved_bytes


def _unseen(hub: Hub, place: Place) -> GpuInfo:
    """A GPU of whose present nobody here can tell: there is no NVML, or it is on another node."""
    return GpuInfo(
        label=place.slot.label,
        name=next(map(hub.engine.board.models.get, place.slot.keys), None),
        mem_total_bytes=0,
        mem_used_bytes=0,
        mem_reserved_bytes=0,
        utilisation_pct=None,
        temperature_c=None,
        power_w=None,
        lost=False,
        users=[],
        history=History(),
        **_in_queue(hub, [place]),
    )


def _in_queue(hub: Hub, places: list[Place]) -> dict[str, Any]:
    """What the queue does on a GPU, which several of its slots may have."""
    if not places:
        return {"slot": None, "jobs": [], "closed": None, "drained": None}
    tenants = [each for place in places for each in hub.engine.board.tenants(place)]
    return {
        "slot": places[0].slot.label,
        "jobs": sorted({each.attempt.job for each in tenants}),
        "closed": why_closed(places[0]),
        "drained": places[0].drained,
    }


def history_of(samples: Sequence[Sample]) -> History:
    """Samples of the sampler, which has a clock of its own, as the wire has them."""
    ahead_s = time.time() - time.monotonic()
    return History(
        at=[at_s + ahead_s for at_s, _mem_bytes, _busy_pct in samples],
        mem_bytes=[mem_bytes for _at_s, mem_bytes, _busy_pct in samples],
        utilisation_pct=[busy_pct for _at_s, _mem_bytes, busy_pct in samples],
    )


def _notice(hub: Hub, order: GpuOrder) -> str | None:
    if order.action == "add" or hub.engine.board.open_places():
        return None
    return "no GPU is left in use: only jobs without GPU start until one is added"


def _add(hub: Hub, text: str) -> list[str]:
    """Use slots again that were taken out, or have new ones."""
    named = _named(hub, text)
    closed = [place for place in named if place.drained is not None]
    if closed:
        for place in closed:
            place.drained = None
        return [closed[0].slot.label]
    watchman = hub.engine.watchman
    if watchman is not None:
        sick = [p.slot for p in named if not watchman.sick.keys().isdisjoint(p.slot.keys)]
        for slot in sick:
            watchman.forgive(slot.keys)
        if sick:
            return [sick[0].label]
    wanted = _new_slots(hub, text)
    keys = {
        key: place.slot.label
        for place in hub.engine.board.whole()
        if place.drained != REMOVED
        for key in place.slot.keys
    }
    for slot in wanted:
        used = [keys[key] for key in slot.keys if key in keys]
        if used:
            raise ConflictError(f"GPU {slot.label} is in use already, as GPU {used[0]}")
    for slot in wanted:
        removed = _named(hub, slot.label)
        if removed:
            removed[0].drained = None
        else:
            hub.engine.add_slot(slot.gpus, slot.keys, slot.node)
    hub.no_gpu_reason = None
    return [slot.label for slot in wanted]


def _take_out(hub: Hub, order: GpuOrder) -> str:
    wanted = DRAINED if order.action == "drain" else REMOVED
    known = [place for place in hub.engine.board.whole() if place.drained != REMOVED]
    places = [place for place in _named(hub, order.gpu) if place.drained != REMOVED]
    if not places:
        raise NotFoundError(f"there is no GPU {order.gpu} in this queue; there are: {_list(known)}")
    usable = [place for place in places if place.drained != wanted]
    if not usable:
        raise ConflictError(f"GPU {order.gpu} is drained already: stoker gpus add {order.gpu}")
    for place in usable:
        place.drained = wanted
    return usable[0].slot.label


def _named(hub: Hub, text: str) -> list[Place]:
    """The places of that label; this machine's may be called without its node."""
    board = hub.engine.board
    node, gpus = split_label(text) if board.head else ("", text)
    same = board.is_own if board.is_own(node) else node.__eq__
    return [p for p in board.whole() if p.slot.bare == gpus and same(p.slot.node)]


def _new_slots(hub: Hub, text: str) -> tuple[Slot, ...]:
    """Slots of this machine that are not on the board yet; those of others come with their nodes."""
    board = hub.engine.board
    node, gpus = split_label(text) if board.head else ("", text)
    if not board.is_own(node):
        raise NotFoundError(
            f"there is no GPU {text} in this queue; there are: {_list(board.whole())}"
        )
    name = board.head if board.head in board.nodes else ""
    return tuple(msgspec.structs.replace(slot, node=name) for slot in hub.parse_slots(gpus))


def _list(places: list[Place]) -> str:
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return ", ".join(place.slot.label for place in places[:_SHOWN]) + more or "none"


def _remember(hub: Hub) -> None:
    """Keep over a restart which slots there are and which are drained or removed."""
    places = hub.engine.board.whole()
    with hub.database.transaction(durable=True):
        if hub.config.gpus is None:
            # By default there are those that are found, so it is remembered which of them are not.
            hub.config.write("gpus-removed", hub.engine.board.drained_labels(REMOVED))
        else:
            own = [place for place in places if hub.engine.board.is_own(place.slot.node)]
            kept = [place.slot.bare for place in own if place.drained != REMOVED]
            hub.config.write("gpus", ",".join(kept) or "none")
            hub.config.write("gpus-removed", hub.engine.board.drained_labels(REMOVED, own=False))
        hub.config.write("gpus-drained", hub.engine.board.drained_labels(DRAINED))
    reach("gpus-committed")
    hub.config.load()
