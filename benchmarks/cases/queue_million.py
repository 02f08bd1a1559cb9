"""A million jobs in the queue: cost of each job, and latency of the daemon."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.arena import say
from benchmarks.measure import ratios, spread
from benchmarks.proc import exact_cpu_s, peak_bytes, rss_bytes
from benchmarks.queues.stoker import open_queue
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.arena import Arena
    from benchmarks.queues.stoker import Queue

LINE = "true"
FEW = 1000
MANY = 1_000_000
QUICK_MANY = 100_000
STARTS = 5000
QUICK_STARTS = 1000
PAGES = 30
RESTARTS = 5
_GLANCE_S = 0.05


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What it took to start some jobs and to see them end."""

    jobs: int
    wall_s: float
    daemon_cpu_s: float
    supervisor_cpu_s: float

    @property
    def cpu_us_per_job(self) -> float:
        """CPU time of daemon and supervisor, the jobs' own left out."""
        return (self.daemon_cpu_s + self.supervisor_cpu_s) / self.jobs * 1e6


@dataclass(frozen=True, slots=True)
class Answers:
    """How the daemon does with the long queue."""

    pages_ms: Sequence[float]
    restarts_s: Sequence[float]
    rss_bytes: int
    peak_bytes: int


def run(arena: Arena) -> Result:
    """Let jobs through in turns: where few wait, and where very many do."""
    many = QUICK_MANY if arena.quick else MANY
    starts = QUICK_STARTS if arena.quick else STARTS
    with contextlib.ExitStack() as stack:
        queues = {depth: stack.enter_context(open_queue(arena)) for depth in (FEW, many)}
        for depth, queue in queues.items():
            say(f"  {depth} jobs are added")
            queue.close_admission()
            queue.add(arena.lines("queue", LINE, depth))
        more = arena.lines("queue", LINE, starts)
        dispatches: dict[int, list[Dispatch]] = {depth: [] for depth in queues}
        for queue in queues.values():
            let_through(queue, more, starts)
        for round_no in range(arena.rounds):
            arena.progress(round_no)
            for depth, queue in sorted(queues.items(), reverse=bool(round_no % 2)):
                dispatches[depth].append(let_through(queue, more, starts))
        answers = _ask(queues[many])
    return _result(arena, dispatches, answers)


def let_through(queue: Queue, more: str, count: int) -> Dispatch:
    """Add as many jobs as will go, open the slots, and close them when that many are over."""
    queue.add(more)
    daemon, supervisor = queue.pids
    wanted = queue.count("done") + count
    queue.open_admission()
    began, done = time.monotonic(), queue.count("done")
    daemon_s, supervisor_s = exact_cpu_s(daemon), exact_cpu_s(supervisor)
    queue.until(lambda: queue.count("done") >= wanted, f"{count} jobs are done", _GLANCE_S)
    jobs = queue.count("done") - done
    dispatch = Dispatch(
        jobs=jobs,
        wall_s=time.monotonic() - began,
        daemon_cpu_s=exact_cpu_s(daemon) - daemon_s,
        supervisor_cpu_s=exact_cpu_s(supervisor) - supervisor_s,
    )
    queue.close_admission()
    return dispatch


def _ask(queue: Queue) -> Answers:
    pages_ms = []
    for _ in range(PAGES):
        began = time.perf_counter()
        queue.line.get("/v1/ls")
        pages_ms.append((time.perf_counter() - began) * 1e3)
    # Before the restarts: the new daemon has not seen the adding of a million.
    peak = peak_bytes(queue.pids[0])
    restarts_s = []
    for _ in range(RESTARTS):
        began = time.perf_counter()
        queue.stoker("daemon", "restart")
        queue.reconnect()
        queue.status()
        restarts_s.append(time.perf_counter() - began)
    return Answers(pages_ms, restarts_s, rss_bytes(queue.pids[0]), peak)


def _result(arena: Arena, dispatches: Mapping[int, Sequence[Dispatch]], answers: Answers) -> Result:
    few, many = sorted(dispatches)
    costs = {depth: [run.cpu_us_per_job for run in runs] for depth, runs in dispatches.items()}
    rows = []
    for depth, runs in dispatches.items():
        cost = spread(costs[depth])
        pace = spread([run.jobs / run.wall_s for run in runs])
        daemon = spread([run.daemon_cpu_s / run.jobs for run in runs]).scaled(1e6)
        supervisor = spread([run.supervisor_cpu_s / run.jobs for run in runs]).scaled(1e6)
        rows.append(
            [
                f"{depth}",
                f"{pace.median:.0f}",
                f"{cost.median:.1f} ({cost.q1:.1f} – {cost.q3:.1f})",
                f"{daemon.median:.1f}",
                f"{supervisor.median:.1f}",
            ]
        )
    return Result(
        name="queue_million",
        what=f"{dispatches[few][0].jobs} and more jobs `{LINE}` let through 4 slots while {few} or"
        f" {many} others wait, {arena.rounds} rounds in turns.",
        details=Table(
            ("waiting", "jobs/s", "CPU µs/job (quartiles)", "daemon's", "supervisor's"), rows
        ),
        figures=[
            Figure(
                name=f"CPU per job, {many} ÷ {few} waiting",
                spread=ratios(costs[many], costs[few]),
                target=Target(Bound.AT_MOST, 1.1),
            ),
            Figure(
                name="first page of ls",
                spread=spread(answers.pages_ms),
                target=Target(Bound.AT_MOST, 50.0),
                unit="ms",
                digits=2,
            ),
            Figure(
                name="stoker daemon restart, to the first answer",
                spread=spread(answers.restarts_s),
                target=Target(Bound.AT_MOST, 1.0),
                unit="s",
            ),
            Figure(
                name="daemon's peak memory",
                spread=spread([answers.peak_bytes / 1e6]),
                target=Target(Bound.AT_MOST, 150.0),
                unit="MB",
                digits=1,
            ),
        ],
        notes=[
            "CPU is that of daemon and supervisor, without the jobs' own.",
            f"After a restart the daemon's memory is {answers.rss_bytes / 1e6:.1f} MB.",
        ],
    )
