"""Fake NVML without a compiler: C functions written in Python, which the real pynvml calls with ctypes."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

import pynvml

from stoker.testing import state

if TYPE_CHECKING:
    from collections.abc import Callable

_MIG_PLACES = 7
_EVENT_PERIOD_S = 0.02


def load() -> Any:
    """Return pynvml, which from now on answers from the folder $STOKER_FAKE_NVML."""
    pynvml.nvmlLib = _Library()
    pynvml._nvmlGetFunctionPointer_cache.clear()
    return pynvml


class _NvmlStatusError(Exception):
    """An NVML status other than success."""


class _Library:
    """Stands in for the loaded library: one attribute for each C function that the fake driver has."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        box = state.from_env()
        function = _FUNCTIONS.get(name)
        if function is None or (box is not None and name in box.missing()):
            raise AttributeError(name)
        return lambda *args: _status_of(function, args)


def _status_of(function: Callable[..., None], args: tuple[Any, ...]) -> int:
    box = state.from_env()
    if box is None:
        return int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    try:
        function(box, *args)
    except _NvmlStatusError as error:
        return int(error.args[0])
    except FileNotFoundError:
        return int(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    return int(pynvml.NVML_SUCCESS)


def _line(handle: Any) -> int:
    """Return the GPU's line, from 0; handles count from 1, because 0 is C's NULL."""
    return int(ctypes.cast(handle, ctypes.c_void_p).value or 0) - 1


def _set_handle(out: Any, line: int) -> None:
    ctypes.c_void_p.from_address(ctypes.addressof(out._obj)).value = line + 1


def _gpu(box: state.FakeGpus, handle: Any) -> state.FakeGpu:
    gpu = box.gpus()[_line(handle)]
    if "lost" in gpu.flags:
        raise _NvmlStatusError(pynvml.NVML_ERROR_GPU_IS_LOST)
    return gpu


def _init(box: state.FakeGpus, _flags: Any) -> None:
    box.gpus()


def _shutdown(_box: state.FakeGpus) -> None:
    return


def _count(box: state.FakeGpus, out: Any) -> None:
    out._obj.value = sum("mig" not in gpu.flags for gpu in box.gpus())


def _handle_by_index(box: state.FakeGpus, index: Any, out: Any) -> None:
    cards = [line for line, gpu in enumerate(box.gpus()) if "mig" not in gpu.flags]
    if index.value >= len(cards):
        raise _NvmlStatusError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    _set_handle(out, cards[index.value])
    _gpu(box, out._obj)


def _mig_lines(box: state.FakeGpus, card: Any) -> list[int]:
    lines: list[int] = []
    for line, gpu in enumerate(box.gpus()[_line(card) + 1 :], _line(card) + 1):
        if "mig" not in gpu.flags:
            break
        lines.append(line)
    return lines


def _mig_mode(box: state.FakeGpus, card: Any, current: Any, pending: Any) -> None:
    if not _mig_lines(box, card):
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    current._obj.value = pending._obj.value = 1


def _mig_places(_box: state.FakeGpus, _card: Any, out: Any) -> None:
    out._obj.value = _MIG_PLACES


def _mig_handle(box: state.FakeGpus, card: Any, place: Any, out: Any) -> None:
    lines = _mig_lines(box, card)
    if place.value >= len(lines):
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_FOUND)
    _set_handle(out, lines[place.value])


def _uuid(box: state.FakeGpus, handle: Any, text: Any, _length: Any) -> None:
    text.value = _gpu(box, handle).uuid.encode()


def _name(box: state.FakeGpus, handle: Any, text: Any, _length: Any) -> None:
    text.value = _gpu(box, handle).name.encode()


def _memory(box: state.FakeGpus, handle: Any, out: Any) -> None:
    memory = out._obj
    memory.total = _gpu(box, handle).mem_bytes
    memory.used = box.used_bytes(_line(handle))
    memory.free = memory.total - memory.used


def _busy_pct(box: state.FakeGpus, handle: Any) -> int:
    if "mig" in _gpu(box, handle).flags:
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return min(100, 50 * len(box.processes(_line(handle))))


def _utilisation(box: state.FakeGpus, handle: Any, out: Any) -> None:
    out._obj.gpu = out._obj.memory = _busy_pct(box, handle)


