"""Comparison of queue orders: how long jobs take from arrival to end, with a GPU for each job."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Sequence

import msgspec

from stoker.core.queue_rank import FIFO, SHORTEST, shortest_first_rank
from stoker.core.run_times import RunTimes, is_surprise, usual_s
from stoker.simulator.workload import Work

ORDERS = (FIFO, SHORTEST)
_LOAD = 0.95
_JOBS_PER_GPU = 250
_UNKNOWN_S = 3600.0


class OrderOutcome(msgspec.Struct, frozen=True):
    """Completion times under one order, in seconds."""

    mean_s: float
    p95_s: float
    longest_s: float


def draw_mixed(seed: int, gpus: int) -> list[Work]:
    """Draw batches of alike jobs, from tests of a minute to runs of a day, that load the GPUs by 95%."""
    dice = random.Random(seed)
    works: list[Work] = []
    now = 0.0
    while len(works) < _JOBS_PER_GPU * gpus:
        kind = dice.randrange(40)
        usual = 60.0 * math.exp(random.Random(f"{seed} {kind}").gauss(math.log(12), 1.6))
        count = dice.choice((1, 1, 2, 5, 20))
        took = [min(86400.0, usual * math.exp(dice.gauss(0.0, 0.2))) for _ in range(count)]
        works += [
            Work(arrival_s=now, duration_s=each, memory=((0.0, 1),), sm=1.0, kind=f"kind {kind}")
            for each in took
        ]
        now += dice.expovariate(1.0) * sum(took) / (gpus * _LOAD)
    return works


def complete(works: Sequence[Work], gpus: int, order: str) -> OrderOutcome:
    """Run all work in an order; run times are learned as jobs end."""
    known: dict[str, RunTimes] = {}
    waiting: list[tuple[int, int]] = []
    ending: list[tuple[float, int, float]] = []
    took: list[float] = []
    arriving = 0

    def rank(number: int) -> int:
        if order == FIFO:
            return number
        work = works[number]
        found = known[work.kind].expected_s(work.params) if work.kind in known else None
        expected_s = found or usual_s(known.values()) or _UNKNOWN_S
        return shortest_first_rank(int(work.arrival_s * 1e6), 0, expected_s)

    while arriving < len(works) or ending:
        if ending and (arriving == len(works) or ending[0][0] <= works[arriving].arrival_s):
            now, number, began = heapq.heappop(ending)
            work = works[number]
            took.append(now - work.arrival_s)
            before = known.get(work.kind, RunTimes())
            surprised = is_surprise(before.expected_s(work.params), now - began)
            known[work.kind] = before.learn(work.params, now - began, now)
            if surprised and order == SHORTEST:
                waiting = [(rank(each), each) for _rank, each in waiting]
                heapq.heapify(waiting)
        else:
            now = works[arriving].arrival_s
            heapq.heappush(waiting, (rank(arriving), arriving))
            arriving += 1
        while waiting and len(ending) < gpus:
            _rank, number = heapq.heappop(waiting)
            heapq.heappush(ending, (now + works[number].duration_s, number, now))
    took.sort()
    return OrderOutcome(statistics.fmean(took), took[int(0.95 * (len(took) - 1))], took[-1])
