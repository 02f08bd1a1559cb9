"""Which slots are ours: asked for when jobs wait, given back when nothing runs there."""

from __future__ import annotations

from collections.abc import Callable

from stoker.engine.slots import SlotState, SlotTable
from stoker.executors.contract import Executor, Unheld
from stoker.gpus.lease_holder import holder

_LEASE_RETRY_S = 1.0
_NEVER = float("inf")
_NO_LEASE = "has no lease"


def lease_fault(place: SlotState) -> str | None:
    """Why no Stoker could hold a slot when this one tried last; None if the slot can be held."""
    text = None if place.held else place.waits_for
    return text if text is not None and text.startswith(_NO_LEASE) else None


class GpuLeases:
    """Keeps the leases of a slot table's places in step with what is needed."""

    def __init__(
        self, slot_table: SlotTable, executor: Executor, tell_once: Callable[[str], None]
    ) -> None:
        self._slot_table = slot_table
        self._executor = executor
        self._tell_once = tell_once

    def ask(self, now: float) -> None:
        """Ask for every slot that is not ours."""
        for place in self._slot_table.index.unheld():
            if now >= place.ask_again_at and place.is_open:
                self.claim(place)

    def ask_again_at(self) -> float:
        """When a slot that is somebody else's is asked for again; a seat comes with its slot."""
        return min(
            (
                place.ask_again_at
                for place in self._slot_table.index.unheld()
                if place.current is None and place.is_open and place.waits_for is not None
            ),
            default=_NEVER,
        )

    def claim(self, place: SlotState) -> None:
        """Ask for a slot, unless it is ours or asked for."""
        if not (place.held or place.asked):
            place.asked = True
            self._executor.hold(place.slot.index)

    def on_held(self, slot: int) -> None:
        """A slot is ours."""
        place = self._slot_table.places[slot]
        place.held, place.asked, place.waits_for = True, False, None

    def on_unheld(self, report: Unheld, now: float) -> None:
        """A slot is not ours: another process has its lease, or no lease can be kept."""
        place = self._slot_table.places[report.slot]
        place.held = place.asked = False
        place.ask_again_at = now + _LEASE_RETRY_S
        if report.attempt is not None:
            place.waits_for = (
                f"used by attempt {report.attempt}, of which stoker.db does not know the GPU"
            )
            return
        held_by = holder(report.gpu_key)
        if report.reason is not None:
            now_held = f"; it is held by {held_by} now" if held_by else ""
            place.waits_for = f"{_NO_LEASE}: {report.reason}{now_held}"
            self._tell_once(f"no lease for GPU {place.slot.label} can be kept: {report.reason}")
            return
        place.waits_for = f"held by {held_by or 'another'}"
        if held_by is not None:
            self._tell_once(f"GPU {place.slot.label} is {place.waits_for}: waiting for it")

    def forget(self, node: str = "") -> None:
        """Take note that the executor holds nothing of a node any more."""
        for place in self._slot_table.of_node.get(node, ()):
            place.held = place.asked = False

    def release_idle(self) -> None:
        """With nothing waiting, give back GPUs that nothing runs on."""
        for place in self._slot_table.index.idle():
            self._release(place)

    def release_closed(self) -> None:
        """Give back GPUs on which nothing may start."""
        for place in self._slot_table.index.shut():
            self._release(place)
        for seat in self._slot_table.seats:
            if seat.base is not None and not self._slot_table.places[seat.base].is_open:
                self._release(seat)

    def _release(self, place: SlotState) -> None:
        if place.held and place.current is None and not place.releasing:
            place.held = False
            self._executor.release(place.slot.index, self._slot_table.unused_keys(place))
