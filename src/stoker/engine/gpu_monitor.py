"""Closes slots whose GPU is lost, sick or, by default, in use by others; opens them again."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.usage import AttemptUse, GpuUse, Look, Sight
from stoker.engine.events import EngineListener
from stoker.engine.gpu_sources import GpuSource, Sample
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import ClosedBy
from stoker.engine.slots import SlotTable
from stoker.executors.node_reports import GpuState
from stoker.gpus.availability import taken_by
from stoker.gpus.driver_faults import FaultListener, sickness
from stoker.gpus.nvml import Fault, Gpu, Nvml, Reading
from stoker.gpus.process_census import OwnerOf
from stoker.gpus.sampler import Sampler

_PATIENCE_S = 2.0
_STALE_S = 10.0
_FAULTS = 100
_UNANSWERED = (
    "the NVIDIA driver does not answer: jobs go on, each GPU with as many as it has, until it does"
)


class GpuMonitor(GpuSource):
    """Has the GPUs of a slot table sampled in a thread, and judges what was seen in the engine's own.

    With `mind_others`, a slot is closed while a process that is not ours uses its GPU; a change of it
    counts with the next look. A sick GPU
    stays closed until `forgive`; those known from before are given as `sick`, and `remember` is told of
    changes. `appeared` is told of GPUs that have come.
    """

    def __init__(
        self,
        nvml: Nvml,
        slot_table: SlotTable,
        listener: EngineListener,
        owner_of: OwnerOf,
        *,
        mind_others: bool,
        appeared: Callable[[list[Gpu]], None] | None = None,
        sick: Mapping[str, str] | None = None,
        remember: Callable[[Mapping[str, str]], None] = lambda _sick: None,
        period_s: float = 1.0,
    ) -> None:
        self._sick = dict(sick or {})
        self._remember = remember
        self._nvml = nvml
        self._slot_table = slot_table
        self._listener = listener
        self.mind_others = mind_others
        self._appeared = appeared
        self._told: set[str] = set()
        self._faults: deque[tuple[float, Fault]] = deque(maxlen=_FAULTS)
        self._unheard: deque[Fault] = deque(maxlen=_FAULTS)
        self._alarm: threading.Timer | None = None
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._known = {gpu.uuid for gpu in nvml.gpus()}
        self._sampler = Sampler(
            nvml,
            subjects=self._subjects,
            owner_of=owner_of,
            awaits=self._awaits,
            changed=self._ring,
            renewed=None if appeared is None else self._ring,
            period_s=period_s,
        )
        self._fault_listener = FaultListener(nvml, self._sampler.active, self._on_fault)
        self._sampler.start()
        self._fault_listener.start()
        self._look_at_once()
        if all(ClosedBy.GPU in place.closed for place in slot_table.states):
            listener.on_notice(
                "every GPU is taken: waiting for one; to share one, name it: --gpus 0"
            )

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something new to review."""
        return self._reader

    def review(self) -> None:
        """Judge every slot anew, now that there is something new."""
        os.read(self._reader, 4096)
        self.refresh()

    def refresh(self) -> None:
        """Judge every slot anew by what the threads have seen and heard."""
        self._welcome()
        self._heed_faults()
        self._judge()
        for place in self._slot_table.states:
            if place.releasing and not any(map(self._sampler.releasing, place.slot.keys)):
                place.releasing = False
        self._set_alarm()
        while self._sampler.overdue:
            gpu_key, attempt = self._sampler.overdue.popleft()
            label = self._label_of(gpu_key)
            self._listener.on_notice(
                f"GPU {label}: the memory of {attempt} has not come back; going on without it"
            )

    def look(self) -> Look | None:
        """What was seen last; None while nothing is, or the driver hangs: no base for packing."""
        look = self._sampler.look
        if not look.gpus:
            return None
        if look.is_fresh(time.monotonic(), _STALE_S) or not self._sampler.active.is_set():
            self._told.discard(_UNANSWERED)
            sick = {key: use for key, use in look.gpus.items() if key in self._sick}
            if not sick:
                return look
            marked = {
                key: msgspec.structs.replace(use, sick=self._sick[key]) for key, use in sick.items()
            }
            return msgspec.structs.replace(look, gpus={**look.gpus, **marked})
        self._tell_once(_UNANSWERED)
        return None

    def is_sick(self, keys: Iterable[str]) -> bool:
        """Whether one of these GPUs may have no jobs because of a fault."""
        return not self._sick.keys().isdisjoint(keys)

    def reading(self, key: str) -> Reading | None:
        """The last reading of a GPU."""
        return self._sampler.latest.get(key)

    def gpus(self) -> Mapping[str, GpuUse]:
        """Every GPU as it was seen last, however long ago."""
        return self._sampler.look.gpus

    def name_of(self, key: str) -> str | None:
        """What kind of GPU one is."""
        reading = self.reading(key)
        return None if reading is None else reading.gpu.name

    def state(self, key: str) -> GpuState | None:
        """What the figures do not tell of a GPU."""
        reading = self.reading(key)
        if reading is None:
            return None
        return GpuState(
            temperature_c=reading.temperature_c, power_w=reading.power_w, lost=reading.lost
        )

    def history(self, key: str) -> Sequence[tuple[float, int, int | None]]:
        """The last minutes of a GPU."""
        return list(self._sampler.history.get(key, ()))

    def history_of(self, attempt: str) -> list[Sample]:
        """The last minutes of an attempt, also of one that has ended lately."""
        return self._sampler.history_of(attempt)

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every attempt that runs."""
        return self._sampler.histories()

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        """What an attempt has used; its slots stay closed until its memory is back, if that can be seen."""
        use = self._sampler.take(running.key)
        if use is not None:
            is_seen = self.look() is not None
            for slot in running.slots:
                place = self._slot_table.states[slot.index]
                place.releasing = is_seen and any(map(self._sampler.releasing, slot.keys))
                if place.whole_slot is not None:
                    self._slot_table.states[place.whole_slot].releasing = place.releasing
            self._set_alarm()
        return use

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last fault that the driver told of an attempt's GPUs while it ran."""
        keys = {key for slot in running.slots for key in slot.keys}
        since_s = time.monotonic() - max(0.0, time.time() - (running.started_at_us or 0) / 1e6)
        found = [
            fault.xid for at_s, fault in self._faults if fault.uuid in keys and at_s >= since_s
        ]
        return (found[-1] or 48) if found else None

    def forgive(self, keys: tuple[str, ...]) -> None:
        """Take GPUs for healthy again: somebody has seen to them."""
        for key in keys:
            self._sick.pop(key, None)
        self._remember(self._sick)
        self._judge()

    def rest(self) -> None:
        """Look no more until roused: with nothing to run, who uses a GPU is nobody's concern."""
        self._sampler.active.clear()

    def rouse(self) -> None:
        """Look at once, and from now on again; nothing has run here meanwhile."""
        if not self._sampler.active.is_set():
            self._look_at_once()

    def look_again(self) -> None:
        """Have a look at GPUs of slots that have come since."""
        self._look_at_once()

    def stop(self) -> None:
        """End the threads."""
        self._fault_listener.stop()
        self._sampler.stop()
        if (alarm := self._alarm) is not None:
            alarm.cancel()
            alarm.join()
        os.close(self._reader)
        os.close(self._writer)

    def _look_at_once(self) -> None:
        if not self._sampler.look_at_once(_PATIENCE_S):
            self._tell_once(_UNANSWERED)
        self._judge()

    def _subjects(self) -> dict[str, tuple[str, ...]]:
        """What runs where; called from the sampler's thread."""
        return {
            each.key: tuple(key for slot in each.slots for key in slot.keys)
            for each in list(self._slot_table.running.values())
            if each.pid is not None and each.slots and self._slot_table.is_own(each.node)
        }

    def _awaits(self, gpu_key: str) -> bool:
        """Whether a process of ours may be on a GPU, or soon; called from the sampler's thread."""
        running = list(self._slot_table.running.values())
        return any(gpu_key in slot.keys for each in running for slot in each.slots)

    def _on_fault(self, fault: Fault) -> None:
        self._faults.append((time.monotonic(), fault))
        self._unheard.append(fault)
        self._ring()

    def _heed_faults(self) -> None:
        while self._unheard:
            fault = self._unheard.popleft()
            why = sickness(fault)
            if why is not None and fault.uuid not in self._sick:
                label = self._label_of(fault.uuid)
                self._sick[fault.uuid] = (
                    f"{why}; once it was seen to: stoker gpus add {label} uses it again"
                )
                self._remember(self._sick)

    def _welcome(self) -> None:
        """Tell of GPUs that were not there before."""
        new = [gpu for gpu in self._nvml.gpus() if gpu.uuid not in self._known]
        self._known |= {gpu.uuid for gpu in new}
        if new and self._appeared is not None:
            self._appeared(new)

    def _set_alarm(self) -> None:
        """Have places reviewed when their time is up: a sampler whom the driver keeps cannot tell."""
        wait_s = self._sampler.release_wait_s()
        if wait_s is not None and self._alarm is None:
            self._alarm = threading.Timer(wait_s, self._on_alarm)
            self._alarm.daemon = True
            self._alarm.start()

    def _on_alarm(self) -> None:
        self._alarm = None
        self._ring()

    def _ring(self) -> None:
        try:
            os.write(self._writer, b"\0")
        except (BlockingIOError, OSError):
            return  # it is awake already, or going home

    def _judge(self) -> None:
        look = self.look()
        if look is None:
            return
        reasons = {
            key: taken_by(use, mind_others=self.mind_others) for key, use in look.gpus.items()
        }
        for place in self._slot_table.states:
            if not self._slot_table.is_own(place.slot.node):
                continue
            found = [reason for key in place.slot.keys if (reason := reasons.get(key))]
            closed = found[0] if found else None
            if closed != place.closed.get(ClosedBy.GPU):
                place.close(ClosedBy.GPU, closed)
                state = f"is {closed}" if closed else "is free again"
                if place.whole_slot is None:
                    self._listener.on_notice(f"GPU {place.slot.label} {state}")
            if place.current is not None:
                self._tell_of_dim_sight(place.slot.keys, look)

    def _tell_of_dim_sight(self, keys: tuple[str, ...], look: Look) -> None:
        for key in keys:
            use = look.gpus.get(key)
            if use is not None and use.sight is Sight.DEVICE:
                self._tell_once(
                    f"GPU {use.label}: the driver does not tell which of our processes holds how much"
                    " memory; jobs are not packed there"
                )

    def _label_of(self, gpu_key: str) -> str:
        for gpu in self._nvml.gpus():
            if gpu.uuid == gpu_key:
                return gpu.label
        return gpu_key

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._listener.on_notice(text)
