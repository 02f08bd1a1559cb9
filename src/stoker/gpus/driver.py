"""What Stoker asks of a GPU driver: which GPUs there are, their readings, processes, faults and links.

`gpus/nvml.py` asks NVIDIA's library, `gpus/amd.py` reads AMD's files, and `gpus/drivers.py` joins both.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from stoker.core.gpu_links import Link
from stoker.core.slot import AMD
from stoker.errors import StokerError


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that jobs can use: a whole card, or one MIG instance of a card.

    `index` counts the cards of one maker as that maker does. The instances of one card share it; only their
    UUIDs differ. `uuid` is the lease key. `prefix` is before the index if there are cards of two makers.
    """

    index: int
    uuid: str
    name: str
    mem_total_bytes: int
    is_mig: bool
    prefix: str = ""

    @property
    def label(self) -> str:
        """The name that users use for this GPU."""
        return self.uuid if self.is_mig else f"{self.prefix}{self.index}"

    @property
    def is_amd(self) -> bool:
        """Whether it is AMD's, which ROCR_VISIBLE_DEVICES selects, and not CUDA_VISIBLE_DEVICES."""
        return self.uuid.startswith(AMD)


class GpuProcess(msgspec.Struct, frozen=True):
    """A process on a GPU. The pid is the driver's: in a container, that of the host."""

    pid: int
    mem_bytes: int | None


class Reading(msgspec.Struct, frozen=True):
    """One reading of a GPU. None (for memory: 0) means that this driver does not report the value.

    `processes` None means that the processes are unknown; an empty tuple means that there are none.
    """

    gpu: Gpu
    mem_used_bytes: int = 0
    mem_free_bytes: int = 0
    utilisation_pct: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    processes: tuple[GpuProcess, ...] | None = ()
    lost: bool = False

    @property
    def driver_bytes(self) -> int:
        """Memory that the driver keeps for itself; 0 if unknown."""
        known = self.mem_used_bytes + self.mem_free_bytes
        return max(0, self.gpu.mem_total_bytes - known) if known else 0


class Fault(msgspec.Struct, frozen=True):
    """A critical fault of a GPU that the driver reports: an XID, or None for a memory (ECC) error."""

    uuid: str
    xid: int | None


class DriverUnavailableError(StokerError):
    """There is no such driver on this machine, or it refuses."""


class GpuDriver(Protocol):
    """A source of readings. Its GPUs are those of the last enumeration; reading them never raises."""

    def close(self) -> None:
        """Close the connection; later readings say that every GPU is lost."""

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs in the order of their numbers; a card in parts is listed as its parts."""

    def may_have_changed(self) -> bool:
        """Whether there are signs that GPUs were added or removed; costs microseconds."""

    def enumerate_again(self) -> bool:
        """Enumerate the GPUs again. Returns whether they changed."""

    def read(self, gpu: Gpu) -> Reading:
        """Read a GPU now, with its processes."""

    def update_usage(self, before: Reading) -> Reading:
        """Update only the memory and the utilisation of an earlier reading."""

    def used_bytes(self, gpu: Gpu) -> int | None:
        """Return the memory in use on a GPU; None if it is lost."""

    def link(self, one: Gpu, other: Gpu) -> Link | None:
        """Return how two cards are joined; None if this driver does not say."""

    def sm_by_pid(self, gpu: Gpu, since_us: int) -> dict[int, int] | None:
        """Return the percentage of a GPU that each process used since then; None if unsupported."""

    def listen_for_faults(self) -> Any:
        """Subscribe to faults of all GPUs. Returns what `next_fault` takes; None if unsupported."""

    def next_fault(self, events: Any, timeout_ms: int) -> Fault | None:
        """Wait for a fault without blocking other calls; None if none came in time.

        Raises DriverUnavailableError when `events` are no longer valid, as after `enumerate_again`.
        """

    def numa_node(self, gpu: Gpu) -> int | None:
        """Return the NUMA node of a card; None if it is unknown, or the machine has only one."""
