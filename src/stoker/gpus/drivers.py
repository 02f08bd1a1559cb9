"""The drivers of this machine, as one: NVIDIA's, AMD's, or both."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from stoker.core.gpu_links import Link
from stoker.gpus.amd import Amd
from stoker.gpus.driver import DriverUnavailableError, Fault, Gpu, GpuDriver, Reading
from stoker.gpus.nvml import Nvml

_PREFIX = "amd"


def open_driver() -> GpuDriver | None:
    """Return the driver of this machine's GPUs; None if it has none."""
    found: list[GpuDriver] = []
    for kind in (Nvml, Amd):
        with contextlib.suppress(DriverUnavailableError):
            found.append(kind())
    if len(found) < 2:
        return found[0] if found else None
    return MixedDriver(*found)


def why_unavailable() -> str | None:
    """Return in a few words why `open_driver` returns None; None if it does not."""
    reasons = []
    for kind in (Nvml, Amd):
        try:
            kind().close()
        except DriverUnavailableError as error:
            reasons.append(str(error))
        else:
            return None
    return "; ".join(filter(None, reasons))


class MixedDriver:
    """The drivers of two makers on one machine. AMD's cards have names of their own: amd0, amd1."""

    def __init__(self, nvidia: GpuDriver, amd: GpuDriver) -> None:
        self._nvidia = nvidia
        self._amd = amd

    def close(self) -> None:
        """Close both."""
        self._nvidia.close()
        self._amd.close()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return NVIDIA's GPUs, then AMD's."""
        nvidia, amd = self._nvidia.gpus(), self._amd.gpus()
        if not nvidia:
            return amd
        return (*nvidia, *(msgspec.structs.replace(gpu, prefix=_PREFIX) for gpu in amd))

    def may_have_changed(self) -> bool:
        """Whether there are signs of a change at either."""
        return self._nvidia.may_have_changed() or self._amd.may_have_changed()

    def enumerate_again(self) -> bool:
        """Enumerate the GPUs of both again. Returns whether they changed."""
        changed = [driver.enumerate_again() for driver in (self._nvidia, self._amd)]
        return any(changed)

    def read(self, gpu: Gpu) -> Reading:
        """Read a GPU now."""
        return self._of(gpu).read(gpu)

    def update_usage(self, before: Reading) -> Reading:
        """Update the memory and the utilisation of an earlier reading."""
        return self._of(before.gpu).update_usage(before)

    def used_bytes(self, gpu: Gpu) -> int | None:
        """Return the memory in use on a GPU; None if it is lost."""
        return self._of(gpu).used_bytes(gpu)

    def link(self, one: Gpu, other: Gpu) -> Link | None:
        """Return how two cards are joined; cards of different makers compute nothing together."""
        driver = self._of(one)
        return driver.link(one, other) if driver is self._of(other) else Link.OTHER

    def sm_by_pid(self, gpu: Gpu, since_us: int) -> dict[int, int] | None:
        """Return the percentage of a GPU that each process used since then; None if unsupported."""
        return self._of(gpu).sm_by_pid(gpu, since_us)

    def listen_for_faults(self) -> Any:
        """Subscribe to the faults of NVIDIA's GPUs; AMD's driver reports none."""
        return self._nvidia.listen_for_faults()

    def next_fault(self, events: Any, timeout_ms: int) -> Fault | None:
        """Wait for a fault of one of NVIDIA's GPUs."""
        return self._nvidia.next_fault(events, timeout_ms)

    def numa_node(self, gpu: Gpu) -> int | None:
        """Return the NUMA node of a card."""
        return self._of(gpu).numa_node(gpu)

    def _of(self, gpu: Gpu) -> GpuDriver:
        return self._amd if gpu.is_amd else self._nvidia
