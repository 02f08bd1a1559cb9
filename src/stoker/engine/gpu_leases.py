"""Leases of slots: requested when jobs wait, given back when nothing runs there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from stoker.engine.slot_state import LeaseHeld, LeaseRefusal, LeaseRequested, SlotState, Unleased
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Executor, Unheld
from stoker.gpus.lease_holder import holder

if TYPE_CHECKING:
    from stoker.engine.gpu_turns import GpuTurns

_RETRY_S = 1.0
_NEVER = float("inf")


class GpuLeases:
    """Requests and releases the leases of a slot table's slots. With `turns`, others may come first."""

    def __init__(
        self,
        slot_table: SlotTable,
        executor: Executor,
        tell_once: Callable[[str], None],
        turns: GpuTurns | None = None,
    ) -> None:
        self._slot_table = slot_table
        self._executor = executor
        self._tell_once = tell_once
        self._turns = turns
        self._kept: Mapping[str, float] = {}  # GPUs that the user has reserved, by lease key

    def request_all(
        self, now: float, usable: Collection[int] | None = None, needs: int = 1
    ) -> None:
        """Request every open slot that is not ours; after a refusal, not before its time.

        `usable` are the slots that waiting jobs can use; None for all. The first of these jobs needs `needs`.
        """
        states = [
            state
            for state in self._slot_table.index.unleased()
            if usable is None or state.slot.index in usable
        ]
        for state in self._sort_by_links(states, needs):
            self._request_if_due(state, now)

    def _sort_by_links(self, states: list[SlotState], needs: int) -> list[SlotState]:
        """Put those first on which a job starts best: it starts as soon as it has enough."""
        links = self._slot_table.links.current()
        if links is None:
            return states
        new = [state.slot.index for state in states if state.refusal is None and state.is_open]
        rank = {slot: place for place, slot in enumerate(links.sort(new, needs))}
        return sorted(states, key=lambda state: rank.get(state.slot.index, len(rank)))

    def _request_if_due(self, state: SlotState, now: float) -> bool:
        """Request an open slot that is not ours if its time has come; whether that was done."""
        if not (
            isinstance(state.lease, Unleased) and now >= state.lease.retry_at and state.is_open
        ):
            return False
        at = now if self._turns is None else self._turns.may_ask(state, now)
        if at > now:
            state.lease = Unleased(state.refusal, at)
            return False
        self.request(state)
        return True

    @property
    def lacks_reserved(self) -> bool:
        """Whether the user's reservations need GPUs that are not ours."""
        return self._turns is not None and self._turns.reserved.lacking > 0

    def follow_reservations(self, now: float) -> None:
        """Request as many GPUs as the user's reservations lack; let the executor keep those they have."""
        if self._turns is None:
            return
        reserved = self._turns.reserved
        if reserved.kept != self._kept:
            self._kept = reserved.kept
            self._executor.reserve({key: now + s for key, s in reserved.left_s().items()})
        if not reserved.lacking:
            return
        own = [each for each in self._slot_table.states if self._slot_table.is_own(each.slot.node)]
        lacking = reserved.lacking - sum(
            len(each.slot.keys) for each in own if isinstance(each.lease, LeaseRequested)
        )
        wanted = [each for each in own if each.whole_slot is None]
        for state in sorted(wanted, key=lambda each: each.refusal is not None):
            if lacking <= 0:
                return
            if self._request_if_due(state, now):
                lacking -= len(state.slot.keys)

    def next_retry_at(self) -> float:
        """When a slot that was refused, or left to others, is requested again."""
        return min(
            (
                state.lease.retry_at
                for state in self._slot_table.index.unleased()
                if isinstance(state.lease, Unleased)
                and state.lease.retry_at
                and state.current is None
                and state.is_open
            ),
            default=_NEVER,
        )

    def request(self, state: SlotState) -> None:
        """Request a slot, unless it is ours or requested already."""
        if isinstance(state.lease, Unleased):
            state.lease = LeaseRequested(state.lease.refusal)
            gather = self._turns is not None and self._turns.may_gather(state)
            self._executor.hold(state.slot.index, gather=gather)

    def on_held(self, slot: int) -> None:
        """Note that a slot is ours."""
        state = self._slot_table.states[slot]
        state.lease, state.gathered = LeaseHeld(), ()
        if self._turns is not None:
            self._turns.retry_at(slot, 0.0)

    def on_unheld(self, report: Unheld, now: float) -> None:
        """Note that a slot is not ours: another process has its lease, or no lease can be kept."""
        state = self._slot_table.states[report.slot]
        retry_at = now + _RETRY_S
        if self._turns is not None:
            retry_at = self._turns.retry_at(report.slot, retry_at)
        state.lease = Unleased(self._explain(state, report), retry_at)
        if state.gathered != report.gathered:
            state.gathered = report.gathered

    def _explain(self, state: SlotState, report: Unheld) -> LeaseRefusal:
        if report.attempt is not None:
            return LeaseRefusal(
                f"used by attempt {report.attempt}, of which stoker.db does not know the GPU"
            )
        held_by = holder(report.gpu_key)
        if report.reason is not None:
            now_held = f"; it is held by {held_by} now" if held_by else ""
            self._tell_once(f"no lease for GPU {state.slot.label} can be kept: {report.reason}")
            return LeaseRefusal(f"has no lease: {report.reason}{now_held}", is_fault=True)
        if held_by is None:
            return LeaseRefusal("held by another")
        self._tell_once(f"GPU {state.slot.label} is held by {held_by}: waiting for it")
        return LeaseRefusal(f"held by {held_by}")

    def on_released(self, slot: int) -> None:
        """Note that a slot is not ours any more. A later request for it stays open."""
        state = self._slot_table.states[slot]
        if state.is_held:
            state.drop_lease()

    def forget(self, node: str = "") -> None:
        """Note that the executor holds no lease of a node any more."""
        for state in self._slot_table.by_node.get(node, ()):
            state.drop_lease()
            if state.gathered:
                state.gathered = ()

    def release_idle(self) -> None:
        """Give back all slots without an attempt that the user has not reserved."""
        kept = self._kept.keys()
        for state in self._slot_table.index.idle():
            if kept.isdisjoint(state.slot.keys):
                self._release(state)
        for state in self._slot_table.index.gathering():
            self._release_gathered(state)

    def release_useless(self, usable: Collection[int]) -> None:
        """Give back the slots without an attempt that neither a waiting job nor a reservation can use."""
        kept = self._kept.keys()
        for state in self._slot_table.index.idle():
            is_useless = state.slot.index not in usable and state.whole_slot is None
            if is_useless and kept.isdisjoint(state.slot.keys):
                self._release(state)
        for state in self._slot_table.index.gathering():
            if state.slot.index not in usable:
                self._release_gathered(state)

    def release_closed(self) -> None:
        """Give back slots without an attempt that may get no jobs."""
        for state in self._slot_table.index.idle_closed():
            self._release(state)
        for state in self._slot_table.index.gathering():
            if not state.is_open:
                self._release_gathered(state)
        for state in self._slot_table.shared:
            whole = state.whole_slot
            if whole is not None and not self._slot_table.states[whole].is_open:
                self._release(state)

    def _release(self, state: SlotState) -> None:
        if state.is_held and state.current is None and not state.releasing:
            state.drop_lease()
            self._executor.release(state.slot.index, self._slot_table.unused_keys(state))

    def _release_gathered(self, state: SlotState) -> None:
        """Give back the GPUs of a slot that is not complete, unless other slots use them."""
        if isinstance(state.lease, Unleased):
            state.gathered = ()
            self._executor.release(state.slot.index, self._slot_table.unused_keys(state))
