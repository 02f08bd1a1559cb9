"""`gpus`: slots that come and go while jobs run."""

from __future__ import annotations

from typing import Any

from stoker.engine.board import DRAINED, REMOVED, Place
from stoker.engine.hub import Hub
from stoker.engine.watchman import Watchman
from stoker.errors import ConflictError, NotFoundError
from stoker.failpoints import reach
from stoker.gpus.survey import GpuState
from stoker.gpus.watch import Sample
from stoker.wire import GpuChange, GpuEvent, GpuInfo, GpuOrder, GpuUserInfo, History


def gpus(hub: Hub, order: GpuOrder) -> GpuChange:
    """Add a slot, or take one out of use; what runs there is never touched."""
    labels = _add(hub, order.gpu) if order.action == "add" else [_take_out(hub, order)]
    _remember(hub)
    for label in labels:
        hub.engine.revoke_followers(slot=label)
        closed = REMOVED if order.action == "remove" else None
        hub.events.publish(GpuEvent(slot=label, closed=closed, at=hub.engine.wall_clock()))
    hub.slots_changed()
    hub.pulse.poke()
    touched = [place for place in hub.engine.board.places if place.slot.label in labels]
    jobs = sorted({place.current.attempt.job for place in touched if place.current is not None})
    return GpuChange(slots=labels, jobs=jobs, notice=_notice(hub, order))


def read(hub: Hub, *, history: bool) -> list[GpuInfo]:
    """Every GPU of the machine: how it is, what the queue does there, who else uses it."""
    places = [place for place in hub.engine.board.places if place.drained != REMOVED]
    if hub.watchman is None:
        return [_unseen(place) for place in places]
    found = hub.watchman.seen()
    by_key = {key: place for place in places for key in place.slot.keys}
    return [_seen(hub.watchman, state, by_key.get(state.gpu.uuid), history) for state in found]


def _seen(watchman: Watchman, state: GpuState, place: Place | None, history: bool) -> GpuInfo:
    reading, gpu = state.reading, state.gpu
    past = watchman.history(gpu.uuid) if history else []
    return GpuInfo(
        label=gpu.label,
        name=gpu.name,
        mem_total_bytes=gpu.mem_total_bytes,
        mem_used_bytes=reading.mem_used_bytes,
        # A job has its GPU to itself.
        mem_reserved_bytes=gpu.mem_total_bytes if place and place.current else 0,
        utilisation_pct=reading.utilisation_pct,
        temperature_c=reading.temperature_c,
        power_w=reading.power_w,
        lost=reading.lost,
        users=[
            GpuUserInfo(
                pid=user.pid, user=user.user, command=user.command, mem_bytes=user.mem_bytes
            )
            for user in state.users
            if not watchman.is_ours(user)
        ],
        history=history_of(past),
        **_in_queue(place),
    )


def _unseen(place: Place) -> GpuInfo:
    """A GPU of whose present nobody can tell: there is no NVML."""
    return GpuInfo(
        label=place.slot.label,
        name=None,
        mem_total_bytes=0,
        mem_used_bytes=0,
        mem_reserved_bytes=0,
        utilisation_pct=None,
        temperature_c=None,
        power_w=None,
        lost=False,
        users=[],
        history=History(),
        **_in_queue(place),
    )


def _in_queue(place: Place | None) -> dict[str, Any]:
    if place is None:
        return {"slot": None, "jobs": [], "closed": None, "drained": None}
    return {
        "slot": place.slot.label,
        "jobs": [] if place.current is None else [place.current.attempt.job],
        "closed": place.closed,
        "drained": place.drained,
    }


def history_of(samples: list[Sample]) -> History:
    """Samples as the wire has them."""
    return History(
        at=[sample.at for sample in samples],
        mem_bytes=[sample.mem_bytes for sample in samples],
        utilisation_pct=[sample.utilisation_pct for sample in samples],
    )


def _notice(hub: Hub, order: GpuOrder) -> str | None:
    if order.action == "add" or hub.engine.board.open_places():
        return None
    return "no GPU is left in use: only jobs without GPU start until one is added"


def _add(hub: Hub, text: str) -> list[str]:
    """Use slots again that were taken out, or have new ones."""
    named = [place for place in hub.engine.board.places if place.slot.label == text]
    closed = [place for place in named if place.drained is not None]
    if closed:
        for place in closed:
            place.drained = None
        return [text]
    wanted = hub.parse_slots(text)
    keys = {
        key: place.slot.label
        for place in hub.engine.board.places
        if place.drained != REMOVED
        for key in place.slot.keys
    }
    for slot in wanted:
        used = [keys[key] for key in slot.keys if key in keys]
        if used:
            raise ConflictError(f"GPU {slot.label} is in use already, as GPU {used[0]}")
    for slot in wanted:
        removed = [p for p in hub.engine.board.places if p.slot.label == slot.label]
        if removed:
            removed[0].drained = None
        else:
            hub.engine.add_slot(slot.gpus, slot.keys)
    hub.no_gpu_reason = None
    return [slot.label for slot in wanted]


def _take_out(hub: Hub, order: GpuOrder) -> str:
    wanted = DRAINED if order.action == "drain" else REMOVED
    known = [place for place in hub.engine.board.places if place.drained != REMOVED]
    places = [place for place in known if place.slot.label == order.gpu]
    if not places:
        raise NotFoundError(f"there is no GPU {order.gpu} in this queue; there are: {_list(known)}")
    usable = [place for place in places if place.drained != wanted]
    if not usable:
        raise ConflictError(f"GPU {order.gpu} is drained already: stoker gpus add {order.gpu}")
    for place in usable:
        place.drained = wanted
    return order.gpu


def _list(places: list[Place]) -> str:
    return ", ".join(place.slot.label for place in places) or "none"


def _remember(hub: Hub) -> None:
    """Keep over a restart which slots there are and which are drained or removed."""
    places = hub.engine.board.places
    with hub.database.transaction(durable=True):
        if hub.config.gpus is None:
            # By default there are those that are found, so it is remembered which of them are not.
            hub.config.write("gpus-removed", _labels(places, REMOVED))
        else:
            kept = [place.slot.label for place in places if place.drained != REMOVED]
            hub.config.write("gpus", ",".join(kept) or "none")
        hub.config.write("gpus-drained", _labels(places, DRAINED))
    reach("gpus-committed")
    hub.config.load()


def _labels(places: list[Place], drained: str) -> str | None:
    return ",".join(place.slot.label for place in places if place.drained == drained) or None
