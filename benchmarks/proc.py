"""Memory and CPU time of a contestant's long-lived processes, read from /proc."""

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
        self.main_peak_bytes = max(self.main_peak_bytes, _peak_bytes(pid))
        self._note_cpu(pid)
        helpers = [child for child in _children(pid) + _children(os.getpid()) if child != pid]
        for helper in helpers:
            if self._exe and _exe(helper) == self._exe:
                self.peaks_bytes[helper] = max(self.peaks_bytes.get(helper, 0), _peak_bytes(helper))
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
        self.cpus_s[pid] = max(self.cpus_s.get(pid, 0.0), _own_cpu_s(pid))


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def _exe(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _peak_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def _own_cpu_s(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            # The name in parentheses may hold blanks, so fields count from its end.
            fields = stat.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
