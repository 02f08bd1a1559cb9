"""Puts jobs that share a GPU on seats of it: each has one of its own, beside the slot of the whole GPU."""

from __future__ import annotations

from collections.abc import Callable

from stoker.core.planner import Start
from stoker.core.slot import Slot
from stoker.engine.candidates import Candidates
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.queue import QueueEntry
from stoker.engine.sharing import Join, Sharing
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.engine.torch_memory_cap import TorchMemoryCap
from stoker.executors.contract import Executor, Launch

Claim = Callable[[QueueEntry, Start, float], Launch | None]
"""Records the intent of a start; None if it cannot be made for the moment."""


class SharedSlots:
    """Claims seats for those whom the sharing lets in, with what is set aside for them on record."""

    def __init__(
        self,
        sharing: Sharing,
        slot_table: SlotTable,
        executor: Executor,
        gpu_leases: GpuLeases,
        claim: Claim,
        torch_memory_cap: TorchMemoryCap | None,
    ) -> None:
        self._sharing = sharing
        self._slot_table = slot_table
        self._executor = executor
        self._gpu_leases = gpu_leases
        self._claim = claim
        self._torch_memory_cap = torch_memory_cap

    def begin(self, demand: Candidates, start: Start, now: float) -> Launch | None:
        """Start a job that may share on a GPU without others, or plainly where none can be shared."""
        state = self._sharing.place_of(start.slots[0]) if len(start.slots) == 1 else None
        if state is None:
            return self._claim(demand[start.job], start, now)
        join = self._sharing.begin(state, demand.candidate(start.job))
        return self._start(demand[start.job], join, now)

    def join(self, demand: Candidates, begun: set[int], now: float) -> tuple[list[Launch], bool]:
        """Start those who may join others; whether all of them could be.

        `begun` are those who wait no more, by the names that the plan has for them.
        """
        waiting = [each for each in demand.candidates if each.slots and each.id not in begun]
        launches: list[Launch] = []
        for join in self._sharing.join(waiting, now):
            launch = self._start(demand[join.candidate.id], join, now)
            if launch is None:
                return launches, False
            launches.append(launch)
        return launches, True

    def _start(self, entry: QueueEntry, join: Join, now: float) -> Launch | None:
        seat = self.shared_slot_on(join.place)
        self._gpu_leases.request(seat)
        launch = self._claim(entry, Start(join.candidate.id, (seat.slot.index,)), now)
        if launch is None:
            return None
        capped = self._cap(launch, entry, join)
        running = self._slot_table.running[launch.key]
        self._sharing.sit(running, join, now, capped=capped is not None)
        return capped or launch

    def _cap(self, launch: Launch, entry: QueueEntry, join: Join) -> Launch | None:
        if self._torch_memory_cap is None or not join.room.can_be_capped:
            return None
        share = join.room.bytes / self._sharing.total_bytes(join.place)
        return self._torch_memory_cap.cap(launch, entry, share)

    def shared_slot_on(self, state: SlotState) -> SlotState:
        """A free seat on the GPU of a state."""
        index = state.slot.index
        for seat in self._slot_table.shared:
            if seat.whole_slot == index and seat.current is None:
                return seat
        base = state.slot
        slot = Slot(len(self._slot_table.states), base.gpus, base.keys, base.node)
        self._executor.define_slots([slot])
        return self._slot_table.add(slot, whole_slot=index)
