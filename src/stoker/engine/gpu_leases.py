"""Which slots are ours: asked for when jobs wait, given back when nothing runs there."""

from __future__ import annotations

from collections.abc import Callable

from stoker.engine.slots import SlotState, SlotTable
from stoker.executors.contract import Executor, Unheld
from stoker.gpus.lease_holder import holder

_LEASE_RETRY_S = 1.0
_NEVER = float("inf")
_NO_LEASE = "has no lease"


def lease_fault(state: SlotState) -> str | None:
    """Why no Stoker could hold a slot when this one tried last; None if the slot can be held."""
    text = None if state.held else state.waits_for
    return text if text is not None and text.startswith(_NO_LEASE) else None


class GpuLeases:
    """Keeps the leases of a slot table's states in step with what is needed."""

    def __init__(
        self, slot_table: SlotTable, executor: Executor, tell_once: Callable[[str], None]
    ) -> None:
        self._slot_table = slot_table
        self._executor = executor
        self._tell_once = tell_once

    def ask(self, now: float) -> None:
        """Ask for every slot that is not ours."""
        for state in self._slot_table.index.unheld():
            if now >= state.ask_again_at and state.is_open:
                self.claim(state)

    def ask_again_at(self) -> float:
        """When a slot that is somebody else's is asked for again; a seat comes with its slot."""
        return min(
            (
                state.ask_again_at
                for state in self._slot_table.index.unheld()
                if state.current is None and state.is_open and state.waits_for is not None
            ),
            default=_NEVER,
        )

    def claim(self, state: SlotState) -> None:
        """Ask for a slot, unless it is ours or asked for."""
        if not (state.held or state.asked):
            state.asked = True
            self._executor.hold(state.slot.index)

    def on_held(self, slot: int) -> None:
        """A slot is ours."""
        state = self._slot_table.states[slot]
        state.held, state.asked, state.waits_for = True, False, None

    def on_unheld(self, report: Unheld, now: float) -> None:
        """A slot is not ours: another process has its lease, or no lease can be kept."""
        state = self._slot_table.states[report.slot]
        state.held = state.asked = False
        state.ask_again_at = now + _LEASE_RETRY_S
        if report.attempt is not None:
            state.waits_for = (
                f"used by attempt {report.attempt}, of which stoker.db does not know the GPU"
            )
            return
        held_by = holder(report.gpu_key)
        if report.reason is not None:
            now_held = f"; it is held by {held_by} now" if held_by else ""
            state.waits_for = f"{_NO_LEASE}: {report.reason}{now_held}"
            self._tell_once(f"no lease for GPU {state.slot.label} can be kept: {report.reason}")
            return
        state.waits_for = f"held by {held_by or 'another'}"
        if held_by is not None:
            self._tell_once(f"GPU {state.slot.label} is {state.waits_for}: waiting for it")

    def forget(self, node: str = "") -> None:
        """Take note that the executor holds nothing of a node any more."""
        for state in self._slot_table.of_node.get(node, ()):
            state.held = state.asked = False

    def release_idle(self) -> None:
        """With nothing waiting, give back GPUs that nothing runs on."""
        for state in self._slot_table.index.idle():
            self._release(state)

    def release_closed(self) -> None:
        """Give back GPUs on which nothing may start."""
        for state in self._slot_table.index.shut():
            self._release(state)
        for seat in self._slot_table.shared:
            if seat.whole_slot is not None and not self._slot_table.states[seat.whole_slot].is_open:
                self._release(seat)

    def _release(self, state: SlotState) -> None:
        if state.held and state.current is None and not state.releasing:
            state.held = False
            self._executor.release(state.slot.index, self._slot_table.unused_keys(state))
