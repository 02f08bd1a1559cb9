"""AMD's GPUs, read from the files of its kernel driver. Experimental: not yet tried on a card.

The KFD, the part of the driver that computes, lists the GPUs in the order in which ROCm counts them. Memory,
load and temperature are files of the PCI device. No library is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from stoker.core.gpu_links import Link
from stoker.core.slot import AMD
from stoker.gpus.driver import DriverUnavailableError, Fault, Gpu, GpuProcess, Reading
from stoker.gpus.pci import DEVICES, find_root, read_numa_node, read_number, read_text

_KFD = "sys/class/kfd/kfd"
_NODES = f"{_KFD}/topology/nodes"
_XGMI = 11  # the type of an io_link between GPUs of one hive


class _Node(NamedTuple):
    """A GPU as the KFD lists it: the number of its node, the driver's id, and its PCI address."""

    number: int
    gpu_id: int
    address: str


class Amd:
    """Reader of AMD's files. Its GPUs are those of the last enumeration; reading them never raises.

    ROCR_VISIBLE_DEVICES of this process leaves out GPUs, as for every ROCm program.
    """

    def __init__(self, root: str | None = None) -> None:
        """Find the GPUs; raise DriverUnavailableError if there are none."""
        self._root = root or find_root()
        self._visible = os.environ.get("ROCR_VISIBLE_DEVICES")
        self._nodes: dict[str, _Node] = {}
        self._gpus: tuple[Gpu, ...] = ()
        self._signs: list[str] = []
        self._enumerate()
        if not self._gpus:
            has_kfd = os.path.isdir(self._path(_KFD))
            raise DriverUnavailableError("AMD's KFD lists no GPU" if has_kfd else "")

    def close(self) -> None:
        """Forget the GPUs; later readings say that every GPU is lost."""
        self._nodes.clear()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs in ROCm's order."""
        return self._gpus

    def may_have_changed(self) -> bool:
        """Whether the KFD lists other nodes than at the last enumeration."""
        return self._list_nodes() != self._signs

    def enumerate_again(self) -> bool:
        """Enumerate the GPUs again. Returns whether they changed."""
        before = self._gpus
        self._enumerate()
        return self._gpus != before

    def read(self, gpu: Gpu) -> Reading:
        """Read a GPU now."""
        reading = self.update_usage(Reading(gpu))
        node = self._nodes.get(gpu.uuid)
        if reading.lost or node is None:
            return reading
        temperature = self._read_sensor(node, "temp1_input")
        power = self._read_sensor(node, "power1_average") or self._read_sensor(node, "power1_input")
        return msgspec.structs.replace(
            reading,
            temperature_c=None if temperature is None else temperature // 1000,
            power_w=None if power is None else power / 1e6,
            processes=self._processes(node),
        )

    def update_usage(self, before: Reading) -> Reading:
        """Update only the memory and the utilisation of an earlier reading."""
        gpu = before.gpu
        used = self.used_bytes(gpu)
        if used is None:
            return Reading(gpu, lost=True)
        busy = self._read_of_device(self._nodes[gpu.uuid], "gpu_busy_percent")
        return msgspec.structs.replace(
            before,
            mem_used_bytes=used,
            mem_free_bytes=max(0, gpu.mem_total_bytes - used),
            utilisation_pct=busy,
            lost=False,
        )

    def used_bytes(self, gpu: Gpu) -> int | None:
        """Return the memory in use on a GPU; None if it is lost."""
        node = self._nodes.get(gpu.uuid)
        return None if node is None else self._read_of_device(node, "mem_info_vram_used")

    def link(self, one: Gpu, other: Gpu) -> Link | None:
        """Return how two cards are joined: by XGMI, through one NUMA node, or otherwise."""
        first, second = self._nodes.get(one.uuid), self._nodes.get(other.uuid)
        if first is None or second is None:
            return None
        if self._is_in_hive(first, second):
            return Link.NVLINK
        nodes = [read_numa_node(each.address, self._root) for each in (first, second)]
        return Link.NODE if nodes[0] is not None and nodes[0] == nodes[1] else Link.OTHER

    def sm_by_pid(self, _gpu: Gpu, _since_us: int) -> dict[int, int] | None:
        """Return None: the driver does not divide the load between processes."""
        return None

    def listen_for_faults(self) -> Any:
        """Return None: faults are found only by the logs of jobs."""
        return None

    def next_fault(self, _events: Any, _timeout_ms: int) -> Fault | None:
        """Return None: there are no events."""
        return None

    def numa_node(self, gpu: Gpu) -> int | None:
        """Return the NUMA node of a card; None if it is unknown."""
        node = self._nodes.get(gpu.uuid)
        return None if node is None else read_numa_node(node.address, self._root)

    def _enumerate(self) -> None:
        self._signs = self._list_nodes()
        self._nodes = {}
        found: list[Gpu] = []
        for index, node in enumerate(self._find_nodes()):
            copies = sum(each.address == node.address for each in self._nodes.values())
            key = f"{AMD}{node.address}" + (f"-{copies}" if copies else "")  # a part of a card
            if self._visible is not None and not self._is_visible(index, node):
                continue
            self._nodes[key] = node
            found.append(self._describe(index, key, node))
        self._gpus = tuple(found)

    def _describe(self, index: int, key: str, node: _Node) -> Gpu:
        name = self._text_of_device(node, "product_name") or self._name_of(node)
        total = self._read_of_device(node, "mem_info_vram_total")
        return Gpu(index, key, name, mem_total_bytes=total or 0, is_mig=False)

    def _is_visible(self, index: int, node: _Node) -> bool:
        words = [word.strip() for word in (self._visible or "").split(",")]
        uuid = f"GPU-{self._text_of_device(node, 'unique_id')}"
        return str(index) in words or uuid in words

    def _find_nodes(self) -> Iterator[_Node]:
        for number in sorted(int(name) for name in self._list_nodes() if name.isdecimal()):
            gpu_id = read_number(self._path(_NODES, str(number), "gpu_id"))
            place = self._properties(self._path(_NODES, str(number), "properties"))
            if gpu_id and place:  # 0 is a processor; no properties: this container may not use it
                location, domain = place.get("location_id", 0), place.get("domain", 0)
                bus, device, function = location >> 8, location >> 3 & 31, location & 7
                address = f"{domain:04x}:{bus & 255:02x}:{device:02x}.{function:x}"
                yield _Node(number, gpu_id, address)

    def _is_in_hive(self, one: _Node, other: _Node) -> bool:
        folder = self._path(_NODES, str(one.number), "io_links")
        links = [
            self._properties(os.path.join(folder, name, "properties")) for name in _list(folder)
        ]
        return any(
            link.get("type") == _XGMI and link.get("node_to") == other.number for link in links
        )

    def _processes(self, node: _Node) -> tuple[GpuProcess, ...] | None:
        folder = self._path(_KFD, "proc")
        if not os.path.isdir(folder):
            return None
        found = []
        for name in _list(folder):
            used = read_number(os.path.join(folder, name, f"vram_{node.gpu_id}"))
            if name.isdecimal() and used:  # every process of the KFD has a file for every GPU
                found.append(GpuProcess(int(name), used))
        return tuple(found)

    def _name_of(self, node: _Node) -> str:
        return read_text(self._path(_NODES, str(node.number), "name")) or "unknown"

    def _read_sensor(self, node: _Node, name: str) -> int | None:
        folder = self._path(DEVICES, node.address, "hwmon")
        values = [read_number(os.path.join(folder, each, name)) for each in _list(folder)]
        return next((value for value in values if value is not None), None)

    def _read_of_device(self, node: _Node, name: str) -> int | None:
        return read_number(self._path(DEVICES, node.address, name))

    def _text_of_device(self, node: _Node, name: str) -> str | None:
        return read_text(self._path(DEVICES, node.address, name))

    def _properties(self, path: str) -> dict[str, int]:
        pairs = (line.split() for line in (read_text(path) or "").splitlines())
        return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}

    def _list_nodes(self) -> list[str]:
        return _list(self._path(_NODES))

    def _path(self, *names: str) -> str:
        return os.path.join(self._root, *names)


def _list(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
