"""Cost of an idle daemon: memory, CPU time, wake-ups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.measure import spread
from benchmarks.proc import exact_cpu_s, pss_bytes, rss_bytes, wakeups
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena

JOBS = 1000
REST_S = 5.0
WINDOWS = 3
WINDOW_S = 20.0
QUICK_WINDOW_S = 5.0
_PARTS = ("daemon", "supervisor")


def run(arena: Arena) -> Result:
    """Run some jobs, wait until the daemon is idle, then count its activity without requests."""
    window_s = QUICK_WINDOW_S if arena.quick else WINDOW_S
    with open_queue(arena) as queue:
        queue.add(arena.lines("idle", "true", JOBS))
        queue.settle()
        pids = queue.pids
        queue.line.close()
        time.sleep(REST_S)
        cpus_s: list[list[float]] = []
        wakes: list[list[float]] = []
        for _ in range(WINDOWS):
            before = [(exact_cpu_s(pid), wakeups(pid)) for pid in pids]
            time.sleep(window_s)
            after = [(exact_cpu_s(pid), wakeups(pid)) for pid in pids]
            pairs = list(zip(before, after, strict=True))
            cpus_s.append([(then[0] - now[0]) / window_s for now, then in pairs])
            wakes.append([(then[1] - now[1]) / window_s for now, then in pairs])
        rss = [rss_bytes(pid) / 1e6 for pid in pids]
        pss = [pss_bytes(pid) / 1e6 for pid in pids]
    rows = [
        [
            part,
            f"{rss[index]:.1f}",
            f"{pss[index]:.1f}",
            f"{spread([window[index] for window in cpus_s]).median:.4%}",
            f"{spread([window[index] for window in wakes]).median:.2f}",
        ]
        for index, part in enumerate(_PARTS)
    ]
    return Result(
        name="idle",
        what=f"After {JOBS} jobs and {REST_S:.0f} s of rest, {WINDOWS} windows of {window_s:.0f} s.",
        details=Table(("process", "RSS MB", "PSS MB", "CPU", "wake-ups/s"), rows),
        figures=[
            Figure(
                name="memory of daemon and supervisor together",
                spread=spread([sum(rss)]),
                target=Target(Bound.AT_MOST, 60.0),
                unit="MB",
                digits=1,
            ),
            Figure(
                name="CPU of daemon and supervisor together",
                spread=spread([sum(window) for window in cpus_s]).scaled(100),
                target=Target(Bound.LESS_THAN, 0.1),
                unit="%",
                digits=4,
            ),
        ],
        notes=[
            "Memory is RSS, which counts pages that both share twice; PSS divides them.",
            "CPU is the scheduler's own count (/proc/PID/task/*/schedstat), in parts of one core.",
        ],
    )
