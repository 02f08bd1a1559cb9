"""Cost of a decision while a million jobs wait: reading candidates from SQLite, and planning."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from stoker.store.database import Database
    from stoker.store.jobs import Jobs

WAITING = 1_000_000
SLOTS = 4
STARTS_PER_ROUND = 500
ROUND_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Queue:
    """A million jobs: every how many one wants two GPUs, or none; and places for those with none."""

    name: str
    two: int = 0
    none: int = 0
    cpu_places: int = 0

    def slots_of(self, job: int) -> int:
        """Return how many slots the job with this number wants."""
        if self.two and job % self.two == self.two - 1:
            return 2
        return 0 if self.none and job % self.none == 0 else 1


QUEUES = (
    Queue("one GPU each"),
    Queue("one GPU each, CPU places idle", cpu_places=2),
    Queue("every tenth wants two GPUs, every seventh none", two=10, none=7, cpu_places=2),
)


def run(arena: Arena) -> Result:
    """Let slots fall free one by one, and time every decision."""
    rows = []
    figures = []
    for queue in QUEUES:
        cost = spread(_costs_us(arena, queue))
        rows.append([queue.name, f"{cost.median:.1f} ({cost.q1:.1f} – {cost.q3:.1f})"])
        figures.append(
            Figure(
                name=f"planner per start, {queue.name}",
                spread=cost,
                target=Target(Bound.AT_MOST, 50.0),
                unit="µs",
                digits=1,
            )
        )
    return Result(
        name="planner",
        what=f"`Jobs.heads` and `plan` with {WAITING} jobs waiting in SQLite for {SLOTS} slots, "
        f"{arena.rounds} rounds of up to {STARTS_PER_ROUND} starts; the record of a start is not "
        "in the figure.",
        details=Table(("queue", "µs per start (quartiles)"), rows),
        figures=figures,
    )


def _costs_us(arena: Arena, queue: Queue) -> list[float]:
    from stoker.core.job import Request
    from stoker.store.database import Database
    from stoker.store.jobs import Jobs

    with arena.home() as env:
        database = Database(os.path.join(env["STOKER_HOME"], "planner.db"))
        jobs = Jobs(database)
        for job in range(WAITING):
            jobs.add_waiting(b"true", Request(slots=queue.slots_of(job)))
            if job % 10_000 == 0:
                database.commit()
        database.commit()
        costs = [_round_us(database, jobs, queue.cpu_places) for _ in range(arena.rounds)]
        database.close()
    return costs


def _round_us(database: Database, jobs: Jobs, cpu_places: int) -> float:
    """Return the microseconds per start; decisions that start nothing count too."""
    from stoker.core.planner import Busy, plan

    free = list(range(SLOTS))
    free_cpu = cpu_places
    running: deque[tuple[int, ...]] = deque()
    spent_s = 0.0
    starts = 0
    while starts < STARTS_PER_ROUND and spent_s < ROUND_LIMIT_S:
        busy = [Busy(slot) for slots in running for slot in slots]
        began = time.perf_counter()
        waiting = jobs.heads(max(len(free), 1), free_cpu)
        decided = plan(waiting, free=free, busy=busy, cpu_places=free_cpu)
        spent_s += time.perf_counter() - began
        for start in decided.starts:
            jobs.claim(start.job, "0")
            running.append(start.slots)
            free = [slot for slot in free if slot not in start.slots]
            free_cpu -= not start.slots
        database.commit()
        starts += len(decided.starts)
        ended = running.popleft()
        free += ended
        free_cpu += not ended
    if not starts:
        raise BenchError(f"the planner started nothing in {ROUND_LIMIT_S:.0f} s")
    return spent_s / starts * 1e6