def _temperature(box: state.FakeGpus, handle: Any, _sensor: Any, out: Any) -> None:
    out._obj.value = 30 + _busy_pct(box, handle) // 2


def _power(box: state.FakeGpus, handle: Any, out: Any) -> None:
    out._obj.value = 60_000 + 3_000 * _busy_pct(box, handle)


def _processes(box: state.FakeGpus, handle: Any, room: Any, out: Any) -> None:
    gpu = _gpu(box, handle)
    if "nolist" in gpu.flags:
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    found = box.processes(_line(handle))
    offered, room._obj.value = room._obj.value, len(found)
    if len(found) > offered:
        raise _NvmlStatusError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for place, process in enumerate(found):
        unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
        out[place].pid = process.pid
        out[place].usedGpuMemory = unknown if "nomem" in gpu.flags else process.mem_bytes


def _process_utilisation(
    box: state.FakeGpus, handle: Any, out: Any, count: Any, _since: Any
) -> None:
    if "mig" in _gpu(box, handle).flags:
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    found = box.processes(_line(handle))
    offered, count._obj.value = count._obj.value, len(found)
    if not found:
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_FOUND)
    if len(found) > offered:
        raise _NvmlStatusError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for place, process in enumerate(found):
        out[place].pid, out[place].smUtil = process.pid, box.sm_pct(process)


def _link(box: state.FakeGpus, one: Any, other: Any) -> tuple[int, int, int]:
    """Return the level of the common ancestor of two cards, and their statuses of peer to peer."""
    if "mig" in _gpu(box, one).flags or "mig" in _gpu(box, other).flags:
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    cards = [line for line, gpu in enumerate(box.gpus()) if "mig" not in gpu.flags]
    pair = (cards.index(_line(one)), cards.index(_line(other)))
    return box.links().get(pair, state.USUAL_LINK)


def _common_ancestor(box: state.FakeGpus, one: Any, other: Any, out: Any) -> None:
    out._obj.value = _link(box, one, other)[0]


def _p2p_status(box: state.FakeGpus, one: Any, other: Any, kind: Any, out: Any) -> None:
    _level, pcie, nvlink = _link(box, one, other)
    out._obj.value = nvlink if kind == pynvml.NVML_P2P_CAPS_INDEX_NVLINK else pcie


# The number of faults that each event set has delivered; its handle is the index.
_delivered: list[int] = []


def _create_events(box: state.FakeGpus, out: Any) -> None:
    _set_handle(out, len(_delivered))
    _delivered.append(len(box.faults()))


def _register_events(box: state.FakeGpus, handle: Any, _kinds: Any, _events: Any) -> None:
    if "mig" in _gpu(box, handle).flags:
        raise _NvmlStatusError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _wait_for_event(box: state.FakeGpus, events: Any, out: Any, timeout_ms: Any) -> None:
    deadline = time.monotonic() + timeout_ms.value / 1000
    key = _line(events)
    while len(faults := box.faults()) <= _delivered[key]:
        if time.monotonic() >= deadline:
            raise _NvmlStatusError(pynvml.NVML_ERROR_TIMEOUT)
        time.sleep(_EVENT_PERIOD_S)
    line, xid = faults[_delivered[key]]
    _delivered[key] += 1
    event = out._obj
    ctypes.c_void_p.from_address(ctypes.addressof(event)).value = line + 1
    event.eventType = (
        pynvml.nvmlEventTypeXidCriticalError if xid else pynvml.nvmlEventTypeDoubleBitEccError
    )
    event.eventData = xid


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": _shutdown,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex_v2": _handle_by_index,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": _mig_places,
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    "nvmlDeviceGetUUID": _uuid,
    "nvmlDeviceGetName": _name,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMemoryInfo_v2": _memory,
    "nvmlDeviceGetUtilizationRates": _utilisation,
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetTopologyCommonAncestor": _common_ancestor,
    "nvmlDeviceGetP2PStatus": _p2p_status,
    "nvmlDeviceGetPowerUsage": _power,
    "nvmlDeviceGetProcessUtilization": _process_utilisation,
    "nvmlEventSetCreate": _create_events,
    "nvmlDeviceRegisterEvents": _register_events,
    "nvmlEventSetWait_v2": _wait_for_event,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetComputeRunningProcesses_v2": _processes,
}
