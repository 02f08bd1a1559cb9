"""Cgroups of attempts, where this user may make some: the kernel itself then limits their RAM and CPUs.

That is so in a cgroup of version 2 that was delegated to the user, with the memory controller: by systemd
(`Delegate=`), or by the owner of a container. Processes of others are never moved, and a cgroup that systemd
manages is left alone unless it was delegated. Everything else falls back to the memory watch.

    BASE/                    has the controllers, and no process of its own
    BASE/LEAF                the supervisor, the daemon, and attempts without limits
    BASE/job-NAME:KEY        an attempt with limits
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from stoker.supervisor import process_tree

_LEAF = "stoker"
_OWN = "/proc/self/cgroup"
_MOUNTS = "/proc/self/mountinfo"
_MARKS = ("user.delegate", "trusted.delegate")  # set by systemd
_UNITS = (".service", ".scope", ".slice")
_PERIOD_US = 100_000
_MOST_MOVES = 1000


class JobCgroups:
    """The cgroups of a supervisor's attempts, below a cgroup that it may divide."""

    def __init__(self, base: str, leaf: str, name: str, *, has_cpu: bool) -> None:
        self._base = base
        self._leaf = leaf
        self._prefix = f"job-{name.replace('/', '_')}:"
        self._has_cpu = has_cpu
        # To be removed once their last process is gone: also those of an earlier supervisor.
        self._emptied = {
            os.path.join(base, each) for each in os.listdir(base) if each.startswith(self._prefix)
        }

    @contextlib.contextmanager
    def entered(self, key: str, mem_bytes: int, cpus: int) -> Iterator[None]:
        """Make the cgroup of an attempt. Processes that this one starts meanwhile begin in it.

        Raises OSError if the cgroup cannot be made.
        """
        folder = self._make(key, mem_bytes, cpus)
        _write(folder, "cgroup.procs", "0")
        try:
            yield
        finally:
            # What was started has started, whether or not this succeeds.
            with contextlib.suppress(OSError):
                _write(self._leaf, "cgroup.procs", "0")

    def place(self, key: str, mem_bytes: int, cpus: int, pid: int) -> None:
        """Make the cgroup of an attempt, and move a process into it; may raise OSError."""
        _write(self._make(key, mem_bytes, cpus), "cgroup.procs", str(pid))

    def set_mem(self, key: str, mem_bytes: int) -> None:
        """Change the limit of an attempt's RAM; 0 is no limit."""
        with contextlib.suppress(OSError):
            _write(self.folder(key), "memory.max", str(mem_bytes) if mem_bytes else "max")

    def take_over(self, key: str, mem_bytes: int) -> bool:
        """Use the cgroup that an earlier supervisor has made for an attempt; False if there is none."""
        self._emptied.discard(self.folder(key))
        self.set_mem(key, mem_bytes)
        return os.path.isdir(self.folder(key))

    def conclude(self, key: str) -> int:
        """Remove the cgroup of an ended attempt. Returns its RAM if the kernel killed it for that."""
        folder = self.folder(key)
        killed = _figures(folder, "memory.events").get("oom_kill", 0)
        used_bytes = 0
        if killed:
            used_bytes = _number(folder, "memory.peak") or _number(folder, "memory.max")
        self._emptied.add(folder)
        self.tidy()
        return used_bytes

    def tidy(self) -> None:
        """Remove cgroups of ended attempts in which no process is left."""
        for folder in list(self._emptied):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            if not os.path.isdir(folder):
                self._emptied.discard(folder)

    def folder(self, key: str) -> str:
        """Return the folder of an attempt's cgroup."""
        return os.path.join(self._base, self._prefix + key)

    def _make(self, key: str, mem_bytes: int, cpus: int) -> str:
        folder = self.folder(key)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        self._emptied.discard(folder)
        try:
            if mem_bytes:
                _write(folder, "memory.max", str(mem_bytes))
                # Without this the attempt would become slow instead of ending.
                with contextlib.suppress(OSError):
                    _write(folder, "memory.swap.max", "0")
                _write(folder, "memory.oom.group", "1")
            if cpus and self._has_cpu:
                _write(folder, "cpu.max", f"{cpus * _PERIOD_US} {_PERIOD_US}")
        except OSError:
            self._emptied.add(folder)
            self.tidy()
            raise
        return folder


