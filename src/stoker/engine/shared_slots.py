"""Starts jobs on GPUs that they share: each tenant gets a shared slot beside the slot of the whole GPU."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stoker.core.host_room import HostPlan
from stoker.core.planner import Start
from stoker.core.slot import Slot
from stoker.engine.candidates import Candidates
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.queue import QueueEntry
from stoker.engine.sharing import Join, Sharing
from stoker.engine.slot_state import SlotState
from stoker.engine.slots import SlotTable
from stoker.engine.torch_memory_cap import TorchMemoryCap
from stoker.executors.contract import Executor, Launch, Restore

Claim = Callable[[QueueEntry, Start, float], Launch | Restore | None]
"""Records the intent of a start; None if it cannot be made for the moment."""


class SharedSlots(msgspec.Struct, eq=False):
    """Claims shared slots for the jobs that the sharing policy admits, and caps their memory."""

    sharing: Sharing
    slot_table: SlotTable
    executor: Executor
    gpu_leases: GpuLeases
    claim: Claim
    torch_memory_cap: TorchMemoryCap | None

    def begin(self, demand: Candidates, start: Start, now: float) -> Launch | Restore | None:
        """Start a job that may share on a GPU without others, or plainly if it cannot be shared."""
        state = self.sharing.slot_to_share(start.slots[0]) if len(start.slots) == 1 else None
        if state is None:
            return self.claim(demand[start.job], start, now)
        self._note_cap(demand, start.job)
        join = self.sharing.begin(state, demand.candidate(start.job))
        return self._start(demand[start.job], join, now)

    def join(
        self, demand: Candidates, begun: set[int], now: float
    ) -> tuple[list[Launch | Restore], bool]:
        """Start jobs beside others. Returns the launches, and whether all of these jobs could start.

        `begun` has the plan's ids of the jobs that start in this turn already.
        """
        waiting = [each for each in demand.candidates if each.id not in begun]
        hosts = HostPlan(self.slot_table.host_rooms)
        first = next((each for each in waiting if each.declares_host), None)
        if first is not None and not first.slots:  # no job may take its CPUs and RAM by joining
            hosts.keep(first, first.id, [first.node])
        waiting = [each for each in waiting if each.slots]
        for each in waiting:
            if each.share is not None:
                self._note_cap(demand, each.id)
        launches: list[Launch | Restore] = []
        for join in self.sharing.join(waiting, now, hosts):
            launch = self._start(demand[join.candidate.id], join, now)
            if launch is None:
                return launches, False
            launches.append(launch)
        return launches, True

    def _note_cap(self, demand: Candidates, job: int) -> None:
        cap = self.torch_memory_cap
        if cap is not None and demand[job].suspended is None:  # its limit was set at its start
            self.sharing.note_cap(job, lambda: cap.is_possible(demand[job]))

    def _start(self, entry: QueueEntry, join: Join, now: float) -> Launch | Restore | None:
        state = self.shared_slot_on(join.state)
        self.gpu_leases.request(state)
        launch = self.claim(entry, Start(join.candidate.id, (state.slot.index,)), now)
        if launch is None:
            return None
        # A resumed job keeps the limit that it was started with.
        capped = self._cap(launch, entry, join) if isinstance(launch, Launch) else None
        running = self.slot_table.running[launch.key]
        self.sharing.admit(running, join, now, capped=capped is not None)
        return capped or launch

    def _cap(self, launch: Launch, entry: QueueEntry, join: Join) -> Launch | None:
        if self.torch_memory_cap is None or not join.reservation.can_be_capped:
            return None
        share = join.reservation.bytes / self.sharing.total_bytes(join.state)
        return self.torch_memory_cap.cap(launch, entry, share)

    def shared_slot_on(self, state: SlotState) -> SlotState:
        """Return a free shared slot on the GPU of a slot; add one if there is none."""
        whole = state.slot
        for shared in self.slot_table.shared:
            if shared.whole_slot == whole.index and shared.current is None:
                return shared
        slot = Slot(len(self.slot_table.states), whole.gpus, whole.keys, whole.node)
        self.executor.define_slots([slot])
        return self.slot_table.add(slot, whole_slot=whole.index)
