"""CPUs and RAM that this process and its children may use: as the kernel, affinity and cgroups limit them.

Standard library only.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from typing import NamedTuple

_MEMINFO = "/proc/meminfo"
_OWN_CGROUPS = "/proc/self/cgroup"
_MOUNTS = "/proc/self/mountinfo"
_V1_MEMORY = ("memory.limit_in_bytes", "memory.usage_in_bytes")


class Memory(NamedTuple):
    """RAM in bytes: all of it, and what is available without swapping."""

    total_bytes: int
    available_bytes: int


class Hierarchy(NamedTuple):
    """A mounted cgroup hierarchy: its folder, and the cgroup of this process in it."""

    folder: str
    path: str
    is_v2: bool

    def folders(self) -> list[str]:
        """Return the folders of this process's cgroup and of those above it."""
        found, path = [], self.path
        while path not in ("", "/"):
            found.append(self.folder + path)
            path = os.path.dirname(path)
        return [*found, self.folder]


def count_cpus() -> int:
    """Return how many CPUs this process may use: those of its affinity, and of the cgroups' quotas."""
    count = float(len(os.sched_getaffinity(0)))
    for hierarchy in hierarchies("cpu"):
        for folder in hierarchy.folders():
            count = min(count, _quota(folder, is_v2=hierarchy.is_v2))
    return max(1, math.floor(count))


def read_memory() -> Memory:
    """Return the RAM of this machine, as far as the cgroups of this process allow its use."""
    memory = _read_meminfo()
    for hierarchy in hierarchies("memory"):
        for folder in hierarchy.folders():
            memory = _limited(memory, folder, is_v2=hierarchy.is_v2)
    return memory


@functools.lru_cache
def hierarchies(controller: str) -> tuple[Hierarchy, ...]:
    """Return the mounted cgroup hierarchies that can limit a resource, of version 1 and 2."""
    paths = _own_paths()
    found = []
    for root, folder, kind, options in _cgroup_mounts():
        is_v2 = kind == "cgroup2"
        path = paths.get("" if is_v2 else controller)
        if path is None or not (is_v2 or controller in options):
            continue
        # Inside a container the mounted part of the hierarchy begins at `root`.
        inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
        found.append(Hierarchy(folder, inside if inside.startswith("/") else "/", is_v2))
    return tuple(found)


def _own_paths() -> dict[str, str]:
    """Return the cgroups of this process by controller; that of version 2 has an empty name."""
    paths = {}
    for line in _lines(_OWN_CGROUPS):
        _number, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _cgroup_mounts() -> list[tuple[str, str, str, list[str]]]:
    """Return root, folder, type and options of each mounted cgroup hierarchy."""
    found = []
    for line in _lines(_MOUNTS):
        mount, _, source = line.partition(" - ")
        kind, _, rest = source.partition(" ")
        if kind in ("cgroup", "cgroup2"):
            words = mount.split(" ")
            found.append((words[3], words[4], kind, rest.rpartition(" ")[2].split(",")))
    return found


def _quota(folder: str, *, is_v2: bool) -> float:
    """Return the CPUs that the quota of one cgroup allows; infinity without a quota."""
    if is_v2:
        words = _first_line(f"{folder}/cpu.max").split()
    else:
        quota = _first_line(f"{folder}/cpu.cfs_quota_us")
        words = [quota, _first_line(f"{folder}/cpu.cfs_period_us")]
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return math.inf


def _limited(memory: Memory, folder: str, *, is_v2: bool) -> Memory:
    """Return the memory as one cgroup limits it. File contents that the kernel keeps there are available."""
    names = ("memory.max", "memory.current") if is_v2 else _V1_MEMORY
    limit, used = (_first_line(f"{folder}/{name}") for name in names)
    if not (limit.isdecimal() and used.isdecimal()) or int(limit) >= memory.total_bytes:
        return memory
    cached = _cached_bytes(folder, "inactive_file" if is_v2 else "total_inactive_file")
    available = max(0, int(limit) - int(used) + cached)
    return Memory(int(limit), min(memory.available_bytes, available))


def _cached_bytes(folder: str, name: str) -> int:
    for line in _lines(f"{folder}/memory.stat"):
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _read_meminfo() -> Memory:
    found = {}
    for line in _lines(_MEMINFO):
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(rest.split()[0]) * 1024
    return Memory(found.get("MemTotal", 0), found.get("MemAvailable", 0))


def _first_line(path: str) -> str:
    return next(iter(_lines(path)), "")


def _lines(path: str) -> list[str]:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()
    return []
