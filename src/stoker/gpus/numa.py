"""The CPUs that are near a GPU: those of its NUMA node."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.gpus.pci import find_root, read_text

if TYPE_CHECKING:
    from stoker.gpus.driver import GpuDriver

_NODES = "sys/devices/system/node"


class NearCpus:
    """Finds the CPUs near GPUs. There are none on a machine with one NUMA node: all are equally near."""

    def __init__(self, driver: GpuDriver) -> None:
        self._driver = driver
        self._lists = _read_nodes(find_root())

    def of(self, keys: Sequence[str]) -> str:
        """Return the CPUs near all these GPUs, given by lease keys, as a list: 0-15,32-47. "" if unknown."""
        if len(self._lists) < 2:
            return ""
        gpus = {gpu.uuid: gpu for gpu in self._driver.gpus()}
        nodes = {self._driver.numa_node(gpus[key]) if key in gpus else None for key in keys}
        lists = [self._lists.get(node, "") for node in nodes]
        return ",".join(sorted(lists)) if all(lists) else ""


def _read_nodes(root: str) -> dict[int | None, str]:
    """Return the CPUs of each NUMA node that has some."""
    folder = os.path.join(root, _NODES)
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found: dict[int | None, str] = {}
    for name in names:
        number = re.fullmatch(r"node([0-9]+)", name)
        cpus = read_text(os.path.join(folder, name, "cpulist")) if number else None
        if number and cpus and re.fullmatch(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*", cpus):
            found[int(number[1])] = cpus
    return found
