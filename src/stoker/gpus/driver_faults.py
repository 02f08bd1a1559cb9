"""Listener for faults that the driver reports: XIDs and memory errors."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stoker.gpus.driver import DriverUnavailableError, Fault, GpuDriver

_WAIT_MS = 5000
_PAUSE_S = 1.0
# Faults of the card, its memory, its firmware or its bus connection, not of a program.
_SICK_XIDS = {
    48: "memory lost two bits (ECC)",
    62: "its microcontroller stopped",
    64: "memory that lost bits could not be taken out of use (ECC)",
    79: "fell off the bus",
    95: "memory lost bits and nothing contained it (ECC)",
    119: "its firmware does not answer",
    120: "its firmware failed",
}


def sickness(fault: Fault) -> str | None:
    """Return why a GPU must get no more jobs after a fault; None if a program caused the fault."""
    if fault.xid is None:
        return f"{_SICK_XIDS[48]}"
    meaning = _SICK_XIDS.get(fault.xid)
    return None if meaning is None else f"XID {fault.xid}, {meaning}"


class FaultListener(threading.Thread):
    """Thread that waits for faults while `active` is set, and calls `on_fault` from this thread."""

    def __init__(
        self, nvml: GpuDriver, active: threading.Event, on_fault: Callable[[Fault], None]
    ) -> None:
        super().__init__(name="gpu-faults", daemon=True)
        self._nvml = nvml
        self._active = active
        self._on_fault = on_fault
        self._stopping = threading.Event()

    def run(self) -> None:
        """Listen until stopped, or until the driver no longer offers fault events."""
        events = self._nvml.listen_for_faults()
        while events is not None and self._active.wait() and not self._stopping.is_set():
            try:
                fault = self._nvml.next_fault(events, _WAIT_MS)
            except DriverUnavailableError:
                self._stopping.wait(_PAUSE_S)
                events = self._nvml.listen_for_faults()
                continue
            if fault is not None:
                self._on_fault(fault)

    def stop(self) -> None:
        """Stop listening; the thread may take a moment to end."""
        self._stopping.set()
