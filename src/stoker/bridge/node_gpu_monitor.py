"""The GPU monitor of a node: what the GPUs of the node do, and which of their processes are jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stoker.core.job import Attempt, Outcome, Request
from stoker.core.slot import Slot
from stoker.core.usage import Look
from stoker.engine.gpu_monitor import GpuMonitor
from stoker.engine.process_owners import ProcessOwners
from stoker.engine.queue import QueueEntry
from stoker.engine.running_attempt import Running, RunningAttempt
from stoker.engine.slot_state import ClosedBy
from stoker.engine.slots import SlotTable
from stoker.executors.contract import Ended
from stoker.executors.node_reports import GpuSample, GpuState
from stoker.gpus.nvml import Nvml

_NOTHING = QueueEntry(b"", Request())


class NodeGpuMonitor:
    """Sees while it is wanted; a node without NVML sees nothing."""

    def __init__(
        self,
        nvml: Nvml | None,
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
                nvml, self._slot_table, self, owners, mind_others=mind_others
            )

    def follow(self, running: Mapping[str, int], keys_of: Callable[[str], tuple[str, ...]]) -> None:
        """Know what runs now: attempts with their pids, and on which GPUs."""
        if self._gpu_monitor is None:
            return
        for key in self._slot_table.running.keys() - running.keys():
            self._gpu_monitor.on_end(self._slot_table.running.pop(key))
        for key in running.keys() - self._slot_table.running.keys():
            gpus = set(keys_of(key))
            self._slot_table.running[key] = RunningAttempt(
                key=key,
                attempt=Attempt.from_key(key),
                entry=_NOTHING,
                slots=tuple(
                    place.slot
                    for place in self._slot_table.states
                    if not gpus.isdisjoint(place.slot.keys)
                ),
                phase=Running(running[key], started_at_us=0),
            )

    def see(self, *, wanted: bool) -> GpuSample | None:
        """What was seen last; None where nobody looks."""
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
            key: place.closed.get(ClosedBy.GPU)
            for place in self._slot_table.states
            for key in place.slot.keys
        }
        states = {}
        for key in look.gpus:
            reading = self._gpu_monitor.reading(key)
            states[key] = GpuState(
                closed=closed.get(key),
                temperature_c=None if reading is None else reading.temperature_c,
                power_w=None if reading is None else reading.power_w,
                lost=reading is not None and reading.lost,
            )
        return states

    def close(self) -> None:
        """Look no more."""
        if self._gpu_monitor is not None:
            self._gpu_monitor.stop()

    def on_notice(self, _text: str) -> None:
        """What a GPU monitor tells people is told by the head, from what it is shown."""

    def on_launch(self, _running: RunningAttempt) -> None:
        """Is told by the head."""

    def on_start(self, _running: RunningAttempt) -> None:
        """Is told by the head."""

    def on_end(
        self, _running: RunningAttempt, _outcome: Outcome, _ended: Ended | None, _retried: bool
    ) -> None:
        """Is told by the head."""
