"""Monitors the local GPUs: closes slots whose GPU is lost, sick or used by others."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from stoker.core.usage import AttemptUse, GpuUse, Look, Sight
from stoker.engine.events import Notices
from stoker.engine.gpu_features import GpuSource, Sample
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slot_state import ClosedBy
from stoker.engine.slots import SlotTable
from stoker.executors.node_reports import GpuState
from stoker.gpus.availability import taken_by
from stoker.gpus.driver import Fault, Gpu, GpuDriver, Reading
from stoker.gpus.driver_faults import FaultListener, sickness
from stoker.gpus.process_census import OwnerOf
from stoker.gpus.sampler import Sampler

_FIRST_LOOK_S = 2.0
_STALE_S = 10.0
_FAULTS = 100
_UNANSWERED = "the NVIDIA driver does not answer: no more jobs share a GPU until it does"


class GpuMonitor(GpuSource):
    """Samples the GPUs of a slot table in a thread; opens and closes slots in the engine's thread.

    With `mind_others`, a slot is closed while a foreign process uses its GPU. A sick GPU stays closed
    until `forgive`. `sick` are the sick GPUs of an earlier monitor; `remember` gets every change.
    `appeared` gets new GPUs.
    """

    def __init__(
        self,
        nvml: GpuDriver,
        slot_table: SlotTable,
        notify: Callable[[str], None],
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
        self.mind_others = mind_others
        self._appeared = appeared
        self._notices = Notices(notify)
        self._faults: deque[tuple[float, Fault]] = deque(maxlen=_FAULTS)
        self._new_faults: deque[Fault] = deque(maxlen=_FAULTS)
        self._alarm: threading.Timer | None = None
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._known = {gpu.uuid for gpu in nvml.gpus()}
        self._sampler = Sampler(
            nvml,
            subjects=self._subjects,
            owner_of=owner_of,
            awaits=self._awaits,
            keeps=self._is_suspended,
            changed=self._wake,
            renewed=None if appeared is None else self._wake,
            period_s=period_s,
        )
        self._fault_listener = FaultListener(nvml, self._sampler.active, self._on_fault)
        self._sampler.start()
        self._fault_listener.start()
        self._sample_now()
        if all(ClosedBy.GPU in slot_state.closed for slot_state in slot_table.states):
            notify("every GPU is in use: waiting for one; to use one anyway, name it: --gpus 0")

    def fileno(self) -> int:
        """Return a descriptor that is readable when `review` has something to do."""
        return self._reader

    def review(self) -> None:
        """Handle what made the descriptor readable."""
        os.read(self._reader, 4096)
        self.refresh()

    def refresh(self) -> None:
        """Open and close slots by what the threads have seen."""
        self._report_new_gpus()
        self._apply_faults()
        self._judge()
        for slot_state in self._slot_table.states:
            if slot_state.releasing and not any(map(self._sampler.releasing, slot_state.slot.keys)):
                slot_state.releasing = False
        self._set_alarm()
        while self._sampler.overdue:
            gpu_key, attempt = self._sampler.overdue.popleft()
            label = self._label_of(gpu_key)
            self._notices.tell(
                f"GPU {label}: the memory of attempt {attempt} was not freed;"
                " starting the next job anyway"
            )

    def look(self) -> Look | None:
        """The last look at all GPUs; None if there is none yet, or the driver hangs."""
        look = self._sampler.look
        if not look.gpus:
            return None
        if look.is_fresh(time.monotonic(), _STALE_S) or not self._sampler.active.is_set():
            self._notices.forget(_UNANSWERED)
            sick = {key: use for key, use in look.gpus.items() if key in self._sick}
            if not sick:
                return look
            marked = {
                key: msgspec.structs.replace(use, sick=self._sick[key]) for key, use in sick.items()
            }
            return msgspec.structs.replace(look, gpus={**look.gpus, **marked})
        self._notices.tell_once(_UNANSWERED)
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
        """The model name of a GPU."""
        reading = self.reading(key)
        return None if reading is None else reading.gpu.name

    def state(self, key: str) -> GpuState | None:
        """Temperature, power and fault state of a GPU."""
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
        """The last minutes of an attempt, also if it has ended recently."""
        return self._sampler.history_of(attempt)

    def histories(self) -> Mapping[str, list[Sample]]:
        """The last minutes of every running attempt."""
        return self._sampler.histories()

    def on_start(self, running: RunningAttempt) -> None:
        """Watch an attempt whose process has just been reported: it may be over before the next sample.

        Where jobs are so short that they are claimed ahead, a sample would see nothing and slow them down.
        """
        if not any(self._slot_table.states[slot.index].ahead for slot in running.slots):
            self._sampler.on_start()

    def on_end(self, running: RunningAttempt) -> AttemptUse | None:
        """What an ended attempt has used; closes its slots until its memory is freed, if visible."""
        use = self._sampler.take(running.key)
        if use is not None:
            is_seen = self.look() is not None
            for slot in running.slots:
                slot_state = self._slot_table.states[slot.index]
                slot_state.releasing = is_seen and any(map(self._sampler.releasing, slot.keys))
                if slot_state.whole_slot is not None:
                    self._slot_table.states[slot_state.whole_slot].releasing = slot_state.releasing
            self._set_alarm()
        return use

    def xid_of(self, running: RunningAttempt) -> int | None:
        """The last driver fault on an attempt's GPUs while it ran."""
        keys = {key for slot in running.slots for key in slot.keys}
        since_s = time.monotonic() - max(0.0, time.time() - (running.started_at_us or 0) / 1e6)
        found = [
            fault.xid for at_s, fault in self._faults if fault.uuid in keys and at_s >= since_s
        ]
        return (found[-1] or 48) if found else None

    def forgive(self, keys: tuple[str, ...]) -> None:
        """Treat GPUs as healthy again."""
        for key in keys:
            self._sick.pop(key, None)
        self._remember(self._sick)
        self._judge()

    def rest(self) -> None:
        """Stop sampling until `rouse`: without jobs, the state of the GPUs does not matter."""
        self._sampler.active.clear()

    def rouse(self) -> None:
        """Look now, and periodically from now on."""
        if not self._sampler.active.is_set():
            self._sample_now()

    def look_again(self) -> None:
        """Look now, because slots were added."""
        self._sample_now()

    def stop(self) -> None:
        """Stop the threads."""
        self._fault_listener.stop()
        self._sampler.stop()
        if (alarm := self._alarm) is not None:
            alarm.cancel()
            alarm.join()
        os.close(self._reader)
        os.close(self._writer)

    def _sample_now(self) -> None:
        if not self._sampler.sample_now(_FIRST_LOOK_S):
            self._notices.tell_once(_UNANSWERED)
        self._judge()

    def _subjects(self) -> dict[str, tuple[str, ...]]:
        """The running attempts and their GPUs; called from the sampler's thread."""
        return {
            each.key: tuple(key for slot in each.slots for key in slot.keys)
            for each in list(self._slot_table.running.values())
            if each.pid is not None and each.slots and self._slot_table.is_own(each.node)
        }

    def _is_suspended(self, attempt: str) -> bool:
        running = self._slot_table.running.get(attempt)
        return running is not None and running.is_suspended

    def _awaits(self, gpu_key: str) -> bool:
        """Whether an attempt is on a GPU, or starts there; called from the sampler's thread."""
        running = list(self._slot_table.running.values())
        return any(gpu_key in slot.keys for each in running for slot in each.slots)

    def _on_fault(self, fault: Fault) -> None:
        self._faults.append((time.monotonic(), fault))
        self._new_faults.append(fault)
        self._wake()

    def _apply_faults(self) -> None:
        while self._new_faults:
            fault = self._new_faults.popleft()
            why = sickness(fault)
            if why is not None and fault.uuid not in self._sick:
                label = self._label_of(fault.uuid)
                self._sick[fault.uuid] = (
                    f"{why}; when it is repaired: stoker gpus add {label} uses it again"
                )
                self._remember(self._sick)

    def _report_new_gpus(self) -> None:
        """Report GPUs that were not there before."""
        new = [gpu for gpu in self._nvml.gpus() if gpu.uuid not in self._known]
        self._known |= {gpu.uuid for gpu in new}
        if new and self._appeared is not None:
            self._appeared(new)

    def _set_alarm(self) -> None:
        """Set a timer for slots that wait for memory: a sampler that hangs cannot reopen them."""
        wait_s = self._sampler.release_wait_s()
        if wait_s is not None and self._alarm is None:
            self._alarm = threading.Timer(wait_s, self._on_alarm)
            self._alarm.daemon = True
            self._alarm.start()

    def _on_alarm(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._writer, b"\0")
        except (BlockingIOError, OSError):
            return  # the pipe is full, or closed

    def _judge(self) -> None:
        look = self.look()
        if look is None:
            return
        reasons = {
            key: taken_by(use, mind_others=self.mind_others) for key, use in look.gpus.items()
        }
        for slot_state in self._slot_table.states:
            if not self._slot_table.is_own(slot_state.slot.node):
                continue
            found = [reason for key in slot_state.slot.keys if (reason := reasons.get(key))]
            closed = found[0] if found else None
            if closed != slot_state.closed.get(ClosedBy.GPU):
                slot_state.close(ClosedBy.GPU, closed)
                state = f"is {closed}" if closed else "is free again"
                if slot_state.whole_slot is None:
                    self._notices.tell(f"GPU {slot_state.slot.label} {state}")
            if slot_state.current is not None:
                self._warn_without_process_memory(slot_state.slot.keys, look)

    def _warn_without_process_memory(self, keys: tuple[str, ...], look: Look) -> None:
        for key in keys:
            use = look.gpus.get(key)
            if use is not None and use.sight is Sight.DEVICE:
                self._notices.tell_once(
                    f"GPU {use.label}: the driver does not report the memory of each process; jobs do"
                    " not share this GPU"
                )

    def _label_of(self, gpu_key: str) -> str:
        for gpu in self._nvml.gpus():
            if gpu.uuid == gpu_key:
                return gpu.label
        return gpu_key
