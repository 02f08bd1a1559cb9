"""GPU monitor of a node: samples its GPUs and finds which processes on them belong to jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.core.job import Attempt, Request
from stoker.core.slot import Slot
from stoker.core.usage import Look
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.process_owners import ProcessOwners
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import Running, RunningAttempt
from stoker.engine.slot_state import ClosedBy
from stoker.engine.slots import SlotTable
from stoker.executors.node_reports import GpuSample, GpuState
from stoker.gpus.driver import GpuDriver
from stoker.gpus.lease_holder import holder

_NO_JOB = QueueEntry(b"", Request())


class NodeGpuMonitor:
    """Samples GPUs while jobs run or the head wants it. Without NVML there are no samples.

    The head notifies the user of faults, so notices of the monitor are dropped here.
    """

    def __init__(
        self,
        nvml: GpuDriver | None,
        slots: tuple[Slot, ...],
        cookie: str,
        parents: Callable[[], list[int]],
        *,
        mind_others: bool,
    ) -> None:
        self._slot_table = SlotTable(slots)
        self._gpu_monitor: GpuMonitor | None = None
        if nvml is not None and slots:
            owners = ProcessOwners(self._slot_table, cookie, parents)
            self._gpu_monitor = GpuMonitor(
                nvml, self._slot_table, lambda _text: None, owners, mind_others=mind_others
            )

    def follow(self, running: Mapping[str, int], keys_of: Callable[[str], tuple[str, ...]]) -> None:
        """Set the running attempts with their pids, and the function that returns their GPUs."""
        if self._gpu_monitor is None:
            return
        for key in self._slot_table.running.keys() - running.keys():
            self._gpu_monitor.on_end(self._slot_table.running.pop(key))
        for key in running.keys() - self._slot_table.running.keys():
            gpus = set(keys_of(key))
            self._slot_table.running[key] = RunningAttempt(
                key=key,
                attempt=Attempt.from_key(key),
                entry=_NO_JOB,
                slots=tuple(
                    state.slot
                    for state in self._slot_table.states
                    if not gpus.isdisjoint(state.slot.keys)
                ),
                phase=Running(running[key], started_at_us=0),
            )
            self._gpu_monitor.on_start(self._slot_table.running[key])

    def sample(self, *, wanted: bool) -> GpuSample | None:
        """Return the last sample; None while no sample is needed or possible."""
        if self._gpu_monitor is None:
            return None
        if not (wanted or self._slot_table.running):
            self._gpu_monitor.rest()
            return None
        self._gpu_monitor.rouse()
        self._gpu_monitor.refresh()
        look = self._gpu_monitor.look()
        return None if look is None else GpuSample(look, self._states(look))

    def _states(self, look: Look) -> dict[str, GpuState]:
        assert self._gpu_monitor is not None
        closed = {
            key: state.closed.get(ClosedBy.GPU)
            for state in self._slot_table.states
            for key in state.slot.keys
        }
        states = {}
        for key in look.gpus:
            reading = self._gpu_monitor.reading(key)
            states[key] = GpuState(
                closed=closed.get(key),
                temperature_c=None if reading is None else reading.temperature_c,
                power_w=None if reading is None else reading.power_w,
                lost=reading is not None and reading.lost,
                held_by=None if (found := holder(key)) is None else found.text,
            )
        return states
