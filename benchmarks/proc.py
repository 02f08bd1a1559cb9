"""Memory, CPU time and wake-ups of long-lived processes, read from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Watch:
    """Remembers the peak memory and CPU time of a process and of the helpers it started.

    A helper is a descendant that runs the same interpreter: jobs are other programs.
    """

    main_peak_bytes: int = 0
    peaks_bytes: dict[int, int] = field(default_factory=dict)
    cpus_s: dict[int, float] = field(default_factory=dict)
    _exe: str = ""

    def __call__(self, pid: int) -> None:
        """Look once."""
        self._exe = self._exe or _exe(pid)
        self.main_peak_bytes = max(self.main_peak_bytes, peak_bytes(pid))
        self._note_cpu(pid)
        helpers = [child for child in children_of(pid) + children_of(os.getpid()) if child != pid]
        for helper in helpers:
            if self._exe and _exe(helper) == self._exe:
                self.peaks_bytes[helper] = max(self.peaks_bytes.get(helper, 0), peak_bytes(helper))
                self._note_cpu(helper)

    @property
    def helper_peak_bytes(self) -> int:
        """The largest helper's peak."""
        return max(self.peaks_bytes.values(), default=0)

    @property
    def cpu_s(self) -> float:
        """CPU time of the process and its helpers, their jobs' left out."""
        return sum(self.cpus_s.values())

    def _note_cpu(self, pid: int) -> None:
        self.cpus_s[pid] = max(self.cpus_s.get(pid, 0.0), cpu_s(pid))


def children_of(pid: int) -> list[int]:
    """Return the living children of a process, those not yet reaped among them."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used itself; 0 once it is gone."""
    user, system, *_ = _times(pid)
    return user + system


def tree_cpu_s(pid: int) -> float:
    """Return the CPU time of a process, of what it has reaped, and of all that lives below it."""
    return sum(_times(pid)) + sum(tree_cpu_s(child) for child in children_of(pid))


def exact_cpu_s(pid: int) -> float:
    """Return a process's own CPU time to the nanosecond, where ticks of 10 ms are too coarse."""
    ran_ns = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            ran_ns += int(file.read().split()[0])
    return ran_ns / 1e9


def wakeups(pid: int) -> int:
    """Return how often the threads of a process have gone to sleep, and so been woken."""
    return sum(
        _status(f"/proc/{pid}/task/{thread}", "voluntary_ctxt_switches")
        for thread in os.listdir(f"/proc/{pid}/task")
    )


def peak_bytes(pid: int) -> int:
    """Return the most memory that was resident at once; 0 once the process is gone."""
    return _status(f"/proc/{pid}", "VmHWM") * 1024


def rss_bytes(pid: int) -> int:
    """Return the memory that is resident now, shared pages included."""
    return _status(f"/proc/{pid}", "VmRSS") * 1024


def pss_bytes(pid: int) -> int:
    """Return the memory that is resident now, each shared page divided by those who share it."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) * 1024


def _exe(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _status(folder: str, name: str) -> int:
    try:
        with open(f"{folder}/status", encoding="utf-8") as status:
            for line in status:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _times(pid: int) -> tuple[float, float, float, float]:
    """Return user and system time, of the process itself and of the children it has reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The name in parentheses may hold blanks, so fields count from its end.
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return (0.0, 0.0, 0.0, 0.0)
    user, system, reaped_user, reaped_system = (
        int(field) / _TICKS_PER_S for field in fields[11:15]
    )
    return user, system, reaped_user, reaped_system
