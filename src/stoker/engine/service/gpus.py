"""`gpus`: slots that come and go while jobs run."""

from __future__ import annotations

from stoker.engine.board import DRAINED, REMOVED, Place
from stoker.engine.hub import Hub
from stoker.errors import ConflictError, NotFoundError
from stoker.failpoints import reach
from stoker.wire import GpuChange, GpuEvent, GpuOrder


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
    watchman = hub.engine.watchman
    if watchman is not None:
        sick = [p.slot for p in named if not watchman.sick.keys().isdisjoint(p.slot.keys)]
        for slot in sick:
            watchman.forgive(slot.keys)
        if sick:
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
