"""An NVML in memory, for tests of what is made of its answers."""

from __future__ import annotations

import queue
import threading

import msgspec

from stoker.gpus.driver import Fault, Gpu, GpuProcess, Reading
from stoker.gpus.nvml import Nvml

GIB = 1 << 30
GPU = Gpu(0, "GPU-0", "A100", 8 * GIB, is_mig=False)
SECOND = Gpu(1, "GPU-1", "A100", 8 * GIB, is_mig=False)


class Driver(Nvml):
    """An NVML whose answers are what the test says, and which counts what it was asked."""

    def __init__(self, *gpus: Gpu) -> None:
        self._gpus = gpus
        self.held: dict[str, dict[int, int | None]] = {gpu.uuid: {} for gpu in gpus}
        self.more_bytes: dict[str, int] = {}
        self.driver_bytes = 0
        self.lost: set[str] = set()
        self.unlisted: set[str] = set()
        self.sm: dict[int, int] | None = {}
        self.lists = self.glances = self.looks = 0
        self.signs = False
        self.faults: queue.Queue[Fault] = queue.Queue()
        self.answers = threading.Event()
        self.answers.set()

    def read(self, gpu: Gpu) -> Reading:
        self.answers.wait()
        self.lists += 1
        held = self.held[gpu.uuid]
        processes = tuple(GpuProcess(pid, mem) for pid, mem in held.items())
        told = None if gpu.uuid in self.unlisted else processes
        return self.update_usage(Reading(gpu, processes=told))

    def update_usage(self, before: Reading) -> Reading:
        self.glances += 1
        uuid = before.gpu.uuid
        if uuid in self.lost:
            return Reading(before.gpu, lost=True)
        used = sum(mem or 0 for mem in self.held[uuid].values()) + self.more_bytes.get(uuid, 0)
        return msgspec.structs.replace(
            before,
            mem_used_bytes=used,
            mem_free_bytes=8 * GIB - self.driver_bytes - used,
            utilisation_pct=30,
            lost=False,
        )

    def used_bytes(self, gpu: Gpu) -> int | None:
        reading = self.update_usage(Reading(gpu))
        return None if reading.lost else reading.mem_used_bytes

    def sm_by_pid(self, gpu: Gpu, since_us: int) -> dict[int, int] | None:
        return self.sm

    def may_have_changed(self) -> bool:
        return self.signs

    def enumerate_again(self) -> bool:
        self.answers.wait()
        self.looks += 1
        self.signs = False
        return True

    def listen_for_faults(self) -> object:
        return self.faults

    def next_fault(self, events: object, timeout_ms: int) -> Fault | None:
        try:
            return self.faults.get(timeout=timeout_ms / 1000)
        except queue.Empty:
            return None
