"""What the planner itself costs per start when a million jobs wait."""

from __future__ import annotations

import gc
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.errors import BenchError
from benchmarks.measure import spread
from benchmarks.report import Bound, Figure, Result, Table, Target

if TYPE_CHECKING:
    from benchmarks.arena import Arena
    from stoker.core.plan import Candidate

WAITING = 1_000_000
SLOTS = 4
STARTS_PER_ROUND = 500
ROUND_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Queue:
    """A million jobs: `every` how many one wants two GPUs, and places for jobs that want none."""

    name: str
    every: int = 0
    cpu_places: int = 0

    def slots_of(self, job: int) -> int:
        """Return how many slots the job with this number wants."""
        return 2 if self.every and job % self.every == self.every - 1 else 1


QUEUES = (
    Queue("one GPU each"),
    Queue("one GPU each, CPU places idle", cpu_places=2),
    Queue("every tenth wants two GPUs", every=10),
)


def run(arena: Arena) -> Result:
    """Let slots fall free one by one, and time every decision."""
    rows = []
    figures = []
    for queue in QUEUES:
        cost = spread(_costs_us(queue, arena.rounds))
        rows.append([queue.name, f"{cost.median:.2f} ({cost.q1:.2f} – {cost.q3:.2f})"])
        figures.append(
            Figure(
                name=f"planner per start, {queue.name}",
                spread=cost,
                target=Target(Bound.AT_MOST, 50.0),
                unit="µs",
                digits=2,
            )
        )
    return Result(
        name="planner",
        what=f"`stoker.core.plan` with {WAITING} jobs waiting for {SLOTS} slots, "
        f"{arena.rounds} rounds of up to {STARTS_PER_ROUND} starts.",
        details=Table(("queue", "µs per start (quartiles)"), rows),
        figures=figures,
    )


def _costs_us(queue: Queue, rounds: int) -> list[float]:
    from stoker.core.plan import Candidate

    waiting = deque(Candidate(id=job, slots=queue.slots_of(job)) for job in range(WAITING))
    # The collector must not walk a million jobs in the middle of a decision: they are the test's.
    gc.freeze()
    try:
        return [_round_us(waiting, queue.cpu_places) for _ in range(rounds)]
    finally:
        gc.unfreeze()


def _round_us(waiting: deque[Candidate], cpu_places: int) -> float:
    """Return the microseconds per start; decisions that start nothing count too."""
    from stoker.core.plan import Busy, plan

    free = list(range(SLOTS))
    running: deque[tuple[int, ...]] = deque()
    spent_s = 0.0
    starts = 0
    while starts < STARTS_PER_ROUND and spent_s < ROUND_LIMIT_S:
        busy = [Busy(slot) for slots in running for slot in slots]
        began = time.perf_counter()
        decided = plan(waiting, free=free, busy=busy, cpu_places=cpu_places)
        spent_s += time.perf_counter() - began
        for start in decided.starts:
            _remove(waiting, start.job)
            running.append(start.slots)
            free = [slot for slot in free if slot not in start.slots]
        starts += len(decided.starts)
        free += running.popleft()
    if not starts:
        raise BenchError(f"the planner started nothing in {ROUND_LIMIT_S:.0f} s")
    return spent_s / starts * 1e6


def _remove(waiting: deque[Candidate], job: int) -> None:
    """Take a started job out; it is near the front."""
    place = next(index for index, candidate in enumerate(waiting) if candidate.id == job)
    del waiting[place]
