"""AMD GPUs that do not exist: the files of a KFD and of PCI devices, in a folder."""

from __future__ import annotations

import os
import shutil

GIB = 1 << 30
_NODES = "sys/class/kfd/kfd/topology/nodes"
_PROC = "sys/class/kfd/kfd/proc"
_DEVICES = "sys/bus/pci/devices"


class AmdTree:
    """A tree of files as AMD's kernel driver shows them. Node 0 is the processor, as on a real machine."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.fspath(folder)

    def create(self, count: int, mem_bytes: int = 8 * GIB, name: str = "Fake MI250") -> AmdTree:
        """Make a machine with idle GPUs."""
        self._write(f"{_NODES}/0/gpu_id", "0")
        self._write(f"{_NODES}/0/properties", "cpu_cores_count 64\nsimd_count 0")
        os.makedirs(self._path(_PROC), exist_ok=True)
        for gpu in range(count):
            self._add(gpu, mem_bytes, name)
        return self

    def env(self) -> dict[str, str]:
        """The variables with which Stoker sees this machine."""
        return {"STOKER_SYS_ROOT": self.folder}

    def key(self, gpu: int) -> str:
        """The lease key of a GPU."""
        return f"AMD-{_address(gpu)}"

    def use(self, pid: int, gpu: int, count: int) -> None:
        """Let a process hold memory of a GPU."""
        for each in range(self._count()):
            self._write(f"{_PROC}/{pid}/vram_{_gpu_id(each)}", str(count if each == gpu else 0))
        self._set_used(gpu, count)

    def release(self, pid: int) -> None:
        """Let a process end."""
        shutil.rmtree(self._path(_PROC, str(pid)))
        for gpu in range(self._count()):
            self._set_used(gpu, 0)

    def set_busy(self, gpu: int, percent: int) -> None:
        """Set the load of a GPU."""
        self._write(f"{_DEVICES}/{_address(gpu)}/gpu_busy_percent", str(percent))

    def lose(self, gpu: int) -> None:
        """Let the driver lose a GPU: its files cannot be read."""
        os.unlink(self._path(_DEVICES, _address(gpu), "mem_info_vram_used"))

    def find(self, gpu: int) -> None:
        """Let a lost GPU come back."""
        self._set_used(gpu, 0)

    def plug(self) -> None:
        """Add a GPU."""
        self._add(self._count(), 8 * GIB, "Fake MI250")

    def join(self, one: int, other: int) -> None:
        """Join two GPUs by XGMI."""
        for here, there in ((one, other), (other, one)):
            folder = f"{_NODES}/{here + 1}/io_links/{there}"
            self._write(
                f"{folder}/properties", f"type 11\nnode_from {here + 1}\nnode_to {there + 1}"
            )

    def divide(self, *cpus: str) -> None:
        """Give the machine NUMA nodes with these lists of CPUs. Two GPUs are at each."""
        for node, text in enumerate(cpus):
            self._write(f"sys/devices/system/node/node{node}/cpulist", text)

    def _add(self, gpu: int, mem_bytes: int, name: str) -> None:
        node, device = f"{_NODES}/{gpu + 1}", f"{_DEVICES}/{_address(gpu)}"
        self._write(f"{node}/gpu_id", str(_gpu_id(gpu)))
        self._write(f"{node}/name", "gfx90a")
        location = (gpu + 3) << 8
        self._write(f"{node}/properties", f"simd_count 440\ndomain 0\nlocation_id {location}")
        self._write(f"{node}/io_links/0/properties", f"type 2\nnode_from {gpu + 1}\nnode_to 0")
        files = {
            "mem_info_vram_total": mem_bytes,
            "mem_info_vram_used": 0,
            "gpu_busy_percent": 0,
            "product_name": name,
            "unique_id": f"{gpu:016x}",
            "numa_node": gpu // 2,
            "hwmon/hwmon4/temp1_input": 41000,
            "hwmon/hwmon4/power1_average": 95000000,
        }
        for path, value in files.items():
            self._write(f"{device}/{path}", str(value))

    def _set_used(self, gpu: int, count: int) -> None:
        self._write(f"{_DEVICES}/{_address(gpu)}/mem_info_vram_used", str(count))

    def _count(self) -> int:
        return len(os.listdir(self._path(_DEVICES)))

    def _write(self, path: str, text: str) -> None:
        whole = self._path(path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(f"{whole}.new", "w", encoding="ascii") as file:
            file.write(f"{text}\n")
        os.replace(f"{whole}.new", whole)

    def _path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)


def _address(gpu: int) -> str:
    return f"0000:{gpu + 3:02x}:00.0"


def _gpu_id(gpu: int) -> int:
    return 50000 + gpu
