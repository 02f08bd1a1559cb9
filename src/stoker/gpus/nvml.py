"""Access to NVML, NVIDIA's driver library. No other module calls it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import threading
from typing import TYPE_CHECKING, Any

import msgspec

from stoker.core.gpu_links import Link
from stoker.gpus.driver import DriverUnavailableError, Fault, Gpu, GpuProcess, Reading
from stoker.gpus.pci import address_of, read_numa_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_P2P_READ = 0  # NVML_P2P_CAPS_INDEX_READ is a tuple in nvidia-ml-py
_LISTED = "/proc/driver/nvidia/gpus"


_MODULE_VARIABLE = "STOKER_NVML_MODULE"


def _load_pynvml() -> Any:
    """Return the module pynvml, or what `load` of the module in STOKER_NVML_MODULE returns.

    Raises DriverUnavailableError if there is none. The library is looked for first, because importing pynvml
    takes longer than everything else.
    """
    substitute = os.environ.get(_MODULE_VARIABLE)
    if substitute:
        return importlib.import_module(substitute).load()
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise DriverUnavailableError("NVML Shared Library Not Found") from error
    try:
        import pynvml
    except ImportError as error:
        raise DriverUnavailableError("Python package nvidia-ml-py is not installed") from error
    return pynvml


class Nvml:
    """Connection to NVML. Its GPUs are those of the last enumeration; reading them never raises."""

    def __init__(self) -> None:
        """Open NVML; raise DriverUnavailableError if there is none."""
        pynvml = self._lib = _load_pynvml()
        self._lost_codes = {
            pynvml.NVML_ERROR_GPU_IS_LOST,
            pynvml.NVML_ERROR_RESET_REQUIRED,
            pynvml.NVML_ERROR_UNKNOWN,
        }
        self._gpus: tuple[Gpu, ...] = ()
        self._handles: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._signs: object = None
        try:
            self._begin()
        except pynvml.NVMLError as error:
            raise DriverUnavailableError(str(error)) from error

    def close(self) -> None:
        """Close the connection; later readings say that every GPU is lost."""
        self._handles.clear()
        try:
            self._lib.nvmlShutdown()
        except self._lib.NVMLError:
            return  # the driver is gone: there is nothing to close

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs in PCI order; a MIG card is listed as its instances."""
        return self._gpus

    def may_have_changed(self) -> bool:
        """Whether there are signs that GPUs were added or removed; costs microseconds."""
        return self._look_for_signs() != self._signs

    def enumerate_again(self) -> bool:
        """Enumerate the GPUs again. Returns whether they changed.

        The driver shows added or reset GPUs only after a new initialisation.
        """
        with self._lock:
            before = self._gpus
            self._handles.clear()
            with contextlib.suppress(self._lib.NVMLError):
                self._lib.nvmlShutdown()
            try:
                self._begin()
            except self._lib.NVMLError:
                return False  # no driver for now: without a handle every GPU reads as lost
        return self._gpus != before

    def _begin(self) -> None:
        self._lib.nvmlInit()
        self._gpus = tuple(self._discover())
        self._signs = self._look_for_signs()

    def _look_for_signs(self) -> object:
        try:
            listed = sorted(os.listdir(_LISTED))
        except OSError:
            listed = []
        try:
            return listed, self._lib.nvmlDeviceGetCount()
        except self._lib.NVMLError:
            return listed, None

    def read(self, gpu: Gpu) -> Reading:
        """Read a GPU now. Listing its processes costs milliseconds, the rest microseconds."""
        with self._lock:
            handle = self._handles.get(gpu.uuid)
            if handle is None:
                return Reading(gpu, lost=True)
            try:
                return self._read(gpu, handle)
            except self._lib.NVMLError:
                return Reading(gpu, lost=True)

    def update_usage(self, before: Reading) -> Reading:
        """Update only the memory and the utilisation of an earlier reading."""
        with self._lock:
            handle = self._handles.get(before.gpu.uuid)
            if handle is None:
                return Reading(before.gpu, lost=True)
            try:
                memory = self._memory(handle)
                rates = self._ask(self._lib.nvmlDeviceGetUtilizationRates, handle)
            except self._lib.NVMLError:
                return Reading(before.gpu, lost=True)
        return msgspec.structs.replace(
            before,
            mem_used_bytes=memory.used if memory else 0,
            mem_free_bytes=memory.free if memory else 0,
            utilisation_pct=rates.gpu if rates else None,
            lost=False,
        )

    def used_bytes(self, gpu: Gpu) -> int | None:
        """Return the memory in use on a GPU; None if it is lost. Costs some ten microseconds."""
        with self._lock:
            handle = self._handles.get(gpu.uuid)
            try:
                memory = None if handle is None else self._memory(handle)
            except self._lib.NVMLError:
                return None
        return memory.used if memory else None

    def link(self, one: Gpu, other: Gpu) -> Link | None:
        """Return how two cards are joined; None if this driver does not say.

        The status of peer to peer, and not the peer of each link, also shows NVLink through NVSwitch.
        """
        lib = self._lib
        with self._lock:
            first, second = self._handles.get(one.uuid), self._handles.get(other.uuid)
            if first is None or second is None:
                return None
            try:
                level = self._ask(lib.nvmlDeviceGetTopologyCommonAncestor, first, second)
                nvlink = self._ask(
                    lib.nvmlDeviceGetP2PStatus, first, second, lib.NVML_P2P_CAPS_INDEX_NVLINK
                )
                peers = self._ask(lib.nvmlDeviceGetP2PStatus, first, second, _P2P_READ)
            except lib.NVMLError:
                return None
        if nvlink == lib.NVML_P2P_STATUS_OK:
            return Link.NVLINK
        if level is None:
            return None
        if level <= lib.NVML_TOPOLOGY_MULTIPLE and peers in (None, lib.NVML_P2P_STATUS_OK):
            return Link.SWITCH
        return Link.NODE if level <= lib.NVML_TOPOLOGY_NODE else Link.OTHER

    def numa_node(self, gpu: Gpu) -> int | None:
        """Return the NUMA node of a card; None if it is unknown, or the machine has only one."""
        with self._lock:
            handle = self._handles.get(gpu.uuid)
            if handle is None:
                return None
            try:
                found = self._ask(self._lib.nvmlDeviceGetPciInfo, handle)
            except self._lib.NVMLError:
                return None
        return None if found is None else read_numa_node(address_of(found.busId))

    def sm_by_pid(self, gpu: Gpu, since_us: int) -> dict[int, int] | None:
        """Return the percentage of a GPU that each process used since then; None if unsupported."""
        with self._lock:
            handle = self._handles.get(gpu.uuid)
            if handle is None:
                return None
            try:
                samples = self._lib.nvmlDeviceGetProcessUtilization(handle, since_us)
            except self._lib.NVMLError as error:
                # Drivers report an idle GPU in either of these ways.
                idle = (self._lib.NVML_SUCCESS, self._lib.NVML_ERROR_NOT_FOUND)
                return {} if error.value in idle else None
        return {sample.pid: sample.smUtil for sample in samples}

    def listen_for_faults(self) -> Any:
        """Subscribe to faults of all GPUs. Returns the event set for `next_fault`; None if unsupported."""
        lib = self._lib
        kinds = lib.nvmlEventTypeXidCriticalError | lib.nvmlEventTypeDoubleBitEccError
        try:
            events = lib.nvmlEventSetCreate()
            for handle in self._handles.values():
                with contextlib.suppress(lib.NVMLError):  # a MIG instance, or an old card
                    lib.nvmlDeviceRegisterEvents(handle, kinds, events)
        except lib.NVMLError:
            return None
        return events

    def next_fault(self, events: Any, timeout_ms: int) -> Fault | None:
        """Wait for a fault without blocking other calls; None if none came in time.

        Raises DriverUnavailableError when `events` are no longer valid, as after `enumerate_again`.
        """
        lib = self._lib
        try:
            event = lib.nvmlEventSetWait_v2(events, timeout_ms)
        except lib.NVMLError_Timeout:
            return None
        except lib.NVMLError as error:
            raise DriverUnavailableError(str(error)) from error
        # Compared by handle: a GPU that fell off the bus no longer reports its UUID.
        address = _address(event.device)
        uuids = [uuid for uuid, handle in self._handles.items() if _address(handle) == address]
        is_xid = event.eventType == lib.nvmlEventTypeXidCriticalError
        return Fault(uuids[0], int(event.eventData) if is_xid else None) if uuids else None

    def _read(self, gpu: Gpu, handle: Any) -> Reading:
        lib = self._lib
        memory = self._memory(handle)
        rates = self._ask(lib.nvmlDeviceGetUtilizationRates, handle)
        power_mw = self._ask(lib.nvmlDeviceGetPowerUsage, handle)
        return Reading(
            gpu,
            mem_used_bytes=memory.used if memory else 0,
            mem_free_bytes=memory.free if memory else 0,
            utilisation_pct=rates.gpu if rates else None,
            temperature_c=self._ask(lib.nvmlDeviceGetTemperature, handle, lib.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            processes=self._processes(handle),
        )

    def _discover(self) -> Iterator[Gpu]:
        for index in range(self._lib.nvmlDeviceGetCount()):
            yield from self._gpus_of_card(index)

    def _gpus_of_card(self, index: int) -> list[Gpu]:
        lib = self._lib
        try:
            card = lib.nvmlDeviceGetHandleByIndex(index)
            mig_mode = self._ask(lib.nvmlDeviceGetMigMode, card)
            if mig_mode and mig_mode[0]:
                instances = self._mig_instances(card)
                return [self._describe(index, each, is_mig=True) for each in instances]
            return [self._describe(index, card, is_mig=False)]
        except lib.NVMLError_NoPermission:
            return []  # the driver also counts cards that this container may not use
        except lib.NVMLError:
            # A lost card keeps its index, so that the others keep theirs. Without a handle it reads as lost.
            before = [gpu for gpu in self._gpus if gpu.index == index]
            return before or [Gpu(index, f"lost-{index}", "lost", mem_total_bytes=0, is_mig=False)]

    def _mig_instances(self, card: Any) -> list[Any]:
        ask_place = self._lib.nvmlDeviceGetMigDeviceHandleByIndex
        places = range(self._lib.nvmlDeviceGetMaxMigDeviceCount(card))
        found = [self._ask(ask_place, card, place) for place in places]
        return [instance for instance in found if instance is not None]

    def _describe(self, index: int, handle: Any, *, is_mig: bool) -> Gpu:
        uuid = self._lib.nvmlDeviceGetUUID(handle)
        memory = self._memory(handle)
        self._handles[uuid] = handle
        return Gpu(
            index=index,
            uuid=uuid,
            name=self._ask(self._lib.nvmlDeviceGetName, handle) or "unknown",
            mem_total_bytes=memory.total if memory else 0,
            is_mig=is_mig,
        )

    def _memory(self, handle: Any) -> Any:
        # Only version 2 excludes the driver's own memory from `used`.
        ask = self._lib.nvmlDeviceGetMemoryInfo
        return self._ask(ask, handle, self._lib.nvmlMemory_v2) or self._ask(ask, handle)

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        found = self._ask(self._lib.nvmlDeviceGetComputeRunningProcesses_v3, handle)
        if found is None:
            found = self._ask(self._lib.nvmlDeviceGetComputeRunningProcesses_v2, handle)
        if found is None:
            return None
        return tuple(GpuProcess(each.pid, each.usedGpuMemory) for each in found)

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """Return the answer; None if this driver or GPU does not support the question. A lost GPU raises."""
        try:
            return question(*args)
        except self._lib.NVMLError as error:
            if error.value in self._lost_codes:
                raise
            return None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