def find_cgroups(name: str, is_ours: Callable[[int], bool]) -> JobCgroups | None:
    """Find or prepare a cgroup that this process may divide; None if there is none.

    `is_ours` tells whether a process belongs to this Stoker: only such processes may be moved.
    """
    try:
        return _find(name, is_ours)
    except OSError:
        return None


def _find(name: str, is_ours: Callable[[int], bool]) -> JobCgroups | None:
    own = _own_folder()
    if own is None:
        return None
    parent = os.path.dirname(own)
    if _is_ours_to_divide(parent) and not _pids(parent):
        return _divide(parent, own, name)
    # A service that was divided could not be started again while attempts run in it.
    if own.endswith(".service") or not _is_ours_to_divide(own):
        return None
    if not all(map(is_ours, _pids(own))):
        return None
    leaf = os.path.join(own, _LEAF)
    with contextlib.suppress(FileExistsError):
        os.mkdir(leaf)
    for _ in range(_MOST_MOVES):
        pids = _pids(own)
        if not pids:
            return _divide(own, leaf, name)
        _write(leaf, "cgroup.procs", str(pids[0]))
    return None


def _divide(base: str, leaf: str, name: str) -> JobCgroups | None:
    """Let the cgroups below this one have limits."""
    has_cpu = True
    for controller in ("memory", "cpu"):
        try:
            _write(base, "cgroup.subtree_control", f"+{controller}")
        except OSError:
            if controller == "memory":
                return None
            has_cpu = False
    return JobCgroups(base, leaf, name, has_cpu=has_cpu)


def _own_folder() -> str | None:
    """Return the folder of this process's cgroup of version 2; None if it is not visible."""
    path = next((line[3:] for line in _lines(_OWN) if line.startswith("0::/")), None)
    for line in _lines(_MOUNTS):
        mount, _, source = line.partition(" - ")
        words = mount.split(" ")
        if path is not None and source.startswith("cgroup2 ") and words[3] == "/":
            folder = words[4] + path.rstrip("/")
            return folder if os.path.isdir(folder) else None
    return None


def _is_ours_to_divide(folder: str) -> bool:
    """Whether a cgroup belongs to this user, has the memory controller, and no manager but us."""
    if "memory" not in " ".join(_lines(f"{folder}/cgroup.controllers")).split():
        return False
    if os.stat(folder).st_uid != os.getuid():
        return False
    files = [folder, f"{folder}/cgroup.procs", f"{folder}/cgroup.subtree_control"]
    if not all(os.access(file, os.W_OK) for file in files):
        return False
    return _is_delegated(folder) or not any(unit in folder for unit in _UNITS)


def _is_delegated(folder: str) -> bool:
    for mark in _MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, mark) == b"1":
                return True
    return False


def _pids(folder: str) -> list[int]:
    """Return the processes in a cgroup itself."""
    return [int(line) for line in _lines(f"{folder}/cgroup.procs") if line.isdecimal()]


def is_own_process(pid: int, prefix: str) -> bool:
    """Whether a process of this user is a part of Stoker, or carries a cookie with this prefix."""
    if not process_tree.is_own(pid):
        return False
    marks = process_tree.read_marks(pid)
    return marks.is_part or any(cookie.startswith(prefix) for cookie in marks.cookies)


def _figures(folder: str, name: str) -> dict[str, int]:
    found = {}
    for line in _lines(f"{folder}/{name}"):
        key, _, value = line.partition(" ")
        if value.isdecimal():
            found[key] = int(value)
    return found


def _number(folder: str, name: str) -> int:
    text = next(iter(_lines(f"{folder}/{name}")), "")
    return int(text) if text.isdecimal() else 0


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []


def _write(folder: str, name: str, text: str) -> None:
    fd = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
