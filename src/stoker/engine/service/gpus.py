"""`gpus`: slots that come and go while jobs run."""

from __future__ import annotations

from stoker.engine.board import Place
from stoker.engine.hub import Hub
from stoker.errors import ConflictError, NotFoundError
from stoker.wire import Changed, GpuEvent, GpuOrder, Refusal

DRAINED = "drained"
REMOVED = "removed"


def gpus(hub: Hub, order: GpuOrder) -> Changed:
    """Add a slot, or take one out of use; what runs there is never touched.

    The answer names the jobs that still run on it; a refusal of id 0 is a warning.
    """
    places = [place for place in hub.engine.board.places if place.slot.label == order.gpu]
    if order.action == "add":
        _add(hub, order.gpu, places)
    else:
        _take_out(hub, order, places)
    _remember(hub)
    hub.events.publish(GpuEvent(slot=order.gpu, closed=None, at=hub.engine.wall_clock()))
    hub.pulse.poke()
    touched = [place for place in hub.engine.board.places if place.slot.label == order.gpu]
    jobs = sorted({place.current.attempt.job for place in touched if place.current is not None})
    warnings = []
    if not hub.engine.board.open_places():
        warnings.append(Refusal(0, "no GPU is left in use: only jobs without GPU will start"))
    return Changed(ids=jobs, refused=warnings)


def _add(hub: Hub, gpu: str, places: list[Place]) -> None:
    closed = [place for place in places if place.drained is not None]
    if closed:
        for place in closed:
            place.drained = None
        return
    if places:
        raise ConflictError(f"GPU {gpu} is in use already")
    for slot in hub.parse_slots(gpu):
        hub.engine.add_slot(slot.gpus, slot.keys)


def _take_out(hub: Hub, order: GpuOrder, places: list[Place]) -> None:
    wanted = DRAINED if order.action == "drain" else REMOVED
    usable = [place for place in places if place.drained not in (wanted, REMOVED)]
    if not places or all(place.drained == REMOVED for place in places):
        labels = ", ".join(place.slot.label for place in hub.engine.board.places)
        raise NotFoundError(f"there is no GPU {order.gpu} in this queue; there are: {labels}")
    if not usable:
        raise ConflictError(f"GPU {order.gpu} is drained already")
    for place in usable:
        place.drained = wanted


def _remember(hub: Hub) -> None:
    """Keep over a restart which slots there are and which are drained."""
    kept = [place for place in hub.engine.board.places if place.drained != REMOVED]
    labels = [place.slot.label for place in kept]
    hub.config.change("gpus", ",".join(labels) or "none")
    drained = [place.slot.label for place in kept if place.drained is not None]
    hub.config.change("gpus-drained", ",".join(drained) or None)
